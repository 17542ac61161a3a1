// What all views use: elements, figures for people, colours of members, tables.

/** An element. Texts are never read as HTML. */
export function h(name, options = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (key === "width%") node.style.width = `${value}%`;
    else if (key === "colour") node.style.background = value;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

let styles = null;
/** A colour of the style sheet. */
export const css = (name) => (styles ??= getComputedStyle(document.documentElement)).getPropertyValue(name).trim();
export const restyle = () => { styles = null; };

const scaled = (value, base, units) => {
  let unit = 0;
  while (Math.abs(value) >= base * 0.9995 && unit < units.length - 1) { value /= base; unit += 1; }
  const digits = unit && value < 10 ? 2 : unit && value < 100 ? 1 : 0;
  return `${value.toFixed(digits)}${units[unit]}`;
};
export const count = (value) => scaled(value, 1000, ["", " k", " M", " G", " T"]);
/** A number that people may want to compare digit by digit. */
export const number = (value) => value.toLocaleString("en");
export const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
export const rate = (value) => `${count(value)}/s`;
export const byteRate = (value) => `${bytes(value)}/s`;
export const micros = (value) => value < 1000 ? `${Math.round(value)} µs` : value < 1e6 ? `${(value / 1000).toFixed(value < 1e4 ? 2 : 1)} ms` : `${(value / 1e6).toFixed(2)} s`;
export const percent = (value) => `${value.toFixed(value < 99.5 && value > 0.05 ? 1 : 0)} %`;
export const plural = (many, one, all = `${one}s`) => `${number(many)} ${many === 1 ? one : all}`;
export const duration = (seconds) => seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;

/** The colour of the member at this place: neighbours differ in hue and in lightness. */
export function colour(place) {
  const dark = css("--bg").startsWith("#0");
  const hue = (place * 137.5 + 222) % 360, level = [0, 10, -9][place % 3];
  return `hsl(${hue.toFixed(0)} ${dark ? 58 : 62}% ${(dark ? 62 : 48) + level}%)`;
}

export const pill = (kind, text) => h("span", { class: `pill ${kind}` }, text);

const KINDS = {
  live: ["good", "● live"], draining: ["warn", "◐ draining"], drained: ["note", "○ drained"],
  leaving: ["warn", "◑ leaving"], silent: ["bad", "✕ silent"], unanswered: ["bad", "? unanswered"],
};
export const memberState = (name) => pill(...(KINDS[name] ?? ["", name]));

/** A table: columns are [title, cell of a row, is a number]. */
export function table(columns, rows, empty = "Nothing here.") {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title));
  // Narrow screens show each row as a card, with the titles beside the values.
  const body = rows.map((row) => h("tr", {}, columns.map(([title, cell, kind]) => h("td", { class: kind, "data-title": title }, h("span", {}, cell(row))))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": columns.map(([title]) => title).join(", ") },
    h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)));
}

export function meter(used, most) {
  const part = most > 0 ? Math.min(100, used / most * 100) : 0;
  return h("span", { class: `meter${part >= 90 ? " high" : ""}`, "aria-hidden": "true" }, h("i", { "width%": part.toFixed(1) }));
}

export function panel(title, tools, ...content) {
  return h("section", { class: "panel" }, h("div", { class: "head" }, h("h2", {}, title), tools ? h("div", { class: "row" }, tools) : null), ...content);
}

export const tile = (title, value, more) => h("div", { class: "tile" }, h("div", { class: "name" }, title), h("div", { class: "value" }, value), h("div", { class: "more" }, more ?? ""));

/** A moment: the time of day, with the date if that is not today. */
export function moment(text) {
  const at = new Date(text), time = at.toLocaleTimeString([], { hour12: false });
  if (at.toDateString() === new Date().toDateString()) return time;
  return `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}
/** A day and a time, of Unix seconds. */
export const day = (seconds) => new Date(seconds * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

/** How long ago a moment is, in Unix seconds. The text grows by itself. */
export function ago(seconds) {
  const node = h("time", { datetime: new Date(seconds * 1000).toISOString(), title: day(seconds), class: "ago", "data-since": seconds });
  node.textContent = since(seconds);
  return node;
}
const since = (seconds) => `${duration(Math.max(0, Date.now() / 1000 - seconds))} ago`;
setInterval(() => { for (const node of document.querySelectorAll(".ago")) node.textContent = since(Number(node.dataset.since)); }, 1000);
