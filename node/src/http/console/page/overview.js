// The first view: whether all is well, and the curves of the last hour.

import { state, ask } from "./feed.js";
import { Chart } from "./charts.js";
import * as act from "./actions.js";
import { h, count, bytes, rate, byteRate, micros, percent, number, tile, ago } from "./views.js";
import { haltPanel, movePanel } from "./known.js";
import { memberPanel } from "./members.js";
import { eventPanel } from "./events.js";
import { main, redraw } from "./app.js";

const hit = (sample) => sample.hits + sample.misses > 0 ? sample.hits / (sample.hits + sample.misses) * 100 : null;
const CHARTS = [
  { title: "Throughput", lines: [{ name: "commands of Redis clients", of: (s) => s.commands }, { name: "operations on data, of all callers", of: (s) => s.operations }], show: rate },
  { title: "Latency", lines: [{ name: "p50", of: (s) => s.p50_us }, { name: "p99, slowest member", of: (s) => s.p99_us }], show: micros },
  { title: "Memory", lines: [{ name: "used", of: (s) => s.memory }, { name: "limit", of: (s) => s.memory_max }], show: bytes, base: 1024 },
  { title: "Hit rate", lines: [{ name: "reads that found their key", of: hit }], show: percent, most: 100 },
  { title: "Between nodes", lines: [{ name: "sent", of: (s) => s.peer_bytes }], show: byteRate, base: 1024 },
  { title: "Traffic of Redis clients", lines: [{ name: "received and sent", of: (s) => s.client_bytes }], show: byteRate, base: 1024 },
];
let charts = null, shownMember = "";
let hourOf = null;

function chartPanel() {
  charts ??= CHARTS.map((one) => new Chart(one));
  const choose = h("select", { "aria-label": "Whose curves", on: { change: (event) => showHourOf(event.target.value) } });
  return {
    node: h("section", { class: "stack" },
      h("div", { class: "head" }, h("h2", {}, "Curves"), h("div", { class: "row" }, choose)),
      h("div", { class: "grid" }, charts.map((chart) => chart.node))),
    draw() {
      const names = ["", ...(state.status?.members ?? []).map((member) => member.name)];
      if (choose.options.length !== names.length || names.some((name, at) => choose.options[at].value !== name)) {
        choose.replaceChildren(...names.map((name) => h("option", { value: name }, name || "the whole cluster")));
        choose.value = names.includes(shownMember) ? shownMember : "";
      }
      const hour = shownMember ? hourOf : state.hour;
      if (hour) for (const chart of charts) chart.set(hour.samples, hour.seconds);
    },
  };
}

/** Columns of one member as a list of samples. */
const rows = (columns) => columns.commands.map((_, at) =>
  Object.fromEntries(Object.entries(columns).filter(([, column]) => Array.isArray(column)).map(([key, column]) => [key, column[at]])));

async function showHourOf(name) {
  shownMember = name;
  hourOf = { seconds: 5, samples: [] };
  if (name) try {
    const columns = await ask("GET", `/console/history?member=${encodeURIComponent(name)}`);
    hourOf = { seconds: columns.seconds, samples: rows(columns), number: state.sample?.number };
  } catch (error) { act.toast(error.message); }
  redraw("hour");
}

/** The chosen member took another sample. */
export function sampled() {
  if (!shownMember || !hourOf || state.sample?.number === hourOf.number) return;
  const own = state.sample.members[shownMember];
  if (!own) return;
  hourOf.samples.push(own);
  hourOf.number = state.sample.number;
  if (hourOf.samples.length > 720) hourOf.samples.shift();
}

function alertList() {
  return (state.alerts ?? []).map((alert) => h("div", { class: `alert ${alert.severity === "critical" ? "bad" : "warn"}` },
    h("strong", {}, alert.severity === "critical" ? "✕ Critical" : "▲ Warning"), h("p", {}, alert.text, alert.since ? [" Noticed ", ago(alert.since), "."] : ""),
    h("a", { href: alert.runbook, rel: "noreferrer", target: "_blank" }, `${alert.name} runbook`)));
}

export function overview() {
  const alerts = h("div", { class: "stack", "aria-live": "polite" }), tiles = h("div", { class: "tiles" }), halt = h("div", {});
  const curves = chartPanel(), list = h("div", {}), moving = h("div", {}), recent = h("div", {});
  main.replaceChildren(h("h1", {}, "Overview"), halt, alerts, tiles, curves.node, list, moving, recent);
  return (name) => {
    // A member that was just started has taken no sample yet.
    const sum = state.sample?.cluster.memory_max ? state.sample.cluster : null, status = state.status;
    if (["all", "status"].includes(name)) halt.replaceChildren(...[haltPanel()].filter(Boolean));
    if (["all", "alerts"].includes(name)) alerts.replaceChildren(...alertList());
    if (status) {
      const partitions = status.keyspaces.reduce((all, one) => all + one.partitions, 0);
      const lacking = status.keyspaces.reduce((all, one) => all + one.under_replicated, 0);
      tiles.replaceChildren(
        tile("Members", `${status.members.filter((one) => one.state === "live").length} / ${status.members.length}`, `live; ${status.coordinator ?? "no member"} coordinates`),
        tile("Partitions", number(partitions), lacking ? `${number(lacking)} lack a copy` : "all have their copies"),
        tile("Commands", sum ? rate(sum.commands) : "–", sum ? `of Redis clients; ${rate(sum.operations)} operations on data in all` : "no sample yet"),
        tile("Latency p99", sum?.p99_us != null ? micros(sum.p99_us) : "–", sum?.p50_us != null ? `slowest member; p50 ${micros(sum.p50_us)}` : "no commands of Redis clients"),
        tile("Memory", sum ? bytes(sum.memory) : "–", sum ? `of ${bytes(sum.memory_max)}, copies included` : ""),
        tile("Connections", sum ? count(sum.clients) : "–", sum?.errors ? `of Redis and native clients; ${rate(sum.errors)} commands fail` : "of Redis and native clients; no command fails"));
    }
    if (["all", "hour", "sample", "theme"].includes(name)) curves.draw();
    if (["all", "status", "loads", "sample", "map", "moves"].includes(name)) list.replaceChildren(memberPanel(true));
    if (["all", "moves", "status"].includes(name)) moving.replaceChildren(movePanel(5));
    if (["all", "happened"].includes(name)) recent.replaceChildren(eventPanel(6));
  };
}
