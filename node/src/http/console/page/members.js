// The members: what they are, how they are, and what operators do with them.

import { state } from "./feed.js";
import * as act from "./actions.js";
import { h, bytes, rate, micros, number, pill, memberState, table, meter, panel, ago } from "./views.js";
import { members, colourOf, haltPanel, mayRun, mayChange, button, drainWords } from "./known.js";
import { main } from "./app.js";

/** Members that the overview lists: those that need attention first. */
const BRIEF = 12;

export function memberPanel(brief) {
  const all = members();
  const shown = brief && all.length > BRIEF ? [...all].sort((a, b) => (a.state === "live") - (b.state === "live")).slice(0, BRIEF) : all;
  const columns = [
    ["Member", (m) => h("span", {}, h("i", { class: "swatch", colour: colourOf(m.name) }), h("strong", {}, m.name), m.coordinates ? h("span", { class: "line" }, pill("note", "★ coordinator")) : "", m.role === "witness" ? h("span", { class: "line" }, pill("", "witness")) : ""), "nowrap"],
    ["State", (m) => h("span", {}, memberState(m.state), m.drain ? h("span", { class: "sub line" }, m.drain.holds ? `${number(m.drain.holds)} left` : "holds nothing") : "")],
    ["Age", (m) => number(m.age), "num"],
    ["Memory", (m) => m.load ? h("span", {}, meter(m.load.memory, m.load.memory_max), `${bytes(m.load.memory)}`, h("span", { class: "sub line" }, `of ${bytes(m.load.memory_max)}`)) : "–", "nowrap"],
    ["Leads / holds", (m) => m.held ? `${number(m.held.leads)} / ${number(m.held.holds)}` : "–", "num"],
    ["Commands", (m) => m.sample ? rate(m.sample.commands) : "–", "num"],
    ["p99", (m) => m.sample?.p99_us != null ? micros(m.sample.p99_us) : "–", "num"],
    ["Cores", (m) => m.load ? (m.load.cpu / 1000).toFixed(2) : "–", "num"],
  ];
  if (!brief && mayChange()) columns.splice(2, 0, ["Actions", (m) => h("span", { class: "row" }, memberActions(m))]);
  if (!brief) columns.push(
    ["Zone, address", (m) => h("span", { class: "sub" }, h("span", { class: "line" }, [m.zone, m.rack, m.host].filter(Boolean).join(" / ")), h("span", { class: "line" }, h("code", {}, host(m.address))), h("span", { class: "line" }, ports(m))), "addr"]);
  return panel("Members, oldest first", null, table(columns, shown, "No member is known yet."),
    shown.length < all.length ? h("p", { class: "after" }, `${shown.length} of ${all.length}, those that need attention first. `, h("a", { href: "#members" }, "All members")) : null);
}

const host = (address) => address.slice(0, address.lastIndexOf(":"));
/** The ports of a member: `RESP 7379, HTTP 7480`, with the host where it is another one. */
const ports = (m) => [["control", m.address], ["RESP", m.resp], ["HTTP", m.http]].filter(([, address]) => address)
  .map(([port, address]) => `${port} ${host(address) === host(m.address) ? address.slice(address.lastIndexOf(":") + 1) : address}`).join(", ");

function memberActions(m) {
  if (m.state === "silent") return [button("Give up…", () => act.removeLost(m.name))];
  if (m.state === "draining" || m.state === "drained") return [button("Cancel drain", () => act.undrain(m.name))];
  return m.role === "data" ? [button("Drain…", () => act.drain(m.name))] : [];
}

export function membersView() {
  const list = h("div", {}), gone = h("div", {}), halt = h("div", {}), drains = h("div", {});
  main.replaceChildren(h("h1", {}, "Members"), halt, drains, list, gone);
  return (name) => {
    if (!["all", "status", "loads", "sample", "map", "moves", "hello"].includes(name)) return;
    halt.replaceChildren(...[haltPanel()].filter(Boolean));
    const draining = state.moves?.draining ?? [];
    drains.replaceChildren(draining.length ? panel("Drains", null, draining.map((one) => h("p", {}, h("strong", {}, one.member), ` ${drainWords(one)}. `,
      one.waits_for ? pill("warn", `▲ It waits: ${one.waits_for}`) : ""))) : "");
    list.replaceChildren(memberPanel(false));
    const left = state.status?.gone ?? [];
    gone.replaceChildren(left.length ? panel("Gone", null, table([
      ["Member", (one) => h("strong", {}, one.name)],
      ["Why", (one) => one.why === "left" ? pill("", "left in order") : pill("bad", "✕ does not answer")],
      ["Went", (one) => h("span", {}, one.longer ? "more than " : "", ago(one.since))],
      ["Actions", (one) => mayRun("Forget…", () => act.forget(one.name))],
    ], left)) : "");
  };
}
