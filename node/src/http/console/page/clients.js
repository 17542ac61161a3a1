// Clients of Redis at a node, and its slow log. The node is asked when a person looks.

import { state, ask } from "./feed.js";
import { h, pill, table, panel, duration, micros, day, number, plural } from "./views.js";
import { button, fill } from "./known.js";
import { main } from "./app.js";

export function clientsView() {
  const list = h("div", {}), slow = h("div", {}), word = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", on: { input: () => show() } });
  const choose = h("select", { "aria-label": "Member", on: { change: () => look() } });
  let seen = [], failed = [];
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Clients"), h("div", { class: "row" }, choose, word, button("Look again", () => look()))),
    h("p", { class: "hint" }, "The connections of Redis clients, as CLIENT LIST shows them, and the commands that took longest, as SLOWLOG GET does. Of a slow command, what is neither its name nor a key shows with the operators' token alone."), list, slow);
  async function look() {
    if (state.hello?.role !== "operate") return list.replaceChildren(h("p", { class: "hint" }, "Your token has the role read. The role operate shows clients and the slow log."));
    try {
      const { members } = await ask("GET", `/console/clients${choose.value ? `?member=${encodeURIComponent(choose.value)}` : ""}`);
      seen = members.filter((one) => !one.error);
      failed = members.filter((one) => one.error);
      show();
    } catch (error) { list.replaceChildren(h("p", {}, error.message)); }
  }
  function show() {
    const fits = (text) => text.toLowerCase().includes(word.value.toLowerCase());
    const clients = seen.flatMap((one) => one.clients.map((client) => ({ ...client, member: one.name })));
    const shown = clients.filter((one) => fits(`${one.member} ${one.address} ${one.name} ${one.user} ${one.command} ${one.library}`));
    const more = seen.reduce((all, one) => all + one.more, 0);
    list.replaceChildren(panel(`Clients (${number(clients.length + more)})`, null,
      failed.map((one) => h("p", {}, pill("warn", `▲ ${one.name}`), ` ${one.error}`)),
      table([
        ["Address", (one) => h("code", {}, one.address)],
        ["At", (one) => one.member],
        ["Name", (one) => one.name || "–"],
        ["User", (one) => one.user],
        ["Library", (one) => one.library || "–"],
        ["Connected for", (one) => duration(one.age_s), "num"],
        ["Idle for", (one) => duration(one.idle_s), "num"],
        ["Last command", (one) => h("code", {}, one.command)],
        ["Database", (one) => one.database, "num"],
      ], shown.slice(0, 500), word.value ? "No client has these words." : "No Redis client is connected."),
      more ? h("p", { class: "after sub" }, `and ${plural(more, "other client")}, which are not listed`) : null));
    const commands = seen.flatMap((one) => one.slow.map((command) => ({ ...command, member: one.name }))).filter((one) => fits(`${one.member} ${one.words.join(" ")} ${one.client}`));
    commands.sort((a, b) => b.at - a.at);
    slow.replaceChildren(panel("Slow commands", null, table([
      ["When", (one) => day(one.at), "nowrap"],
      ["Took", (one) => micros(one.took_us), "num"],
      ["Command", (one) => h("code", { class: "break" }, one.words.join(" "))],
      ["At", (one) => one.member],
      ["Client", (one) => h("code", {}, one.client)],
    ], commands.slice(0, 300), "No command took longer than slowlog-log-slower-than.")));
  }
  let asked = false;
  return (name) => {
    if (["all", "status"].includes(name)) fill(choose, [["", "all members"], ...(state.status?.members ?? []).map((one) => [one.name, one.name])]);
    if (!asked && state.status && state.hello) { asked = true; look(); }
  };
}
