// Curves on a canvas: an hour of samples, with a scale, and the values under the pointer.

import { h, css } from "./views.js";

/** Minutes that a chart may show: a third of each is a round figure. */
const SPANS = [6, 15, 30, 60];

/** The end of a scale for values up to `most`, whose half is a round figure as well. */
function nice(most, base) {
  const power = base ** Math.floor(Math.log(most) / Math.log(base));
  const steps = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 4, 6, 10];
  return steps.map((step) => step * power).find((limit) => limit >= most * 0.9999);
}

/**
 * A chart of up to two curves. `lines`: [{name, of: (sample) => number|null}], of which the second
 * is dashed, so that they differ without colour. `show` formats a value.
 */
export class Chart {
  constructor({ title, lines, show, most, base = 10 }) {
    Object.assign(this, { lines, show, most, base, samples: [], seconds: 5, at: null, shown: 60 });
    this.canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": title });
    this.now = h("span", { class: "now" });
    this.keys = h("div", { class: "keys" });
    this.node = h("section", { class: "panel chart" },
      h("div", { class: "head" }, h("h2", {}, title), this.now), this.canvas, this.keys);
    this.title = title;
    this.canvas.addEventListener("pointermove", (event) => {
      const box = this.canvas.getBoundingClientRect();
      this.look(Math.round((1 - (event.clientX - box.left) / box.width) * (this.shown - 1)));
    });
    this.canvas.addEventListener("pointerleave", () => this.look(null));
    this.canvas.addEventListener("blur", () => this.look(null));
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 60, PageDown: -60 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.look(Math.max(0, Math.min(this.samples.length - 1, (this.at ?? 0) + step)));
    });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  /** Looks at the sample of so many intervals ago. */
  look(ago) {
    this.at = ago !== null && ago < this.samples.length ? ago : null;
    this.draw();
  }

  set(samples, seconds) {
    this.samples = samples;
    this.seconds = seconds;
    this.draw();
  }

  draw() {
    const { canvas, samples } = this;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const columns = this.lines.map((line) => samples.map(line.of));
    let top = 0;
    for (const column of columns) for (const value of column) if (value > top) top = value;
    // A young cluster would be a stroke at the edge of an hour.
    const minutes = SPANS.find((span) => samples.length * this.seconds <= span * 60) ?? SPANS.at(-1);
    this.shown = Math.round(minutes * 60 / this.seconds);
    const empty = !(top > 0);
    top = this.most ?? (empty ? 1 : nice(top, this.base));
    const foot = 18, head = 6, x = (ago) => width - 2 - ago * (width - 4) / (this.shown - 1);
    const y = (value) => head + (height - head - foot) * (1 - Math.min(value / top, 1));
    pen.font = `11px ${css("--font")}`;
    pen.fillStyle = css("--soft");
    pen.strokeStyle = css("--grid");
    pen.lineWidth = 1;
    for (const part of [0, 0.5, 1]) {
      const at = Math.round(y(top * part)) + 0.5;
      pen.beginPath(); pen.moveTo(0, at); pen.lineTo(width, at); pen.stroke();
      if (part && !empty) pen.fillText(this.show(top * part), 2, at + 12);
    }
    for (const part of [1, 2 / 3, 1 / 3, 0]) {
      const text = part ? `${Math.round(minutes * part)} min` : "now";
      const wide = pen.measureText(text).width;
      const at = x(part * (this.shown - 1));
      pen.fillText(text, Math.max(0, Math.min(at - wide / 2, width - wide)), height - 4);
    }
    columns.forEach((column, which) => {
      pen.strokeStyle = css(which ? "--c2" : "--c1");
      pen.lineWidth = 1.75;
      pen.lineJoin = "round";
      pen.setLineDash(which ? [4, 3] : []);
      pen.beginPath();
      let pending = true, single = null;
      column.forEach((value, place) => {
        if (value === null || value === undefined) { pending = true; return; }
        const left = x(column.length - 1 - place), up = y(value);
        if (pending) { pen.moveTo(left, up); single = [left, up]; } else { pen.lineTo(left, up); single = null; }
        pending = false;
      });
      pen.stroke();
      pen.setLineDash([]);
      if (single) { pen.fillStyle = pen.strokeStyle; pen.fillRect(single[0] - 2, single[1] - 2, 4, 4); }
    });
    const ago = this.at ?? 0, place = samples.length - 1 - ago;
    if (this.at !== null) {
      pen.strokeStyle = css("--line-strong");
      pen.beginPath(); pen.moveTo(x(ago), head); pen.lineTo(x(ago), height - foot); pen.stroke();
    }
    const value = (column) => place >= 0 && column[place] != null ? this.show(column[place]) : "–";
    const when = this.at === null ? "" : `${Math.round(ago * this.seconds / 60 * 10) / 10} min ago`;
    this.now.textContent = when || value(columns[0]);
    this.keys.replaceChildren(...this.lines.map((line, which) => h("span", {},
      h("i", { class: `swatch ${which ? "dash" : "line"}` }), `${line.name} `, h("b", {}, value(columns[which])))));
    canvas.setAttribute("aria-label", `${this.title}${when ? `, ${when}` : ", now"}: ${
      this.lines.map((line, which) => `${line.name} ${value(columns[which])}`).join(", ")}`);
  }
}
