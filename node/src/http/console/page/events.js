// What happened, newest first.

import { state } from "./feed.js";
import { h, pill, panel, moment, number } from "./views.js";
import { main } from "./app.js";

const SEVERE = { info: "", warning: "▲ ", error: "✕ " };

/** What an audited request did, as a person would say it: [pattern, words]. */
const DID = [
  [/^POST \/members\/(\S+)\/drain/, "drain $1"], [/^DELETE \/members\/(\S+)\/drain/, "end the drain of $1"], [/^DELETE \/members\/(\S+)/, "give up $1"],
  [/^DELETE \/gone\/(\S+)/, "forget $1"], [/^DELETE \/gone$/, "forget all members that are gone"],
  [/^POST \/keyspaces\/(\S+)\/split/, "split a range of $1"], [/^POST \/keyspaces\/(\S+)\/merge/, "merge ranges of $1"],
  [/^POST \/keyspaces (\S+)/, "create the keyspace $1"], [/^PATCH \/keyspaces\/(\S+)\/maps\/(\S+) (.*)/, "limit the map $2 of $1: $3"],
  [/^DELETE \/keyspaces\/(\S+)\/maps\/(\S+)/, "drop the map $2 of $1"], [/^PATCH \/keyspaces\/(\S+) (.*)/, "change the keyspace $1: $2"], [/^DELETE \/keyspaces\/(\S+)/, "drop the keyspace $1"],
  [/^POST \/rebalance (.*)/, "apply a plan $1"], [/^PATCH \/rebalance (.*)/, "set what moves by itself: $1"],
  [/^PATCH \/balance .*"paused": ?true.*/, "pause balancing"], [/^PATCH \/balance .*"paused": ?false.*/, "resume balancing"], [/^PATCH \/balance (.*)/, "set balancing: $1"],
  [/^POST \/moves\/cancel (.*)/, "cancel moves: $1"], [/^POST \/recover (.*)/, "recover the cluster: $1"], [/^POST \/split\/keep/, "keep this half of a split cluster"],
  [/^PUT \/tokens\/(\S+) (.*)/, "make the token $1 ($2)"], [/^DELETE \/tokens\/(\S+)/, "revoke the token $1"],
  [/^PUT \/weights\/(\S+) (.*)/, "allow $1 a weight: $2"], [/^DELETE \/weights\/(\S+)/, "forget the weight of $1"],
  [/^PUT \/users\/(\S+) (.*)/, "set the user $1 ($2)"], [/^DELETE \/users\/(\S+)/, "remove the user $1"],
  [/^PUT \/console\/key (.*)/, "write a key $1"], [/^PATCH \/console\/key (.*)/, "change the lifetime of a key $1"], [/^DELETE \/console\/key (.*)/, "delete a key $1"],
];

function did(what) {
  const found = DID.find(([pattern]) => pattern.test(what));
  return found ? decodeURIComponentSafe(what.replace(found[0], found[1])) : what;
}
const decodeURIComponentSafe = (text) => { try { return decodeURIComponent(text); } catch { return text; } };

function words(one) {
  if (one.kind !== "audit") return [one.text];
  const mark = one.outcome === "done" ? pill("good", "● done") : pill(one.refused ? "bad" : "warn", `${one.refused ? "✕" : "▲"} ${one.outcome}`);
  return [h("strong", {}, one.who), ` from ${one.from}${one.interface === "resp" ? " by a Redis client" : ""}: `, did(one.what), " ", mark, one.others ? ` and ${number(one.others)} more attempts within a minute` : ""];
}

/** Events in a row that say the same are one line; so are the steps of moves. */
const sameness = (one) => one.kind === "moved" && one.severity === "info" ? "moved" : `${one.kind} ${one.severity} ${one.kind === "audit" ? `${one.who} ${one.from} ${one.what} ${one.outcome}` : one.text}`;
function folded(events) {
  const all = [];
  for (const one of events) {
    const key = sameness(one), last = all.at(-1);
    if (last?.key === key) { last.count += 1; last.first = one; } else all.push({ key, one, first: one, count: 1 });
  }
  return all;
}

export function eventPanel(most, word = "", severe = false) {
  const fits = state.events.filter((one) => (!severe || one.severity !== "info") && (!word || `${one.kind} ${one.text} ${one.who ?? ""}`.toLowerCase().includes(word.toLowerCase())));
  const list = folded(fits).slice(0, most).map(({ one, first, count }) => h("li", {},
    h("time", { datetime: one.at, title: `${one.at}${count > 1 ? `, the first at ${first.at}` : ""}` }, moment(one.at)),
    h("span", {}, one.severity !== "info" ? [pill(one.severity === "error" ? "bad" : "warn", `${SEVERE[one.severity]}${one.severity}`), " "] : "",
      words(one), count > 1 ? [" ", pill("", one.kind === "moved" ? `and ${number(count - 1)} more steps of moves since ${moment(first.at)}` : `${number(count)} times since ${moment(first.at)}`)] : "")));
  return panel("Events", null, list.length ? h("ol", { class: "events" }, list) : h("p", { class: "empty" }, state.events.length ? "No event has these words." : "Nothing happened yet."));
}

export function eventsView() {
  const again = () => draw("happened");
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", on: { input: again } });
  const severe = h("input", { type: "checkbox", on: { change: again } });
  const list = h("div", {});
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Events"), h("div", { class: "row" }, h("label", { class: "check" }, severe, "warnings and errors alone"), filter)),
    h("p", { class: "hint" }, "What this node has learned. Audits are those of this node: other members see what changed, and not who did it."), list);
  const draw = (name) => { if (["all", "happened"].includes(name)) list.replaceChildren(eventPanel(300, filter.value, severe.checked)); };
  return draw;
}
