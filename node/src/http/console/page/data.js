// Keyspaces, maps and databases, and what is busy among them.

import { state } from "./feed.js";
import { h, count, bytes, rate, percent, number, pill, table, meter, panel, plural } from "./views.js";
import { main } from "./app.js";

const limits = (one) => one.limits ? [one.limits.max_entries != null ? `${count(one.limits.max_entries)} entries` : "", one.limits.max_bytes != null ? bytes(one.limits.max_bytes) : "",
  one.limits.max_idle ? `idle ${one.limits.max_idle}` : "", one.limits.eviction].filter(Boolean).join(", ") : "–";

export function data() {
  const spaces = h("div", {}), maps = h("div", {}), busy = h("div", {});
  main.replaceChildren(h("h1", {}, "Data"), spaces, maps, busy);
  return (name) => {
    if (["all", "status"].includes(name)) spaces.replaceChildren(panel("Keyspaces", null, table([
      ["Keyspace", (one) => h("strong", {}, one.name)],
      ["Mode", (one) => one.mode],
      ["Partitions", (one) => number(one.partitions), "num"],
      ["Backups", (one) => one.backups, "num"],
      ["State", (one) => one.unavailable ? pill("bad", `✕ ${one.unavailable} not served`) : one.under_replicated ? pill("warn", `▲ ${one.under_replicated} lack copies`) : pill("good", "● all copies")],
      ["If all copies are lost", (one) => one.on_loss],
      ["Durability", (one) => one.durability || "none"],
      ["Eviction", (one) => one.eviction],
      ["Expiry", (one) => one.default_ttl],
      ["Rules", (one) => [...one.rules, ...one.unmet.map((rule) => `not met: ${rule.why}`)].join("; ") || "–"],
    ], state.status?.keyspaces ?? [], "There is no keyspace yet.")));
    if (["all", "maps"].includes(name)) {
      const all = state.maps ?? [], most = Math.max(1, ...all.map((one) => one.bytes));
      const uncounted = Math.max(0, ...all.map((one) => one.uncounted));
      maps.replaceChildren(panel("Maps and databases", null,
        h("p", { class: "sub" }, `Entries and data are counted once, without copies. By member, copies are included. Counted every 20 s.${uncounted ? ` ${plural(uncounted, "partition")} did not answer: what they hold is missing.` : ""}`),
        table([
          ["Name", (one) => h("span", {}, h("strong", {}, one.name), h("span", { class: "sub" }, ` in ${one.keyspace}`))],
          ["Kind", (one) => one.kind],
          ["Entries", (one) => count(one.entries), "num"],
          ["Data, without copies", (one) => h("span", {}, meter(one.bytes * 0.89, most), bytes(one.bytes)), "nowrap"],
          ["Limits", limits],
          ["In memory by member, with copies", (one) => one.members.map((part) => `${part.member} ${bytes(part.bytes)}`).join(", ") || "–", "sub"],
        ], all, "No map holds anything yet.")));
    }
    if (["all", "busiest", "hello"].includes(name)) busy.replaceChildren(state.busiest ? panel("Busiest partitions and hot keys", null, table([
      ["Partition", (one) => h("span", { class: "mono" }, `${one.keyspace}/${one.partition}`)],
      ["Primary", (one) => one.primary],
      ["Reads", (one) => rate(one.reads), "num"],
      ["Writes", (one) => rate(one.writes), "num"],
      ["Data, without copies", (one) => bytes(one.bytes), "num"],
      ["Part of its member's work", (one) => percent(one.share / 10), "num"],
      ["Hot key", (one) => one.hot_key ? h("code", {}, one.hot_key) : "–"],
    ], state.busiest.filter((one) => one.reads + one.writes > 0), "No partition has anything to do.")) : h("p", { class: "hint" }, "Your token has the role read. The role operate also shows hot keys here."));
  };
}
