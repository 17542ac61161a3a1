// Which member holds which partition, and what moves.

import { state } from "./feed.js";
import { h, css, number, plural } from "./views.js";
import { colourOf, movePanel, locate, placeOptions, fill } from "./known.js";
import { main } from "./app.js";

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

export function partitions() {
  const told = h("p", { class: "told sub", "aria-live": "polite" }, "Point at a partition, or go through them with the arrow keys.");
  const map = new PartitionMap(told), legend = h("div", { class: "legend", role: "group", "aria-label": "Members. Choose one to see what it holds." });
  const choose = h("select", { "aria-label": "Keyspace", on: { change: () => draw("map") } });
  const order = h("select", { "aria-label": "Order", on: { change: () => draw("map") } }, h("option", { value: "number" }, "by number"), h("option", { value: "member" }, "by member"));
  // The colours of many members would be noise.
  let ordered = false;
  const where = h("p", { class: "told", "aria-live": "polite" }), summary = h("p", { class: "sub" }), moving = h("div", {});
  const key = h("input", { name: "key", placeholder: "user:42", "aria-label": "Key", autocomplete: "off", spellcheck: "false", title: 'In quotes, escapes as redis-cli prints them are read: "\\xff\\n"' });
  const place = h("select", { "aria-label": "Map or database" });
  const find = h("form", { class: "row", on: { submit: async (event) => {
    event.preventDefault();
    try {
      const found = await locate(place.value, key.value);
      where.textContent = `${key.value} belongs to ${found.keyspace}/${found.partition}: ${found.in_sync[0] ?? "no member"} leads${found.in_sync.length > 1 ? `, copies on ${found.in_sync.slice(1).join(", ")}` : ""}${found.learners.length ? `; ${found.learners.join(", ")} is catching up` : ""}.`;
      if (choose.value !== found.keyspace) { choose.value = found.keyspace; draw("map"); }
      const at = map.keyspace.ids ? map.keyspace.ids.indexOf(found.partition) : found.partition;
      map.look(at >= 0 ? at : null);
    } catch (error) { where.textContent = error.message; }
  } } }, h("span", { class: "sub" }, "Where is"), key, h("span", { class: "sub" }, "of"), place, h("button", { type: "submit" }, "Find it"));
  const may = () => state.hello?.role === "operate";
  const body = h("div", { class: "stack" }, h("div", { class: "mapwrap" }, map.canvas), told,
    h("p", { class: "sub" }, "A cut corner lacks a copy. A stroke moves. Choose a member to see what it holds: a hole means that it has a copy and does not lead."), legend);
  main.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Partitions"), h("div", { class: "row" }, choose, order)),
    h("section", { class: "panel stack" }, h("div", { class: "head" }, summary, find), where, body), moving);
  function draw(name) {
    find.hidden = !may();
    body.hidden = !state.map;
    if (!state.map) {
      summary.textContent = state.hello && !may() ? "Your token has the role read. The role operate also shows which member holds which partition, and finds keys: doyen token new NAME --role operate" : "Partitions are not assigned yet.";
      moving.replaceChildren(movePanel(50));
      return;
    }
    fill(place, placeOptions());
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
}
