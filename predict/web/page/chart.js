// Energy and time over a setting, relative to the default, as a figure with its numbers beside it.

import { change, digits, withUnit } from "./words.js";
import { element, table } from "./element.js";

const [HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [240, 48, 12, 16, 40];

/** A round step, so that about so many lie between two numbers. */
function stepOf(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map(f => f * power).find(s => s >= raw);
}

/** Its multiples between them. */
function ticks(low, high, step) {
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) list.push(v);
  return list;
}

/** Points `{ x, time, energy }` (ratios) with a unit for x; `best`: the point to mark; `width` in pixels. */
export function chart(title, unit, points, best, reference, width) {
  const xs = points.map(p => p.x), ys = points.flatMap(p => [p.time, p.energy]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  // Where a low limit makes steps many times as long, that is no longer of interest.
  const [least, y1] = [Math.min(.9, ...ys), Math.min(2.5, Math.max(1.1, ...ys))];
  const step = stepOf(least, y1, 5);
  const y0 = Math.floor(least / step + 1e-9) * step;
  const x = v => LEFT + (v - x0) / (x1 - x0 || 1) * (width - LEFT - RIGHT);
  const y = v => TOP + (y1 - v) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img" });
  const put = (name, attributes, text) => svg.append(element(name, attributes, text));
  for (const v of ticks(y0, y1, step)) {
    put("line", { class: Math.abs(v - 1) < 1e-9 ? "axis" : "grid", x1: LEFT, x2: width - RIGHT, y1: y(v), y2: y(v) });
    put("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, `${Math.round(v * 100)} %`);
  }
  for (const v of ticks(x0, x1, stepOf(x0, x1, width / 80))) put("text", { x: x(v), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, digits(v, 4));
  put("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, unit);
  for (const key of ["time", "energy"]) {
    const shown = points.filter(p => p[key] <= y1);
    put("path", { class: key, d: shown.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p[key]).toFixed(1)}`).join("") });
  }
  // Names stand over the lines, some way along; the lower one's under its line where there is no room between them.
  const at = points.find(p => p.x >= x0 + .4 * (x1 - x0) && Math.max(p.time, p.energy) <= y1);
  for (const key of at ? ["time", "energy"] : []) {
    const under = at[key] === Math.min(at.time, at.energy) && Math.abs(y(at.time) - y(at.energy)) < 40 && key === "energy";
    const side = Math.min(HEIGHT - BOTTOM - 4, y(at[key]) + (under ? 20 : -11));
    put("text", { class: `${key}-label`, x: x(at.x), y: side, "text-anchor": "middle" }, key);
  }
  if (best) put("circle", { class: "best", cx: x(best.x), cy: y(best.energy), r: 5.5 });
  const words = best ? `Least energy at ${digits(best.x, 4)} ${unit}: ${change(best.energy)} energy, ${change(best.time)} time.` : "";
  svg.setAttribute("aria-label", `${title}: energy and time against the default, ${digits(x0, 4)} to ${digits(x1, 4)} ${unit}. ${words}`);
  const figure = element("div", { class: "chart" });
  const rows = points.map(p => [digits(p.x, 4), withUnit(p.energy * reference.energy, "J"), change(p.energy), withUnit(p.time * reference.time, "s"), change(p.time)]);
  const numbers = element("table");
  table(numbers, [unit, "energy", "", "time", ""], rows);
  const box = element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, numbers` });
  box.append(numbers);
  const details = element("details");
  details.append(element("summary", {}, "Numbers"), box);
  figure.append(element("h3", {}, title), svg, details);
  return figure;
}
