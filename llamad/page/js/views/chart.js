// The small charts: a number, and its last two minutes as a line.

import { h, uniqueId } from "../base/dom.js";
import { linePath } from "../data/series.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 48;

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export class Chart {
  /** `format` formats a value; `scale` is the top of the chart, or null for the highest value. */
  constructor(title, series, format, scale = null) {
    this.title = title;
    this.series = series;
    this.format = format;
    this.scale = scale;
    const id = uniqueId("chart");
    this.number = h("p.chart-number", {}, "–");
    this.line = svg("path", { class: "chart-line" });
    this.area = svg("path", { class: "chart-area" });
    this.picture = svg("svg", { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img" });
    this.picture.append(this.area, this.line);
    this.element = h("section.tile", { "aria-labelledby": id }, h("h3", { id }, title), this.number, this.picture);
  }

  draw() {
    const { series, format } = this;
    const max = this.scale?.() ?? series.max;
    const path = linePath(series.values, max, WIDTH, HEIGHT);
    this.number.textContent = format(series.last);
    this.line.setAttribute("d", path);
    const first = WIDTH - (series.values.length - 1) * (WIDTH / 119);
    this.area.setAttribute("d", path && `${path}L${WIDTH} ${HEIGHT}L${first.toFixed(1)} ${HEIGHT}Z`);
    this.picture.setAttribute(
      "aria-label",
      `${this.title}, last two minutes: now ${format(series.last)}, at most ${format(series.max)}`,
    );
  }
}
