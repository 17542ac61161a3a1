// Keys and their values, for those who may read all data: an operator's secret.

import { state, ask } from "./feed.js";
import * as act from "./actions.js";
import { h, bytes, duration, number, table, panel, pill } from "./views.js";
import { base64, keyBytes, placeOptions, placeQuery, fill, mayRun, button } from "./known.js";
import { main } from "./app.js";

/** Bytes of an answer as text: those that are no text, with escapes in quotes, as redis-cli has them. */
const text = (of) => typeof of === "string" ? of : `"${Array.from(atob(of.base64), (letter) => {
  const code = letter.charCodeAt(0);
  return letter === "\\" || letter === '"' ? `\\${letter}` : code < 32 || code > 126 ? `\\x${code.toString(16).padStart(2, "0")}` : letter;
}).join("")}"`;
const raw = (of) => typeof of === "string" ? base64(new TextEncoder().encode(of)) : of.base64;
const lifetime = (ms) => ms === null ? "none" : duration(ms / 1000);

export function keysView() {
  const place = h("select", { "aria-label": "Map or database", on: { change: () => look() } });
  const prefix = h("input", { placeholder: "begins with", "aria-label": "Keys that begin with", spellcheck: "false", autocomplete: "off" });
  const key = h("input", { placeholder: "one key", "aria-label": "One key", spellcheck: "false", autocomplete: "off", title: 'In quotes, escapes as redis-cli prints them are read: "\\xff"' });
  const list = h("div", {}), value = h("div", { "aria-live": "polite" });
  const form = (input, title, run) => h("form", { class: "row", on: { submit: (event) => { event.preventDefault(); run(); } } }, input, h("button", { type: "submit" }, title));
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Keys"), h("div", { class: "row" }, place, form(prefix, "List", () => look()), form(key, "Open", () => open(base64(keyBytes(key.value)))))),
    h("p", { class: "hint" }, "Only the operators' token shows keys with their values and changes them. Each change is audited without them. Entries of maps are shown as their programs encode them, and only their programs change them."), value, list);
  const where = () => placeQuery(place.value);
  const query = (more) => new URLSearchParams({ ...where(), ...more });

  async function look(after) {
    if (!place.value) return;
    try {
      const page = await ask("GET", `/console/keys?${query({ ...(prefix.value ? { "prefix-base64": base64(keyBytes(prefix.value)) } : {}), ...(after ? { after } : {}) })}`);
      list.replaceChildren(panel("Keys", page.next ? [button("Next page", () => look(page.next))] : null, table([
        ["Key", (one) => h("button", { type: "button", class: "as-link break", on: { click: () => open(raw(one.key)) } }, text(one.key))],
        ["Type", (one) => pill("", one.type)],
        ["Expires in", (one) => lifetime(one.ttl_ms), "num"],
        ["In memory", (one) => bytes(one.bytes), "num"],
      ], page.keys, page.next ? "No such key among those that were looked at: look at the next page." : "No such key.")));
    } catch (error) { list.replaceChildren(h("p", {}, error.message)); }
  }

  async function open(encoded, after = "", before = []) {
    try {
      const found = await ask("GET", `/console/value?${query({ "key-base64": encoded, ...(after ? { after } : {}) })}`);
      const body = { ...where(), "key-base64": encoded };
      const again = () => open(encoded), isText = typeof found.value === "string" && !found.value.includes("\r");
      const rows = [...before, ...(found.items ?? [])];
      const tools = found.writable ? [
        found.items ? null : isText && !found.next ? mayRun("Edit…", () => act.editValue(body, text(found.key), found.value, again)) : null,
        mayRun("Lifetime…", () => act.setLifetime(body, text(found.key), again)),
        mayRun("Delete…", () => act.deleteKey(body, text(found.key), () => { value.replaceChildren(); look(); }), "danger"),
      ] : null;
      value.replaceChildren(panel(text(found.key), tools,
        h("p", { class: "sub" }, [found.type, found.items ? `${number(found.length)} fields` : bytes(found.length), `${bytes(found.bytes)} in memory`, found.ttl_ms === null ? "does not expire" : `expires in ${duration(found.ttl_ms / 1000)}`].join("; ")),
        found.items ? table([["Field", (one) => h("code", { class: "break" }, text(one.field))], ...(rows.some((one) => "value" in one) ? [["Value", (one) => h("code", { class: "break" }, text(one.value))]] : [])], rows)
          : h("pre", { tabindex: "0", class: "value" }, text(found.value)),
        found.writable && typeof found.value === "string" && !isText ? h("p", { class: "hint" }, "It has carriage returns, which a browser would change: write it with a Redis client.") : null,
        found.next ? h("div", { class: "row after" }, button(found.items ? "More fields" : "Next part", () => open(encoded, found.next, found.items ? rows : []))) : null));
    } catch (error) { value.replaceChildren(h("p", {}, error.message)); }
  }

  let asked = false;
  return (name) => {
    if (!["all", "maps", "status"].includes(name)) return;
    fill(place, placeOptions());
    if (!asked && state.maps && place.value) { asked = true; look(); }
  };
}
