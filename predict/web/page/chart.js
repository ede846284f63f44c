// Energy and time over a setting, relative to the default, as a figure with its numbers beside it.

import { change, digits, withUnit } from "./words.js";
import { element, table } from "./element.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [460, 250, 46, 14, 14, 40];

/** Round numbers between two, about so many. */
function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw);
  const list = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) list.push(v);
  return list;
}

/** Points `{ x, time, energy }` (ratios) with a unit for x; `best`: the point to mark. */
export function chart(title, unit, points, best, reference) {
  const xs = points.map(p => p.x), ys = points.flatMap(p => [p.time, p.energy]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  // Where a low limit makes steps many times as long, that is no longer of interest.
  const [y0, y1] = [Math.min(.9, ...ys), Math.min(2.5, Math.max(1.1, ...ys))];
  const x = v => LEFT + (v - x0) / (x1 - x0 || 1) * (WIDTH - LEFT - RIGHT);
  const y = v => TOP + (y1 - v) / (y1 - y0) * (HEIGHT - TOP - BOTTOM);
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const put = (name, attributes, text) => svg.append(element(name, attributes, text));
  for (const v of ticks(y0, y1, 5)) {
    put("line", { class: Math.abs(v - 1) < 1e-9 ? "axis" : "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) });
    put("text", { x: LEFT - 6, y: y(v) + 4, "text-anchor": "end" }, `${Math.round(v * 100)} %`);
  }
  for (const v of ticks(x0, x1, 5)) put("text", { x: x(v), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle" }, digits(v, 4));
  put("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, unit);
  for (const key of ["time", "energy"]) {
    const shown = points.filter(p => p[key] <= y1);
    put("path", { class: key, d: shown.map((p, i) => `${i ? "L" : "M"}${x(p.x).toFixed(1)} ${y(p[key]).toFixed(1)}`).join("") });
  }
  // Names stand where the lines are furthest apart.
  const inner = points.filter(p => p.x > x0 + .12 * (x1 - x0) && p.x < x1 - .12 * (x1 - x0) && Math.max(p.time, p.energy) <= y1);
  const at = inner.reduce((a, b) => Math.abs(b.time - b.energy) > Math.abs(a?.time - a?.energy || 0) ? b : a, inner[0]);
  if (at && Math.abs(at.time - at.energy) > .02) {
    for (const key of ["time", "energy"]) {
      const above = at[key] === Math.max(at.time, at.energy);
      put("text", { class: `${key}-label`, x: x(at.x), y: Math.min(HEIGHT - BOTTOM - 4, y(at[key]) + (above ? -10 : 20)), "text-anchor": "middle" }, key);
    }
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
