// The page: its views, and what redraws them.

import { state, follow, onChange, ask, hasToken, setToken } from "./feed.js";
import { Chart } from "./charts.js";
import * as act from "./actions.js";
import {
  h, css, restyle, colour, count, bytes, rate, byteRate, micros, percent, plural, duration, pill,
  memberState, number, table, meter, panel, tile, clock,
} from "./views.js";

const main = document.getElementById("main");
const nav = document.getElementById("nav");

// ---- what is known, put together

const members = () => {
  const loads = new Map(state.loads.map((load) => [load.name, load]));
  const samples = state.sample?.members ?? {};
  const held = holdings();
  return (state.status?.members ?? []).map((member) => ({
    ...member, load: loads.get(member.name), sample: samples[member.name], held: held.get(member.name),
    coordinates: member.name === state.status.coordinator,
  }));
};

/** The colour of a member. It goes by age, so it stays when another member goes. */
const colourOf = (name) => colour(((state.status?.members ?? []).find((member) => member.name === name)?.age ?? 1) - 1);

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

const missed = () => (state.status?.gone ?? []).filter((one) => one.why !== "left");
const button = (text, run, kind) => h("button", { type: "button", class: kind, on: { click: run } }, text);
const mayRun = (text, run, kind) => act.may() ? button(text, run, kind) : null;

// ---- overview

const hit = (sample) => sample.hits + sample.misses > 0 ? sample.hits / (sample.hits + sample.misses) * 100 : null;
const CHARTS = [
  { title: "Throughput", lines: [{ name: "commands", of: (s) => s.commands }, { name: "operations of partitions", of: (s) => s.operations }], show: rate },
  { title: "Latency", lines: [{ name: "p50", of: (s) => s.p50_us }, { name: "p99, slowest member", of: (s) => s.p99_us }], show: micros },
  { title: "Memory", lines: [{ name: "used", of: (s) => s.memory }, { name: "limit", of: (s) => s.memory_max }], show: bytes, base: 1024 },
  { title: "Hit rate", lines: [{ name: "reads that found their key", of: hit }], show: percent, most: 100 },
  { title: "Between nodes", lines: [{ name: "sent", of: (s) => s.peer_bytes }], show: byteRate, base: 1024 },
  { title: "Clients", lines: [{ name: "traffic", of: (s) => s.client_bytes }], show: byteRate, base: 1024 },
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

function alertList() {
  return (state.alerts ?? []).map((alert) => h("div", { class: `alert ${alert.severity === "critical" ? "bad" : "warn"}` },
    h("strong", {}, alert.severity === "critical" ? "✕ Critical" : "▲ Warning"), h("p", {}, alert.text),
    h("a", { href: alert.runbook, rel: "noreferrer", target: "_blank" }, `${alert.name} runbook`)));
}

const views = {};

views.overview = () => {
  const alerts = h("div", { class: "stack", "aria-live": "polite" }), tiles = h("div", { class: "tiles" });
  const curves = chartPanel(), list = h("div", {}), moving = h("div", {}), recent = h("div", {});
  main.replaceChildren(h("h1", {}, "Overview"), alerts, tiles, curves.node, list, moving, recent);
  return (name) => {
    const sum = state.sample?.cluster, status = state.status;
    if (name === "all" || ["alerts", "status"].includes(name)) alerts.replaceChildren(...alertList());
    if (status) {
      const partitions = status.keyspaces.reduce((all, one) => all + one.partitions, 0);
      const lacking = status.keyspaces.reduce((all, one) => all + one.under_replicated, 0);
      tiles.replaceChildren(
        tile("Members", `${status.members.filter((one) => one.state === "live").length} / ${status.members.length}`, `live; ${status.coordinator ?? "nobody"} coordinates`),
        tile("Partitions", number(partitions), lacking ? `${number(lacking)} lack a copy` : "all have their copies"),
        tile("Throughput", sum ? rate(sum.commands) : "–", sum ? `${rate(sum.operations)} operations` : "no sample yet"),
        tile("Latency p99", sum?.p99_us != null ? micros(sum.p99_us) : "–", sum?.p50_us != null ? `p50 ${micros(sum.p50_us)}` : "no commands"),
        tile("Memory", sum ? bytes(sum.memory) : "–", sum ? `of ${bytes(sum.memory_max)}` : ""),
        tile("Clients", sum ? count(sum.clients) : "–", sum?.errors ? `${rate(sum.errors)} errors` : "no errors"));
    }
    if (["all", "hour", "sample", "theme"].includes(name)) curves.draw();
    if (["all", "status", "loads", "sample", "map"].includes(name)) list.replaceChildren(memberPanel(true));
    if (["all", "moves", "status"].includes(name)) moving.replaceChildren(movePanel(5));
    if (["all", "happened"].includes(name)) recent.replaceChildren(eventPanel(6));
  };
};

// ---- members

function memberPanel(brief) {
  const all = members();
  const columns = [
    ["Member", (m) => h("span", {}, h("i", { class: "swatch", colour: colourOf(m.name) }), h("strong", {}, m.name), m.coordinates ? [" ", pill("note", "★ coordinator")] : "", m.role === "witness" ? [" ", pill("", "witness")] : ""), "nowrap"],
    ["State", (m) => memberState(m.state)],
    ["Age", (m) => number(m.age), "num wide"],
    ["Memory", (m) => m.load ? h("span", {}, meter(m.load.memory, m.load.memory_max), `${bytes(m.load.memory)}`, brief ? h("span", { class: "sub wide" }, ` of ${bytes(m.load.memory_max)}`) : "") : "–", "nowrap"],
    ["Leads / holds", (m) => m.held ? `${number(m.held.leads)} / ${number(m.held.holds)}` : "–", "num"],
    ["Commands", (m) => m.sample ? rate(m.sample.commands) : "–", "num"],
    ["p99", (m) => m.sample?.p99_us != null ? micros(m.sample.p99_us) : "–", "num"],
    ["Cores", (m) => m.load ? (m.load.cpu / 1000).toFixed(2) : "–", "num"],
  ];
  if (!brief && act.may()) columns.splice(2, 0, ["Actions", (m) => h("span", { class: "row" }, memberActions(m))]);
  if (!brief) columns.push(
    ["Zone", (m) => [m.zone, m.rack, m.host].filter(Boolean).join(" / ") || "–"],
    ["Address", (m) => h("span", { class: "sub" }, h("span", { class: "line" }, h("code", {}, host(m.address))), h("span", { class: "line" }, ports(m))), "addr"]);
  return panel("Members, oldest first", null, table(columns, all, "No member is known yet."));
}

const host = (address) => address.slice(0, address.lastIndexOf(":"));
/** The ports of a member: `RESP 7379, HTTP 7480`, with the host where it is another one. */
const ports = (m) => [["control", m.address], ["RESP", m.resp], ["HTTP", m.http]].filter(([, address]) => address)
  .map(([port, address]) => `${port} ${host(address) === host(m.address) ? address.slice(address.lastIndexOf(":") + 1) : address}`).join(", ");

function memberActions(m) {
  if (!act.may()) return [];
  if (m.state === "silent") return [button("Give up…", () => act.removeLost(m.name))];
  if (m.state === "draining" || m.state === "drained") return [button("Cancel drain", () => act.undrain(m.name))];
  return m.role === "data" ? [button("Drain…", () => act.drain(m.name))] : [];
}

views.members = () => {
  const list = h("div", {}), gone = h("div", {});
  main.replaceChildren(h("h1", {}, "Members"), list, gone);
  return (name) => {
    if (["all", "status", "loads", "sample", "map", "hello"].includes(name)) {
      list.replaceChildren(memberPanel(false));
      const left = state.status?.gone ?? [];
      gone.replaceChildren(left.length ? panel("Gone", null, table([
        ["Member", (one) => h("strong", {}, one.name)],
        ["Why", (one) => one.why === "left" ? pill("", "left in order") : pill("bad", "does not answer")],
        ["For", (one) => `${one.longer ? "more than " : ""}${duration(one.seconds)}`, "num"],
        ["Actions", (one) => mayRun("Forget…", () => act.forget(one.name))],
      ], left)) : "");
    }
  };
};

// ---- partitions

class PartitionMap {
  constructor(told) {
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-label": "Map of partitions. Arrow keys move from partition to partition." });
    this.told = told; this.keyspace = null; this.at = null; this.only = null; this.moving = new Set(); this.order = []; this.place = [];
    this.canvas.addEventListener("pointermove", (event) => this.look(this.under(event)));
    this.canvas.addEventListener("pointerleave", () => this.look(null));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, Home: -1e9, End: 1e9 }[event.key];
      if (!step || !this.keyspace) return;
      event.preventDefault();
      const last = this.order.length - 1, from = this.at === null ? 0 : this.place[this.at];
      this.look(this.order[Math.max(0, Math.min(last, from + step))]);
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.cell), row = Math.floor((event.clientY - box.top) / this.cell);
    return column < this.columns ? this.order[row * this.columns + column] ?? null : null;
  }

  look(at) {
    if (at === this.at) return;
    this.at = at;
    this.draw();
    this.told.textContent = at === null ? "Point at a partition, or go through them with the arrow keys." : this.words(at);
  }

  words(at) {
    const names = state.map.members, replicas = this.keyspace.partitions[at];
    const id = this.keyspace.ids?.[at] ?? at, name = (place) => names[place] ?? "?";
    const copies = replicas.slice(1).filter((place) => place >= 0).map(name), learners = replicas.filter((place) => place < 0).map((place) => name(-1 - place));
    const inSync = replicas.filter((place) => place >= 0).length, lacks = this.keyspace.copies - inSync;
    const move = (state.moves?.moves ?? []).find((one) => one.id === `${this.keyspace.name}/${id}`);
    return [`${this.keyspace.name}/${id}: ${name(replicas[0])} leads`, copies.length ? `copies on ${copies.join(", ")}` : "no further copy",
      learners.length ? `${learners.join(", ")} is catching up` : "", lacks > 0 ? `lacks ${plural(lacks, "copy", "copies")}` : "",
      move ? `${move.stage} from ${move.from} to ${move.to}: ${move.reason}` : ""].filter(Boolean).join("; ");
  }

  set(keyspace, moving, byMember) {
    this.keyspace = keyspace; this.moving = moving;
    this.order = keyspace.partitions.map((_, at) => at);
    if (byMember) this.order.sort((a, b) => keyspace.partitions[a][0] - keyspace.partitions[b][0] || a - b);
    this.place = [];
    this.order.forEach((at, place) => { this.place[at] = place; });
    this.draw();
  }

  draw() {
    const { canvas, keyspace } = this, width = canvas.clientWidth;
    if (!width || !keyspace) return;
    const total = keyspace.partitions.length;
    const wanted = Math.sqrt(width * Math.min(width, 440) / Math.max(total, 1));
    this.cell = Math.max(3, Math.min(26, Math.floor(wanted)));
    this.columns = Math.max(1, Math.floor(width / this.cell));
    const height = Math.max(1, Math.ceil(total / this.columns)) * this.cell, ratio = devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d"), cell = this.cell, gap = cell > 6 ? 1 : cell > 4 ? 0.5 : 0;
    pen.scale(ratio, ratio);
    const paint = state.map.members.map(colourOf), lack = css("--bad"), ground = css("--panel"), line = css("--text");
    this.order.forEach((at, place) => {
      const replicas = keyspace.partitions[at];
      const x = place % this.columns * cell, y = Math.floor(place / this.columns) * cell, size = cell - gap;
      const primary = replicas[0], isOnly = this.only === null || replicas.some((one) => (one < 0 ? -1 - one : one) === this.only);
      pen.globalAlpha = isOnly ? 1 : 0.14;
      pen.fillStyle = paint[primary] ?? lack;
      pen.fillRect(x, y, size, size);
      const inSync = replicas.reduce((all, one) => all + (one >= 0 ? 1 : 0), 0);
      if (this.only !== null && isOnly && primary !== this.only) { pen.fillStyle = ground; pen.fillRect(x + size * 0.3, y + size * 0.3, size * 0.4, size * 0.4); }
      if (inSync < keyspace.copies) { pen.fillStyle = ground; pen.beginPath(); pen.moveTo(x + size, y); pen.lineTo(x + size, y + size * 0.62); pen.lineTo(x + size * 0.38, y); pen.fill(); }
      if (this.moving.has(keyspace.ids?.[at] ?? at) && cell > 4) { pen.strokeStyle = line; pen.lineWidth = 1.25; pen.beginPath(); pen.moveTo(x + 1, y + size - 1); pen.lineTo(x + size - 1, y + 1); pen.stroke(); }
    });
    pen.globalAlpha = 1;
    if (this.at !== null) {
      const place = this.place[this.at], x = place % this.columns * cell, y = Math.floor(place / this.columns) * cell;
      pen.strokeStyle = line; pen.lineWidth = 2; pen.strokeRect(x, y, cell - gap, cell - gap);
    }
  }
}

views.partitions = () => {
  const told = h("p", { class: "told sub", "aria-live": "polite" }, "Point at a partition, or go through them with the arrow keys.");
  const map = new PartitionMap(told), legend = h("div", { class: "legend", role: "group", "aria-label": "Members. Choose one to see what it holds." });
  const choose = h("select", { "aria-label": "Keyspace", on: { change: () => draw("map") } });
  const order = h("select", { "aria-label": "Order", on: { change: () => draw("map") } }, h("option", { value: "number" }, "by number"), h("option", { value: "member" }, "by member"));
  // The colours of many members would be noise.
  let ordered = false;
  const where = h("p", { class: "told", "aria-live": "polite" }), summary = h("p", { class: "sub" }), moving = h("div", {});
  const key = h("input", { name: "key", placeholder: "user:42", "aria-label": "Key", autocomplete: "off", spellcheck: "false" });
  const find = h("form", { class: "row", on: { submit: async (event) => {
    event.preventDefault();
    try {
      const found = await ask("GET", `/console/locate?key=${encodeURIComponent(key.value)}&keyspace=${encodeURIComponent(choose.value)}`);
      where.textContent = `${key.value} belongs to ${found.keyspace}/${found.partition}: ${found.in_sync[0]} leads${found.in_sync.length > 1 ? `, copies on ${found.in_sync.slice(1).join(", ")}` : ""}${found.learners.length ? `; ${found.learners.join(", ")} is catching up` : ""}.`;
      const at = map.keyspace.ids ? map.keyspace.ids.indexOf(found.partition) : found.partition;
      map.look(at >= 0 ? at : null);
    } catch (error) { where.textContent = error.message; }
  } } }, h("span", { class: "sub" }, "Where is"), key, h("button", { type: "submit" }, "Find it"));
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Partitions"), h("div", { class: "row" }, choose, order)),
    h("section", { class: "panel stack" }, h("div", { class: "head" }, summary, find), where, h("div", { class: "mapwrap" }, map.canvas), told,
      h("p", { class: "sub" }, "A cut corner lacks a copy. A stroke moves. Choose a member to see what it holds: a hole means that it has a copy and does not lead."), legend), moving);
  function draw(name) {
    if (!state.map) {
      summary.textContent = "A token of the role operate shows which member holds which partition.";
      return;
    }
    const keyspaces = state.map.keyspaces;
    if (choose.options.length !== keyspaces.length || keyspaces.some((one, at) => choose.options[at].value !== one.name)) {
      const before = choose.value;
      choose.replaceChildren(...keyspaces.map((one) => h("option", { value: one.name }, `${one.name} (${number(one.partitions.length)})`)));
      if (keyspaces.some((one) => one.name === before)) choose.value = before;
    }
    const keyspace = keyspaces.find((one) => one.name === choose.value) ?? keyspaces[0];
    if (!keyspace) return;
    if (["all", "map", "moves", "status", "theme"].includes(name)) {
      const moves = new Set((state.moves?.moves ?? []).filter((one) => one.id.startsWith(`${keyspace.name}/`)).map((one) => Number(one.id.slice(keyspace.name.length + 1))));
      if (!ordered) order.value = state.map.members.length > 12 ? "member" : "number";
      ordered = true;
      map.set(keyspace, moves, order.value === "member");
      const lacking = keyspace.partitions.filter((replicas) => replicas.filter((place) => place >= 0).length < keyspace.copies).length;
      const known = state.status?.keyspaces.find((one) => one.name === keyspace.name);
      const lacks = Math.max(lacking, known?.under_replicated ?? 0), unserved = known?.unavailable ?? 0;
      summary.textContent = [`${plural(keyspace.partitions.length, "partition")} with ${plural(keyspace.copies, "copy", "copies")} each`,
        unserved ? `${number(unserved)} not served` : "", lacks ? `${number(lacks)} lack a copy` : "all have their copies",
        moves.size ? `${plural(moves.size, "moves", "move")}` : "none moves"].filter(Boolean).join("; ");
    }
    if (["all", "map", "theme"].includes(name)) {
      const leads = state.map.members.map(() => 0);
      for (const replicas of keyspace.partitions) if (replicas[0] >= 0) leads[replicas[0]] += 1;
      legend.replaceChildren(...state.map.members.map((member, place) => h("button", {
        type: "button", "aria-pressed": String(map.only === place),
        on: { click: () => { map.only = map.only === place ? null : place; draw("map"); } },
      }, h("i", { class: "swatch", colour: colourOf(member) }), `${member} ${number(leads[place])}`)));
    }
    if (["all", "moves"].includes(name)) moving.replaceChildren(movePanel(50));
  }
  return draw;
};

// ---- moves

function movePanel(most) {
  const all = state.moves?.moves ?? [], balance = state.moves?.balance, draining = state.moves?.draining ?? [];
  const tools = act.may() && balance ? [
    button("Preview a plan…", act.previewPlan),
    balance.state.startsWith("paused") ? button("Resume…", () => act.pauseBalance(false)) : button("Pause…", () => act.pauseBalance(true)),
  ] : null;
  return panel(all.length ? `Moves (${all.length})` : "Moves", tools,
    h("p", { class: "sub" }, balance ? `Balancing is ${balance.state}; rate ${balance.rate}; window ${balance.window}.${state.moves.halted ? ` ${state.moves.halted}` : ""}` : ""),
    draining.length ? h("div", { class: "stack" }, draining.map((one) => h("p", {}, h("strong", {}, one.member), ` is being drained: it still leads ${number(one.leads)} and holds ${number(one.holds)} partitions.${one.waits_for ? ` It waits: ${one.waits_for}` : ""}`))) : null,
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

// ---- keyspaces and maps

views.data = () => {
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
      ["Eviction", (one) => one.eviction],
      ["Expiry", (one) => one.default_ttl],
      ["Rules", (one) => [...one.rules, ...one.unmet.map((rule) => `not met: ${rule.why}`)].join("; ") || "–"],
    ], state.status?.keyspaces ?? [], "There is no keyspace yet.")));
    if (["all", "maps"].includes(name)) {
      const all = state.maps ?? [], most = Math.max(1, ...all.map((one) => one.bytes));
      maps.replaceChildren(panel("Maps and databases", null, table([
        ["Name", (one) => h("span", {}, h("strong", {}, one.name), h("span", { class: "sub" }, ` in ${one.keyspace}`))],
        ["Kind", (one) => one.kind],
        ["Entries", (one) => count(one.entries), "num"],
        ["Size without copies", (one) => h("span", {}, meter(one.bytes * 0.89, most), bytes(one.bytes)), "nowrap"],
        ["Limits", (one) => one.limits ? [one.limits.max_entries != null ? `${count(one.limits.max_entries)} entries` : "", one.limits.max_bytes != null ? bytes(one.limits.max_bytes) : "", one.limits.max_idle ? `idle ${one.limits.max_idle}` : "", one.limits.eviction].filter(Boolean).join(", ") : "–"],
        ["By member", (one) => one.members.map((part) => `${part.member} ${bytes(part.bytes)}`).join(", "), "sub"],
      ], all, "No map holds anything yet.")));
    }
    if (["all", "busiest"].includes(name)) busy.replaceChildren(state.busiest ? panel("Busiest partitions and hot keys", null, table([
      ["Partition", (one) => h("span", { class: "mono" }, `${one.keyspace}/${one.partition}`)],
      ["Primary", (one) => one.primary],
      ["Reads", (one) => rate(one.reads), "num"],
      ["Writes", (one) => rate(one.writes), "num"],
      ["Bytes", (one) => bytes(one.bytes), "num"],
      ["Part of its member's work", (one) => percent(one.share / 10), "num"],
      ["Hot key", (one) => one.hot_key ? h("code", {}, one.hot_key) : "–"],
    ], state.busiest.filter((one) => one.reads + one.writes > 0), "No partition has anything to do.")) : h("p", { class: "hint" }, "A token of the role operate shows hot keys here."));
  };
};

// ---- events

const SEVERE = { info: "", warning: "▲ ", error: "✕ " };
function eventPanel(most, word = "") {
  const fits = state.events.filter((one) => !word || `${one.kind} ${one.text}`.toLowerCase().includes(word.toLowerCase()));
  const list = fits.slice(0, most).map((one) => h("li", {}, h("time", { datetime: one.at, title: one.at }, clock(one.at)),
    h("span", {}, one.severity !== "info" ? pill(one.severity === "error" ? "bad" : "warn", `${SEVERE[one.severity]}${one.severity}`) : "", " ", one.text)));
  return panel("Events", null, list.length ? h("ol", { class: "events" }, list) : h("p", { class: "empty" }, "Nothing happened yet."));
}
views.events = () => {
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter", on: { input: () => draw("happened") } });
  const list = h("div", {});
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Events"), h("div", { class: "row" }, filter)), list);
  const draw = (name) => { if (["all", "happened"].includes(name)) list.replaceChildren(eventPanel(300, filter.value)); };
  return draw;
};

// ---- access

views.access = () => {
  const tokens = h("div", {}), users = h("div", {}), trust = h("div", {});
  main.replaceChildren(h("h1", {}, "Access"), tokens, users, trust);
  const again = async () => {
    if (!act.may()) return tokens.replaceChildren(h("p", { class: "hint" }, "A token of the role operate shows tokens, users and certificates."));
    const get = (path) => ask("GET", path).catch((error) => error);
    const [all, of, identity] = await Promise.all([get("/tokens"), get("/users"), get("/trust")]);
    tokens.replaceChildren(panel("Tokens of HTTP", [button("New token…", () => act.makeToken(again))], all instanceof Error ? h("p", {}, all.message) : table([
      ["Name", (one) => h("strong", {}, one.name)], ["Role", (one) => pill(one.role === "operate" ? "warn" : "", one.role)],
      ["Made", (one) => new Date(one.made * 1000).toLocaleString()], ["Fingerprint", (one) => h("code", {}, one.fingerprint)],
      ["Actions", (one) => button("Revoke…", () => act.revokeToken(one.name, again))],
    ], all, "There are no named tokens.")));
    const mayChange = state.hello?.may_change_users;
    users.replaceChildren(panel("Users of Redis clients", mayChange ? [button("New user…", () => act.setUser(again))] : null, of instanceof Error ? h("p", {}, of.message) : table([
      ["Name", (one) => h("strong", {}, one.name)], ["Passwords", (one) => one.passwords, "num"], ["Rules", (one) => h("code", {}, [one.rules].flat().join(" "))],
      ["Actions", (one) => mayChange ? h("span", { class: "row" }, button("Change…", () => act.setUser(again, one.name)), button("Remove…", () => act.removeUser(one.name, again))) : ""],
    ], of, "There are none in the table: clients are the user default."), mayChange ? null : h("p", { class: "sub" }, "An operator's secret changes users: with `doyen acl`.")));
    trust.replaceChildren(identity instanceof Error ? "" : panel(`Trust of ${identity.name}`, null, h("p", {}, identity.secrets.length ? `Secrets: ${identity.secrets.join(", ")}. The first one signs.` : "This node has no secret, so it answers this machine alone."),
      identity.certificate_ends ? h("p", { class: "sub" }, `Its certificate ends on ${new Date(identity.certificate_ends * 1000).toLocaleString()}.`) : null,
      identity.secrets.length > 1 ? h("p", { class: "sub" }, "A rotation is under way: `doyen secret rotate` shows its step, and goes on with it.") : null));
  };
  again();
  return (name) => { if (name === "hello") again(); };
};

// ---- the frame

const TITLES = { overview: "Overview", members: "Members", partitions: "Partitions", data: "Data", events: "Events", access: "Access" };
let view = null, viewName = null;

function go() {
  const name = Object.hasOwn(TITLES, location.hash.slice(1)) ? location.hash.slice(1) : "overview";
  if (name === viewName) return;
  viewName = name;
  document.title = `${TITLES[name]} – Doyen`;
  for (const link of nav.children) link.toggleAttribute("aria-current", link.hash === `#${name}`);
  for (const link of nav.children) if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
  view = null;
  redraw("all");
}

function frame() {
  const verdict = document.getElementById("verdict"), status = state.status;
  const words = state.refused ? pill("warn", "▲ Log in") : state.waiting ? pill("warn", `▲ ${state.waiting}`)
    : !state.connected ? pill("warn", "▲ This node does not answer: what you see is old") : !status ? pill("", "Connecting…")
    : status.safe ? pill("good", "● Safe") : pill(state.alerts?.some((one) => one.severity === "critical") ? "bad" : "warn", `▲ Not safe: ${status.unsafe_for ?? "some data lacks a copy"}`);
  if (verdict.textContent !== words.textContent) { words.title = words.textContent; verdict.replaceChildren(words); }
  document.getElementById("link").textContent = state.hello && !state.refused ? `${state.hello.node} · ${state.hello.version} · ${state.hello.role}` : "";
  document.getElementById("login").textContent = hasToken() ? "Log out" : "Log in";
  const counts = { members: status?.members.length, partitions: state.moves?.moves.length ? `${state.moves.moves.length} ⇄` : null };
  for (const link of nav.children) link.lastChild.textContent = counts[link.hash.slice(1)] ?? "";
}

const due = new Set();
let frameDue = false;
function redraw(name) {
  due.add(name);
  if (frameDue) return;
  frameDue = true;
  requestAnimationFrame(() => {
    frameDue = false;
    const names = due.has("all") || !view ? ["all"] : [...due];
    due.clear();
    frame();
    if (state.refused) {
      view = null;
      main.replaceChildren(h("h1", {}, "Log in"), h("p", { class: "hint" }, state.refused), h("div", { class: "row" }, button("Log in with a token", act.login, "main")),
        h("p", { class: "hint" }, h("code", {}, "doyen token new NAME --role read"), " makes a token that sees the state of the cluster. The role operate also changes it."));
      return;
    }
    if (!view) view = views[viewName]();
    // What a person writes or has chosen stays: views replace only what changed.
    for (const one of names) view(one);
  });
}

for (const [name, title] of Object.entries(TITLES)) nav.append(h("a", { href: `#${name}` }, title, h("span", { class: "count sub" })));
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
  if (event.target.matches("input, textarea, select, canvas") || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = Object.keys(TITLES)[Number(event.key) - 1];
  if (name) location.hash = name;
});
onChange((name) => {
  if (name === "sample" && shownMember && hourOf && state.sample?.number !== hourOf.number) {
    const own = state.sample.members[shownMember];
    if (own) { hourOf.samples.push(own); hourOf.number = state.sample.number; if (hourOf.samples.length > 720) hourOf.samples.shift(); }
  }
  redraw(name);
});
go();
follow();
