// The page: its frame, its views, and what redraws them.

import { state, follow, onChange, hasToken, setToken, OPEN } from "./feed.js";
import * as act from "./actions.js";
import { h, restyle, pill } from "./views.js";
import { button } from "./known.js";
import { overview, sampled } from "./overview.js";
import { membersView } from "./members.js";
import { partitions } from "./partitions.js";
import { data } from "./data.js";
import { keysView } from "./keys.js";
import { clientsView } from "./clients.js";
import { eventsView } from "./events.js";
import { access } from "./access.js";

export const main = document.getElementById("main");
const nav = document.getElementById("nav");

/** The views by their names: the title, what makes the view, and whether this caller may see it. */
const always = () => true;
const VIEWS = {
  overview: ["Overview", overview, always],
  members: ["Members", membersView, always],
  partitions: ["Partitions", partitions, always],
  data: ["Data", data, always],
  keys: ["Keys", keysView, () => state.hello?.may_read_values],
  clients: ["Clients", clientsView, () => act.may()],
  events: ["Events", eventsView, always],
  access: ["Access", access, always],
};
let view = null, viewName = null;

/** What the caller may do, in words. */
const MAY = { read: "sees, without keys", operate: "sees and changes" };

function go() {
  const name = Object.hasOwn(VIEWS, location.hash.slice(1)) ? location.hash.slice(1) : "overview";
  if (name === viewName) return;
  viewName = name;
  document.title = `${VIEWS[name][0]} – Doyen`;
  for (const link of nav.children) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  view = null;
  redraw("all");
}

function frame() {
  const verdict = document.getElementById("verdict"), { status, hello } = state;
  const words = state.refused ? pill("warn", "▲ Log in") : state.full ? pill("warn", `▲ ${state.full}`) : state.waiting ? pill("warn", `▲ ${state.waiting}`)
    : !state.connected ? pill("warn", "▲ This node does not answer: what you see is old") : !status ? pill("", "Connecting…")
    : status.safe ? pill("good", "● Safe") : pill(state.alerts?.some((one) => one.severity === "critical") ? "bad" : "warn", `▲ Not safe: ${status.unsafe_for ?? "some data lacks a copy"}`);
  if (verdict.textContent !== words.textContent) { words.title = words.textContent; verdict.replaceChildren(words); }
  const open = hello?.caller === OPEN;
  const role = open ? "open to this machine" : `${hello?.role}: ${MAY[hello?.role] ?? ""}`;
  document.getElementById("link").textContent = hello && !state.refused ? `${hello.node} · ${hello.version} · ${role}` : "";
  const login = document.getElementById("login");
  login.textContent = hasToken() ? "Log out" : "Log in";
  // A node without credentials answers everyone: there is nothing to log in with.
  login.hidden = open && !hasToken() && !state.refused;
  const counts = { members: status?.members.length, partitions: state.moves?.moves.length ? `${state.moves.moves.length} ⇄` : null };
  for (const link of nav.children) {
    const name = link.hash.slice(1);
    link.hidden = !VIEWS[name][2]();
    link.lastChild.textContent = counts[name] ?? "";
  }
}

function refusedView() {
  main.replaceChildren(h("h1", {}, "Log in"), h("p", { class: "hint" }, state.refused), h("div", { class: "row" }, button("Log in with a token", act.login, "main")),
    h("p", { class: "hint" }, "An operator makes a token in a terminal. The role ", h("strong", {}, "read"), " sees the state of the cluster, and no keys. The role ", h("strong", {}, "operate"), " also sees hot keys and clients, and makes changes."),
    h("pre", { tabindex: "0", class: "command" }, "doyen token new NAME --role read --secret-file secret/operator"),
    h("p", { class: "hint" }, "The operators' token also shows keys with their values, and changes users. Only the operator's file yields it:"),
    h("pre", { tabindex: "0", class: "command" }, "doyen token operator --secret-file secret/operator"));
}

const due = new Set();
let frameDue = false;
export function redraw(name) {
  due.add(name);
  if (frameDue) return;
  frameDue = true;
  requestAnimationFrame(() => {
    frameDue = false;
    // Another role sees other things: what the former one saw is not kept.
    if (due.has("role")) view = null;
    const names = due.has("all") || !view ? ["all"] : [...due];
    due.clear();
    frame();
    if (state.refused) {
      view = null;
      return refusedView();
    }
    if (!view) view = VIEWS[viewName][1]();
    // What a person writes or has chosen stays: views replace only what changed.
    for (const one of names) view(one);
  });
}

for (const [name, [title]] of Object.entries(VIEWS)) nav.append(h("a", { href: `#${name}` }, title, h("span", { class: "count sub" })));
addEventListener("hashchange", () => { go(); main.focus({ preventScroll: true }); scrollTo(0, 0); });
document.getElementById("login").addEventListener("click", () => hasToken() ? setToken(null) : act.login());
const root = document.documentElement;
const saved = localStorage.getItem("doyen-theme");
if (saved) root.dataset.theme = saved;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("doyen-theme", root.dataset.theme);
  restyle();
  redraw("all");
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { restyle(); redraw("all"); });
addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select, canvas") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const shown = Object.keys(VIEWS).filter((name) => VIEWS[name][2]());
  const name = shown[Number(event.key) - 1];
  if (name) location.hash = name;
});
onChange((name) => {
  if (name === "sample") sampled();
  redraw(name);
});
go();
follow();
