// What the page shows of answers.

import { chart } from "./chart.js";
import { bar, element, notes, sentence, table } from "./element.js";
import { modules, shortened } from "./tree.js";
import { change, digits, gib, range, settings, withUnit } from "./words.js";

const byId = id => document.getElementById(id);

/** One step: verdict, figures, notes and layers. */
export function showStep(p, gpu) {
  byId("verdict-title").textContent = `${p.network} on ${gpu.title}, batch ${digits(p.batch, 9)}, ${p.precision} ${p.mode}`;
  byId("verdict").textContent = p.verdict.text;
  byId("verdict").className = p.fits_in_memory ? "" : "bad";
  sentence(byId("basis"), [`Why so long: ${p.verdict.why_so_long}.`, p.verdict.surer ? `Surer by measuring: ${p.verdict.surer}.` : ""].join(" ").trim());
  const cards = [
    ["Time a step", withUnit(p.time_s, "s"), range(p.time_s_p05, p.time_s_p95, "s")],
    ["Power", withUnit(p.power_w, "W"), range(p.power_w_p05, p.power_w_p95, "W")],
    ["Energy a step", withUnit(p.energy_j, "J"), range(p.energy_j_p05, p.energy_j_p95, "J")],
    ["Throughput", `${digits(p.samples_per_s)}/s`, `${withUnit(p.energy_per_sample_j, "J")} a sample`],
    ["Memory", gib(p.memory_bytes), `of ${digits(gpu.memory_gib)}\u00a0GiB`],
    ["Core clock", `${digits(p.core_clock_mhz, 4)}\u00a0MHz`, p.power_cap_w ? `limit ${digits(p.power_cap_w, 4)}\u00a0W` : `limit ${digits(gpu.limit_w, 4)}\u00a0W (default)`],
  ];
  byId("figures").replaceChildren(...cards.map(([name, value, interval]) => {
    const card = element("div");
    card.append(element("dt", {}, name), element("dd", {}, value), element("dd", { class: "range" }, interval));
    return card;
  }));
  notes(byId("notes"), "To know", p.warnings);
  showLayers(p);
}

/** Why there is no step. */
export function showError(message) {
  byId("verdict-title").textContent = "No prediction";
  byId("verdict").textContent = message;
  byId("verdict").className = "bad";
  byId("basis").textContent = "";
  byId("figures").replaceChildren();
  notes(byId("notes"), "", []);
  for (const id of ["curves", "layers", "compare"]) byId(id).hidden = true;
}

function layerRow(n, level, total, most) {
  const row = element("tr", { class: `level-${Math.min(level, 5)}` });
  const head = element("th", { scope: "row" }), tree = element("span", { class: "tree" });
  const name = n.count > 1 ? `${n.name} ×${n.count}` : n.name;
  const children = n.children.length ? n.children : [];
  if (children.length) {
    const button = element("button", { type: "button", "aria-expanded": "false", "aria-label": `parts of ${name}` }, "▸");
    let rows = null;
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      button.textContent = open ? "▸" : "▾";
      if (open) {
        // Parts of parts close with it.
        const own = level;
        while (row.nextElementSibling && Number(row.nextElementSibling.dataset.level) > own) row.nextElementSibling.remove();
        return;
      }
      rows = shortened(children).map(child => layerRow(child, level + 1, total, most));
      row.after(...rows);
    });
    tree.append(button);
  } else {
    tree.append(element("span", { class: "leaf" }));
  }
  tree.append(element("span", {}, name));
  head.title = name;
  head.append(tree);
  row.dataset.level = level;
  const rests = [...n.tiers].join(", ") + (n.outside ? " *" : "");
  row.append(head, element("td", {}, withUnit(n.time, "s")), element("td", {}, `${(100 * n.time / total).toFixed(1)} %`),
    bar(n.time / most, "of-time"), element("td", {}, withUnit(n.energy, "J")), element("td", { class: "words" }, rests));
  return row;
}

const MOST_OF_IT = .5;

function showLayers(p) {
  const list = shortened(modules(p.layers));
  const into = byId("layers-table"), most = Math.max(p.waiting_s, ...list.map(n => n.time));
  table(into, ["module", "time", "share", "", "energy", "-rests on"], []);
  const body = into.querySelector("tbody");
  body.append(...list.map(n => layerRow(n, 0, p.time_s, most)));
  // A module that is nearly everything says nothing closed.
  const whole = list.findIndex(n => n.time > MOST_OF_IT * p.time_s && n.children.length);
  if (whole >= 0) body.rows[whole].querySelector("button").click();
  if (p.waiting_s > 0) {
    const row = element("tr", { class: "level-0" });
    const head = element("th", { scope: "row" }), tree = element("span", { class: "tree" });
    tree.append(element("span", { class: "leaf" }), element("span", {}, "waiting"));
    head.append(tree);
    row.append(head, element("td", {}, withUnit(p.waiting_s, "s")), element("td", {}, `${(100 * p.waiting_s / p.time_s).toFixed(1)} %`), bar(p.waiting_s / most, "of-time"), element("td"), element("td"));
    body.append(row);
  }
  into.parentElement.querySelector(".help")?.remove();
  if (list.some(n => n.outside)) into.after(element("p", { class: "help" }, "* outside of what was measured: wider interval"));
  byId("layers").hidden = false;
}

function settingWords(point, reference) {
  const at = point.power_cap_w !== null ? `a power limit of ${digits(point.power_cap_w, 4)}\u00a0W`
    : point.clock_mhz !== null ? `a core clock of ${digits(point.clock_mhz, 4)}\u00a0MHz` : "the default";
  if (at === "the default") return "The default takes the least energy of all limits and clocks.";
  return `Least energy at ${at}: ${change(point.energy_j / reference.energy_j)} energy, ${change(point.time_s / reference.time_s)} time against the default.`;
}

/** Limits and clocks of a step. */
export function showCurves(found, gpu, state) {
  const reference = found.default;
  const least = found.points.find(p => p.best);
  byId("curves-words").textContent = settingWords(least, reference)
    + (found.best_by_voltage.length && new Set(found.best_by_voltage).size > 1 ? ` How the core voltage rises is not known exactly: as that goes, the best is at ${found.best_by_voltage.map(settings).join(" or at ")}.` : "");
  const of = key => {
    const points = found.points.filter(p => p[key] !== null)
      .map(p => ({ x: p[key], time: p.time_s / reference.time_s, energy: p.energy_j / reference.energy_j }));
    return points.sort((a, b) => a.x - b.x);
  };
  byId("curves").hidden = false;
  const whole = byId("charts").clientWidth;
  const width = Math.max(260, matchMedia("(min-width: 1040px)").matches ? (whole - 28) / 2 : Math.min(whole, 720));
  const ratio = { time: reference.time_s, energy: reference.energy_j };
  const charts = [["Power limit", "W", "power_cap_w", state.cap === "" && gpu.limit_w], ["Core clock", "MHz", "clock_mhz", state.clock === "" && gpu.boost_mhz]]
    .map(([title, unit, key, usual]) => {
      const points = of(key);
      if (usual && key === "power_cap_w" && points.length) points.push({ x: usual, time: 1, energy: 1 });
      if (points.length < 3) return null;
      const best = points.reduce((a, b) => (b.energy < a.energy ? b : a));
      return chart(title, unit, points, best, ratio, Math.round(width));
    });
  byId("charts").replaceChildren(...charts.filter(Boolean));
  byId("curves").hidden = charts.every(c => !c);
}

/** What a prediction rests on, and how far it is to be trusted. */
function restsOn({ time_tier: tier, time_grade: time, energy_grade: energy }) {
  const cell = element("td", { class: "words" }, tier);
  cell.append(" ", element("small", {}, `${time} in time, ${energy} in energy`));
  return cell;
}

/** Several GPUs side by side. */
export function showCompare({ comparison, notes: told }, gpus, chosen) {
  const { rows, left_out: leftOut } = comparison;
  const most = Math.max(...rows.map(r => r.energy_j));
  const body = table(byId("compare-table"), ["GPU", "time", "90 %", "power", "energy", "", "samples/s", "memory", "-rests on"],
    [...rows].sort((a, b) => a.time_s - b.time_s).map(r => [
      r.gpu, withUnit(r.time_s, "s"), range(r.time_s_p05, r.time_s_p95, "s"), withUnit(r.power_w, "W"), withUnit(r.energy_j, "J"),
      bar(r.energy_j / most), digits(r.samples_per_s), element("td", r.fits_in_memory ? {} : { class: "bad" }, r.fits_in_memory ? "fits" : "does not fit"), restsOn(r),
    ]));
  body.forEach(row => {
    const name = row.cells[0].textContent;
    row.cells[0].title = gpus.get(name)?.title ?? name;
    row.classList.toggle("chosen", name === chosen);
  });
  byId("compare-words").textContent = comparison.verdict.map(line => `${line[0].toUpperCase()}${line.slice(1)}.`).join(" ");
  const by = new Map();
  for (const { gpu, warnings } of told) for (const w of warnings) by.set(w, [...(by.get(w) ?? []), gpu]);
  notes(byId("compare-notes"), "To know of these", [
    ...leftOut.map(({ gpu, why }) => `${gpu} is left out: ${why}`),
    ...[...by].filter(([, of]) => of.some(gpu => gpu !== chosen)).map(([text, of]) => `${of.join(", ")}: ${text}`),
  ], true);
  byId("compare").hidden = false;
}

const FIGURES = [["GPUs", "gpus", v => digits(v, 6)], ["servers", "servers", v => digits(v, 6)], ["peak power", "facility_peak_w", v => withUnit(v, "W")],
  ["kWh a year", "kwh_per_year", v => digits(v)], ["cost a year", "cost_per_year", v => digits(v)], ["kg CO₂ a year", "carbon_g_per_year", v => digits(v / 1000)]];

/** A fleet. */
export function showPlan(plan) {
  const rows = plan.candidates.map(c => {
    const taken = c.options.find(o => o.chosen);
    if (!taken) return [c.name, element("td", { class: "words", colspan: FIGURES.length + 1 }, c.reason ?? "")];
    const set = taken.clock_mhz !== null ? `${digits(taken.clock_mhz, 4)} MHz` : `${digits(taken.power_cap_w, 4)} W`;
    const cell = (key, words) => {
      const value = taken.figures[key], made = element("td", {}, value ? words(value.value) : "");
      if (value && words(value.p05) !== words(value.p95)) made.append(element("br"), element("small", {}, `${words(value.p05)} to ${words(value.p95)}`));
      return made;
    };
    return [c.name, element("td", {}, set), ...FIGURES.map(([, key, words]) => cell(key, words))];
  });
  const body = table(byId("plan-table"), ["candidate", "set to", ...FIGURES.map(([name]) => name)], rows);
  body.forEach(row => row.classList.toggle("chosen", row.cells[0].textContent === plan.chosen_candidate));
  sentence(byId("plan-words"), plan.verdict ? `${plan.verdict}.` : "No candidate carries the load.");
  notes(byId("plan-notes"), "To know", plan.candidates.flatMap(c => [
    ...c.rests_on.map(text => `${c.name}, ${text}`), ...c.warnings.map(text => `${c.name}: ${text}`),
  ]), true);
}
