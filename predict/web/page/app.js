// The page: a form, questions to the model, and what is shown of its answers.

import { element } from "./element.js";
import { Model } from "./model.js";
import { fromLink, question, toLink } from "./state.js";
import { showCompare, showCurves, showError, showPlan, showStep } from "./views.js";

const byId = id => document.getElementById(id);
const LARGEST_FILE = 1 << 30;

let model, catalog, gpus;
const provided = new Map();
let state = fromLink(location.hash);
let asked = 0;
let redraw = () => {};

async function bytesOf(name) {
  const response = await fetch(name);
  if (!response.ok) throw new Error(`${name}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

async function compiled(name) {
  try {
    return await WebAssembly.compileStreaming(fetch(name));
  } catch {
    // Servers that do not know the type of the file.
    return WebAssembly.compile(await bytesOf(name));
  }
}

/** The calibrations of these GPUs, each fetched once. */
function needed(names) {
  const chips = new Set(names.map(name => gpus.get(name)?.calibration).filter(Boolean));
  return Promise.all([...chips].map(chip => {
    if (!provided.has(chip)) {
      const got = bytesOf(`data/${catalog.calibrations[chip]}`).then(bytes => model.provide(chip, bytes));
      provided.set(chip, got);
      got.catch(() => provided.delete(chip));
    }
    return provided.get(chip);
  }));
}

function option(value, text, more = {}) {
  return element("option", { value, ...more }, text);
}

function grouped(list, group, one) {
  const groups = new Map();
  for (const item of list) groups.set(group(item), [...(groups.get(group(item)) ?? []), item]);
  return [...groups].map(([name, items]) => one(name, items));
}

const AGE = ["blackwell", "hopper", "ada", "ampere", "turing", "volta", "pascal", "maxwell", "kepler", "cdna4", "cdna3", "cdna2"];
const age = gpu => (gpu.cpu ? AGE.length + 1 : (AGE.indexOf(gpu.architecture) + AGE.length + 1) % (AGE.length + 1));
const family = gpu => (gpu.cpu ? "Processors" : gpu.architecture[0].toUpperCase() + gpu.architecture.slice(1));

function fillLists() {
  const optgroup = (label, options) => {
    const made = element("optgroup", { label });
    made.append(...options);
    return made;
  };
  byId("net").replaceChildren(...grouped(catalog.networks, n => (n.sequence ? "Language" : "Images and others"),
    (label, list) => optgroup(label, list.map(n => option(n.name, n.name, { title: n.title })))));
  const sorted = [...catalog.gpus].sort((a, b) => age(a) - age(b) || a.title.localeCompare(b.title));
  byId("gpu").replaceChildren(...grouped(sorted, family, (label, list) => optgroup(label, list.map(g => option(g.name, g.title)))));
  byId("framework").replaceChildren(...catalog.frameworks.map(f => option(f.name, f.name)));
  byId("others-list").replaceChildren(...grouped(sorted, family, (label, list) => {
    const box = element("div");
    box.append(element("h3", {}, label), ...list.map(g => {
      const line = element("label");
      line.append(element("input", { type: "checkbox", value: g.name }), g.title);
      return line;
    }));
    return box;
  }));
}

const others = () => state.with.split(",").filter(name => gpus.has(name) && name !== state.gpu);

/** Whether a select has a value, which it then shows. */
function select(id, value) {
  const list = byId(id);
  const known = [...list.options].some(o => o.value === value);
  if (known) list.value = value;
  return known;
}

function showState() {
  const net = catalog.networks.find(n => n.name === state.net);
  if (!select("net", state.net)) byId("net").prepend(option(state.net, `${state.net} (open this file)`)), byId("net").selectedIndex = 0;
  if (!select("gpu", state.gpu)) byId("gpu").prepend(option(state.gpu, state.gpu)), byId("gpu").selectedIndex = 0;
  select("framework", state.framework);
  byId("framework-help").textContent = catalog.frameworks.find(f => f.name === state.framework)?.title ?? "";
  const own = gpus.get(state.gpu)?.precisions ?? [];
  const all = [...new Set(catalog.gpus.flatMap(g => g.precisions))];
  byId("precision").replaceChildren(...all.map(p => option(p, own.includes(p) ? p : `${p} (not on it)`)));
  select("precision", state.precision);
  for (const id of ["batch", "sequence", "clock", "cap"]) if (document.activeElement !== byId(id)) byId(id).value = state[id];
  byId(state.mode === "training" ? "training" : "inference").checked = true;
  byId("sequence-field").hidden = !(net?.sequence ?? state.net.endsWith(".json"));
  const gpu = gpus.get(state.gpu);
  byId("clock").placeholder = gpu ? `up to ${Math.round(gpu.boost_mhz)}` : "";
  byId("cap").placeholder = gpu ? `${Math.round(gpu.limit_w)}` : "";
  if (state.clock !== "" || state.cap !== "") byId("point").open = true;
  for (const box of byId("others-list").querySelectorAll("input")) {
    box.checked = state.with.split(",").includes(box.value);
    box.disabled = box.value === state.gpu;
  }
  const count = others().length;
  byId("others-count").textContent = `${count} other ${count === 1 ? "GPU" : "GPUs"}`;
}

const later = () => new Promise(done => setTimeout(done, 0));

/** Answers the setup: the step at once, then what takes longer; a later setup ends it. */
async function answer() {
  const mine = ++asked, current = () => mine === asked;
  history.replaceState(null, "", toLink(state));
  try {
    document.body.classList.add("busy");
    await needed([state.gpu]);
    if (!current()) return;
    const start = performance.now();
    const step = model.ask(question("step", state, [state.gpu]));
    document.documentElement.dataset.predictionMs = (performance.now() - start).toFixed(3);
    showStep(step, gpus.get(state.gpu) ?? { title: state.gpu, memory_gib: NaN, limit_w: NaN });
  } catch (error) {
    if (current()) showError(error.message);
    return;
  } finally {
    if (current()) document.body.classList.remove("busy");
    document.documentElement.dataset.ready = mine;
    document.documentElement.dataset.loadMs ??= performance.now().toFixed(0);
  }
  await part("curves", current, () => {
    const found = model.ask(question("curves", state, [state.gpu])), [gpu, of] = [gpus.get(state.gpu), state];
    redraw = () => showCurves(found, gpu, of);
    redraw();
  });
  const names = [state.gpu, ...others()];
  await part("compare", current, async () => {
    await needed(names);
    if (current()) showCompare(model.ask(question("compare", state, names)), gpus, state.gpu);
  });
  if (current()) document.documentElement.dataset.done = mine;
}

async function part(id, current, show) {
  await later();
  if (!current()) return;
  try {
    await show();
  } catch (error) {
    byId(id).hidden = true;
    console.info(`${id}: ${error.message}`);
  }
}

function change(values) {
  state = { ...state, ...values };
  showState();
  answer();
}

function listen() {
  const form = byId("setup");
  form.addEventListener("submit", event => event.preventDefault());
  let timer;
  form.addEventListener("input", event => {
    const { id, name, value, type } = event.target;
    if (type === "file") return;
    if (type === "checkbox") {
      const checked = [...byId("others-list").querySelectorAll("input:checked")].map(box => box.value);
      return change({ with: checked.join(",") });
    }
    if (type === "number") {
      if (!event.target.checkValidity()) return;
      clearTimeout(timer);
      timer = setTimeout(() => change({ [id]: value }), 120);
      return;
    }
    change(name === "mode" ? { mode: value } : { [id]: value });
  });
  window.addEventListener("hashchange", () => {
    state = fromLink(location.hash);
    showState();
    answer();
  });
  // Figures are drawn as wide as they are shown, so that their letters stay as large.
  let drawn = innerWidth, resized;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => {
      if (innerWidth !== drawn && !byId("curves").hidden) redraw();
      drawn = innerWidth;
    }, 150);
  });
  byId("share").addEventListener("click", async () => {
    const button = byId("share");
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "The address bar has it";
    }
    setTimeout(() => { button.textContent = "Copy link"; }, 2500);
  });
  byId("file").addEventListener("change", event => open(event.target.files[0]).finally(() => { event.target.value = ""; }));
  const drop = byId("drop");
  const over = on => event => {
    event.preventDefault();
    drop.classList.toggle("over", on);
  };
  document.addEventListener("dragover", over(true));
  document.addEventListener("dragleave", over(false));
  document.addEventListener("drop", event => {
    over(false)(event);
    open(event.dataTransfer.files[0]);
  });
  byId("plan-details").addEventListener("toggle", async () => {
    if (byId("plan-details").open && !byId("plan-file").value) byId("plan-file").value = new TextDecoder().decode(await bytesOf("plan.toml"));
  });
  byId("plan-run").addEventListener("click", plan);
}

/** A network's file that somebody gives. It is read into memory and nowhere else. */
async function open(file) {
  if (!file) return;
  try {
    if (file.size > LARGEST_FILE) throw new Error(`${file.name}: more than 1 GiB; export it with its weights in a file beside it`);
    if (!/\.(onnx|json|toml|prototxt)$/i.test(file.name)) throw new Error(`${file.name}: networks are .onnx, config.json, .toml or .prototxt files`);
    const bytes = new Uint8Array(await file.arrayBuffer());
    let name = file.name.replaceAll("/", "_");
    // A file of this name is called by its model, which its folder would say.
    if (name === "config.json") name = `${modelName(bytes)}/config.json`;
    model.hold(name, bytes);
    if (!select("net", name)) byId("net").prepend(option(name, name));
    change({ net: name, sequence: "" });
    byId("net").focus();
  } catch (error) {
    showError(error.message);
  }
}

function modelName(bytes) {
  try {
    const config = JSON.parse(new TextDecoder().decode(bytes));
    return String(config._name_or_path || config.model_type || "model").split("/").at(-1).replace(/[^\w.-]/g, "_") || "model";
  } catch {
    return "model";
  }
}

async function plan() {
  const file = byId("plan-file").value;
  byId("plan-words").textContent = "Planning …";
  byId("plan-table").replaceChildren();
  byId("plan-notes").replaceChildren();
  try {
    const wanted = [...file.matchAll(/^\s*gpu\s*=\s*"([^"]+)"/gm)].map(([, name]) => name);
    await needed(wanted);
    await later();
    showPlan(model.ask({ ask: "plan", file }));
  } catch (error) {
    byId("plan-words").textContent = error.message;
  }
}

async function keepForOffline() {
  if (!("serviceWorker" in navigator) || navigator.connection?.saveData) return;
  try {
    await navigator.serviceWorker.register("sw.js");
    const { active } = await navigator.serviceWorker.ready;
    active?.postMessage({ keep: Object.values(catalog.calibrations).map(name => `data/${name}`) });
  } catch {
    // Without it the page needs a network, and says nothing else.
  }
}

async function start() {
  try {
    model = await Model.of(await compiled("joulecast.wasm"));
    catalog = model.ask({ ask: "catalog" });
    gpus = new Map(catalog.gpus.map(gpu => [gpu.name, gpu]));
    byId("version").textContent = `Version ${catalog.version}.`;
    fillLists();
    showState();
    listen();
    await answer();
  } catch (error) {
    showError(`The model could not be loaded: ${error.message}`);
  }
  keepForOffline();
}

start();
