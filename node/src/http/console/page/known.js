// What this page knows of the cluster, put together, and what several views show.

import { state, ask } from "./feed.js";
import * as act from "./actions.js";
import { h, colour, number, bytes, byteRate, duration, pill, panel, table, meter, plural } from "./views.js";

export const members = () => {
  const loads = new Map(state.loads.map((load) => [load.name, load]));
  const samples = state.sample?.members ?? {};
  const held = holdings();
  const draining = new Map((state.moves?.draining ?? []).map((one) => [one.member, one]));
  return (state.status?.members ?? []).map((member) => ({
    ...member, load: loads.get(member.name), sample: samples[member.name], held: held.get(member.name), drain: draining.get(member.name),
    coordinates: member.name === state.status.coordinator,
  }));
};

/** The colour of a member. It goes by age, so it stays when another member goes. */
export const colourOf = (name) => colour(((state.status?.members ?? []).find((member) => member.name === name)?.age ?? 1) - 1);

let held = { of: null, map: new Map() };
/** How many partitions each member leads and holds. */
function holdings() {
  if (held.of === state.map) return held.map;
  const names = state.map?.members ?? [], map = new Map(names.map((name) => [name, { leads: 0, holds: 0 }]));
  for (const keyspace of state.map?.keyspaces ?? []) for (const replicas of keyspace.partitions) {
    replicas.forEach((place, at) => {
      const of = map.get(names[place < 0 ? -1 - place : place]);
      if (of) { of.holds += 1; of.leads += at === 0 ? 1 : 0; }
    });
  }
  held = { of: state.map, map };
  return map;
}

/** No member coordinates, so nothing can be changed. */
export const halted = () => state.status !== null && !state.status.coordinator;
/** Whether changes are offered: to a role that may make them, while they can succeed. */
export const mayChange = () => act.may() && state.connected && !halted();
export const button = (text, run, kind) => h("button", { type: "button", class: kind, on: { click: run } }, text);
export const mayRun = (text, run, kind) => mayChange() ? button(text, run, kind) : null;

/** A text to copy, with a button that does it. */
export function copied(text) {
  const said = h("span", { class: "sub", "aria-live": "polite" });
  const box = h("pre", { tabindex: "0" }, text);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); said.textContent = "Copied."; } catch {
      // Only pages of HTTPS and of localhost may write to the clipboard.
      getSelection().selectAllChildren(box);
      said.textContent = "Selected: copy it with Ctrl+C.";
    }
  };
  return h("div", { class: "copied" }, box, h("div", { class: "row" }, said, button("Copy", copy)));
}

/** What holds the whole cluster up, with the command that helps, if the node names one. */
export function haltPanel() {
  const status = state.status;
  if (!halted()) return null;
  const text = status.waiting ?? "No member coordinates at the moment: an election takes some seconds.";
  const command = /doyen recover --[^`]*? --gone \d+\/\d+(?: --[a-z-]+ [A-Z]+)?/.exec(text)?.[0];
  const [words, after] = command ? text.split(command) : [text, ""];
  return h("section", { class: "panel halt stack" },
    h("h2", {}, "Nothing can be changed: no member coordinates"), h("p", {}, words.trim()),
    command ? copied(command) : null, after ? h("p", {}, after.replace(/^[.\s]+/, "")) : null,
    h("p", { class: "sub" }, "What you see below is what this node knew last. Drain, plans and tokens are offered again as soon as a member coordinates."));
}

export function movePanel(most) {
  const all = state.moves?.moves ?? [], balance = state.moves?.balance, draining = state.moves?.draining ?? [];
  const tools = mayChange() && balance ? [
    button("Preview a plan…", act.previewPlan),
    balance.state.startsWith("paused") ? button("Resume…", () => act.pauseBalance(false)) : button("Pause…", () => act.pauseBalance(true)),
  ] : null;
  return panel(all.length ? `Moves (${all.length})` : "Moves", tools,
    h("p", { class: "sub" }, balance ? `Balancing is ${balance.state}; rate ${balance.rate}; window ${balance.window}.${state.moves.halted ? ` Nothing moves: ${state.moves.halted}` : ""}` : ""),
    draining.length ? h("div", { class: "stack" }, draining.map((one) => h("p", {}, h("strong", {}, one.member), ` ${drainWords(one)}.`, one.waits_for ? [" ", pill("warn", `▲ It waits: ${one.waits_for}`)] : ""))) : null,
    all.length ? table([
      ["Partition", (one) => h("span", { class: "mono" }, one.id)],
      ["Stage", (one) => pill("note", one.stage)],
      ["From → to", (one) => `${one.from} → ${one.to}`, "nowrap"],
      ["Progress", (one) => { const total = one.bytes_sent + one.bytes_left; return total ? h("span", {}, meter(one.bytes_sent / 1.2, total), `${bytes(one.bytes_sent)} of ${bytes(total)}${one.rate ? `, ${byteRate(one.rate)}` : ""}${one.seconds_left != null ? `, ${duration(one.seconds_left)} left` : ""}`) : "–"; }],
      ["Why", (one) => one.reason],
      ["Actions", (one) => mayRun("Cancel…", () => act.cancelMove(one.id))],
    ], all.slice(0, most)) : null,
    all.length > most ? h("p", { class: "sub" }, `and ${plural(all.length - most, "other move")}`) : null);
}

/** How far a drain is. */
export const drainWords = (one) => one.holds ? `is being drained: it still leads ${number(one.leads)} and holds ${plural(one.holds, "partition")}` : "is drained: it holds nothing any more, so its process may be stopped";

/** `key` as bytes: in quotes, the escapes that redis-cli prints are read (`"\xff\n"`). */
export function keyBytes(text) {
  if (!(text.length > 1 && text.startsWith('"') && text.endsWith('"'))) return new TextEncoder().encode(text);
  const out = [], plain = { n: 10, r: 13, t: 9, a: 7, b: 8 };
  const inner = text.slice(1, -1);
  for (let at = 0; at < inner.length; at += 1) {
    const letter = inner[at];
    if (letter !== "\\") { out.push(...new TextEncoder().encode(String.fromCodePoint(inner.codePointAt(at)))); if (inner.codePointAt(at) > 0xffff) at += 1; continue; }
    const next = inner[at += 1], two = inner.slice(at + 1, at + 3);
    if (next === "x" && /^[0-9a-f]{2}$/i.test(two)) { out.push(parseInt(two, 16)); at += 2; }
    else if (next in plain) out.push(plain[next]);
    else if (next !== undefined) out.push(next.charCodeAt(0));
  }
  return new Uint8Array(out);
}

export const base64 = (of) => btoa(Array.from(of, (byte) => String.fromCharCode(byte)).join(""));

/** Where a choice of `placeOptions` leads: parameters of a request. */
export const placeQuery = (choice) => {
  const [keyspace, kind, name] = JSON.parse(choice);
  return kind === "map" ? { keyspace, map: name } : { keyspace, database: Number(name) };
};
/** The databases and maps that hold something, as options: [value, text]. */
export function placeOptions() {
  const found = (state.maps ?? []).filter((one) => ["map", "database"].includes(one.kind)).map((one) => one.kind === "map" ? [one.keyspace, "map", one.name] : [one.keyspace, "database", one.name]);
  for (const one of state.status?.keyspaces ?? []) if (!found.some(([keyspace, kind, name]) => keyspace === one.name && kind === "database" && name === "0")) found.unshift([one.name, "database", "0"]);
  return found.map((one) => [JSON.stringify(one), `${one[0]} / ${one[1]} ${one[2]}`]);
}
/** Fills a choice, and keeps what was chosen. */
export function fill(choice, options) {
  const same = choice.options.length === options.length && options.every(([value], at) => choice.options[at].value === value);
  if (same) return;
  const before = choice.value;
  choice.replaceChildren(...options.map(([value, text]) => h("option", { value }, text)));
  if (options.some(([value]) => value === before)) choice.value = before;
}
export const locate = (choice, key) => ask("GET", `/console/locate?${new URLSearchParams({ ...placeQuery(choice), "key-base64": base64(keyBytes(key)) })}`);
