// The page in a real Chromium: node browser.mjs PREDICT [DIST] [--pictures DIR]. Ends with 77 and a reason where there is no
// playwright-core or no Chromium, with 1 where something is wrong; figures go to standard output.

import { spawnSync } from "node:child_process";
import { createReadStream, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [predict, dist = join(here, "../dist")] = process.argv.slice(2).filter(word => !word.startsWith("--pictures"));
const pictures = process.argv.find(word => word.startsWith("--pictures="))?.split("=")[1];
const WIDTHS = [360, 768, 1280, 1600];

function absent(why) {
  console.log(`absent: ${why}`);
  process.exit(77);
}

// NODE_PATH counts, too, which import does not look at.
const require = createRequire(import.meta.url);
let playwright;
for (const name of ["playwright-core", "playwright"]) {
  try {
    playwright ??= require(name);
  } catch {
    // The other may be there.
  }
}
if (!playwright) absent("no playwright-core (npm install --prefix predict/web playwright-core)");
const names = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
const browsers = names.flatMap(name => process.env.PATH.split(delimiter).map(folder => join(folder, name)));
const executablePath = process.env.CHROMIUM ?? browsers.find(path => existsSync(path));
if (!executablePath) absent("no Chromium on this machine");

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".wasm": "application/wasm", ".webmanifest": "application/manifest+json" };
const server = createServer((request, response) => {
  const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
  const file = join(dist, path.endsWith("/") ? `${path}index.html` : path);
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" });
  createReadStream(file).pipe(response);
});
await new Promise(done => server.listen(0, "127.0.0.1", done));
const origin = `http://127.0.0.1:${server.address().port}/`;

const wrong = [];
const check = (what, fine) => {
  if (!fine) wrong.push(what);
};

/** The widest a page is, and what of it lies outside of the screen. */
const overflow = () => ({ page: document.documentElement.scrollWidth, screen: innerWidth });

/** Text whose contrast with what is behind it is below 4.5, or 3 where it is large. */
function lowContrast() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = text => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map(v => (v / 255 <= .04045 ? v / 255 / 12.92 : ((v / 255 + .055) / 1.055) ** 2.4));
    return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
  };
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.textContent.trim());
    const style = getComputedStyle(element);
    if (!own || !element.checkVisibility() || element.closest("noscript, option, optgroup")) continue;
    const drawn = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgba(drawn)), light(behind(element))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (large ? 3 : 4.5)) found.push(`${element.tagName} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return found;
}

/** Fields without a name, pictures without words, identities twice, headings out of order, tables without headers. */
function unlabelled() {
  const found = [];
  for (const field of document.querySelectorAll("input, select, textarea, button")) {
    const name = field.labels?.length || field.getAttribute("aria-label") || (field.tagName === "BUTTON" && field.textContent.trim());
    if (!name) found.push(`no label: ${field.outerHTML.slice(0, 80)}`);
  }
  for (const picture of document.querySelectorAll("svg[role=img]")) if (!picture.getAttribute("aria-label")) found.push("a figure without words");
  for (const picture of document.querySelectorAll("img")) if (!picture.hasAttribute("alt")) found.push("an image without alt");
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  for (const id of ids) if (ids.filter(other => other === id).length > 1) found.push(`twice: #${id}`);
  for (const at of document.querySelectorAll("[aria-labelledby], [aria-describedby]")) {
    for (const key of ["aria-labelledby", "aria-describedby"]) {
      const to = at.getAttribute(key);
      if (to && !document.getElementById(to)) found.push(`${key} of nothing: ${to}`);
    }
  }
  if (document.querySelectorAll("h1").length !== 1 || !document.documentElement.lang || !document.querySelector("main")) found.push("no h1, language or main");
  for (const table of document.querySelectorAll("table")) {
    if (table.rows.length && table.checkVisibility() && !table.querySelector("th[scope=col]")) found.push("a table without headers");
  }
  return found;
}

/** What a finger cannot hit: less than 24 pixels high or wide. */
function small() {
  return [...document.querySelectorAll("button, select, summary, input:not(.covered, .switch input), .switch label")]
    .filter(e => e.checkVisibility())
    .map(e => [e, (e.type === "checkbox" ? e.closest("label") : e).getBoundingClientRect()])
    .filter(([, box]) => box.width > 0 && (box.width < 24 || box.height < 24))
    .map(([e, box]) => `${e.outerHTML.slice(0, 60)} ${box.width}x${box.height}`);
}

const browser = await playwright.chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const folder = mkdtempSync(join(tmpdir(), "page-"));

async function opened(options, hash = "") {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.on("console", m => ["error", "warning"].includes(m.type()) && wrong.push(`console: ${m.text()} ${m.location().url}`));
  page.on("pageerror", e => wrong.push(`error: ${e.message}`));
  context.on("request", r => {
    if (!r.url().startsWith(origin) && !r.url().startsWith("data:")) wrong.push(`request: ${r.url()}`);
    if (r.method() !== "GET") wrong.push(`request: ${r.method()} ${r.url()}`);
  });
  await page.goto(origin + hash);
  await page.waitForFunction(() => document.documentElement.dataset.done, null, { timeout: 20000 });
  return page;
}

const settled = (page, before) => page.waitForFunction(n => Number(document.documentElement.dataset.done) > n, before, { timeout: 20000 });
const done = page => page.evaluate(() => Number(document.documentElement.dataset.done));
const verdict = page => page.textContent("#verdict");
const change = async (page, act) => {
  const before = await done(page);
  await act();
  await settled(page, before);
};

try {
  // Load and prediction, in a profile that has seen nothing.
  const times = [];
  for (let i = 0; i < 5; i++) {
    const page = await opened({});
    times.push(await page.evaluate(() => [Number(document.documentElement.dataset.loadMs), Number(document.documentElement.dataset.predictionMs)]));
    await page.context().close();
  }
  const page = await opened({});
  const again = [];
  for (const batch of [1, 2, 4, 8, 16, 32, 48, 96, 128, 200]) {
    await change(page, () => page.fill("#batch", String(batch)));
    again.push(await page.evaluate(() => Number(document.documentElement.dataset.predictionMs)));
  }
  const middle = list => [...list].sort((a, b) => a - b)[list.length >> 1];
  console.log(`load to the first prediction: ${middle(times.map(t => t[0]))} ms (at most ${Math.max(...times.map(t => t[0]))}), of it the prediction ${middle(times.map(t => t[1])).toFixed(1)} ms; further predictions ${middle(again).toFixed(1)} ms (at most ${Math.max(...again).toFixed(1)})`);

  // The figures are the command's.
  const link = "#net=vgg16&gpu=v100&batch=64&precision=fp32&mode=training&framework=pytorch&with=t4";
  const shared = await opened({}, link);
  const ran = spawnSync(predict, ["--net", "vgg16", "--gpu", "v100", "--batch", "64", "--mode", "training", "--framework", "pytorch", "--format", "json"],
    { encoding: "utf8", maxBuffer: 1 << 28, env: { ...process.env, XDG_CONFIG_HOME: folder } });
  const theirs = JSON.parse(ran.stdout);
  const digits = (await verdict(shared)).match(/[\d.]+/)[0];
  check(`a link shows its setup: ${await verdict(shared)}`, Math.abs(Number(digits) / (theirs.time_s * 1000) - 1) < .006);
  const told = await shared.locator("#notes li").allTextContents();
  check(`notes are the command's: ${told}`, JSON.stringify(told) === JSON.stringify(theirs.warnings));
  await shared.context().close();

  // A file of one's own.
  spawnSync(predict, ["convert", "resnet18", "--to", "onnx", "--output", join(folder, "mine.onnx")]);
  await change(page, () => page.setInputFiles("#file", join(folder, "mine.onnx")));
  check(`a file is predicted: ${await page.textContent("#verdict-title")}`, (await page.textContent("#verdict-title")).startsWith("mine on"));
  await page.setInputFiles("#file", { name: "bad.onnx", mimeType: "", buffer: Buffer.from("no network") });
  await page.waitForFunction(() => document.getElementById("verdict-title").textContent === "No prediction");
  check(`why a file is refused: ${await verdict(page)}`, (await verdict(page)).includes("bad.onnx"));

  // A plan.
  await page.click("#plan-details > summary");
  await page.waitForFunction(() => document.getElementById("plan-file").value.length > 100);
  await page.click("#plan-run");
  await page.waitForFunction(() => document.querySelectorAll("#plan-table tbody tr").length === 3);
  check("a plan says whether it is sure", /^(Sure|Not sure)/.test(await page.textContent("#plan-words")));
  await page.context().close();

  // By keyboard alone: everything is reached in order, and works.
  const keys = await opened({});
  const reached = [];
  for (let i = 0; i < 40; i++) {
    await keys.keyboard.press("Tab");
    reached.push(await keys.evaluate(() => document.activeElement.id || document.activeElement.closest("[id]")?.id || document.activeElement.tagName));
    const seen = await keys.evaluate(() => {
      const at = document.activeElement, shown = e => getComputedStyle(e).outlineStyle !== "none";
      return at === document.body || shown(at) || (at.nextElementSibling && shown(at.nextElementSibling)) || shown(at.closest(".drop") ?? at);
    });
    check(`focus is seen on ${reached.at(-1)}`, seen);
  }
  for (const id of ["net", "file", "gpu", "batch", "precision", "inference", "framework", "point", "others", "share", "plan-details"]) check(`Tab reaches #${id}: ${reached}`, reached.includes(id));
  const order = ["net", "gpu", "batch", "share", "plan-details"].map(id => reached.indexOf(id));
  check(`in the order that is seen: ${order}`, order.every((v, i) => !i || v > order[i - 1]));
  const before = await verdict(keys);
  await change(keys, async () => {
    await keys.focus("#inference");
    await keys.keyboard.press("ArrowRight");
  });
  check("the arrow chooses training", (await verdict(keys)) !== before && (await keys.isChecked("#training")));
  const parts = keys.locator("#layers-table button").first();
  await parts.focus();
  const rows = await keys.locator("#layers-table tbody tr").count();
  await keys.keyboard.press("Enter");
  check("Enter opens a module", (await keys.locator("#layers-table tbody tr").count()) > rows && (await parts.getAttribute("aria-expanded")) === "true");
  await keys.keyboard.press("Enter");
  check("and closes it", (await keys.locator("#layers-table tbody tr").count()) === rows);
  await keys.context().close();

  // Without a network, once it was open.
  const kept = await opened({});
  await kept.evaluate(() => navigator.serviceWorker.ready);
  const count = () => kept.evaluate(async () => {
    const caches_ = await Promise.all((await caches.keys()).map(name => caches.open(name)));
    return (await Promise.all(caches_.map(cache => cache.keys()))).flat().filter(r => r.url.includes("/data/")).length;
  });
  let files = 0;
  for (let i = 0; i < 100 && files < 10; i++) {
    await new Promise(soon => setTimeout(soon, 100));
    files = await count();
  }
  check(`data of all GPUs is kept: ${files}`, files >= 10);
  await kept.context().setOffline(true);
  await kept.goto(`${origin}?again#net=alexnet&gpu=t4&batch=8&precision=fp32`);
  await kept.waitForFunction(() => document.documentElement.dataset.done, null, { timeout: 20000 });
  check(`it works offline: ${await kept.textContent("#verdict-title")}`, (await kept.textContent("#verdict-title")).startsWith("alexnet"));
  await kept.context().close();

  // Widths, light and dark.
  if (pictures) mkdirSync(pictures, { recursive: true });
  for (const width of WIDTHS) {
    for (const colorScheme of ["light", "dark"]) {
      const shown = await opened({ viewport: { width, height: 900 }, colorScheme, isMobile: false, reducedMotion: "reduce" });
      const at = `${width} px, ${colorScheme}`;
      const { page: wide, screen } = await shown.evaluate(overflow);
      check(`${at}: the page is ${wide} px wide`, wide <= screen);
      const closed = [...await shown.evaluate(lowContrast), ...await shown.evaluate(unlabelled), ...await shown.evaluate(small)];
      if (pictures) await shown.screenshot({ path: join(pictures, `${width}-${colorScheme}.png`), fullPage: true });
      await shown.evaluate(() => document.querySelectorAll("details").forEach(d => { d.open = true; }));
      await shown.locator("#layers-table button").first().click();
      await shown.click("#plan-run");
      await shown.waitForFunction(() => document.querySelectorAll("#plan-table tbody tr").length === 3);
      const open = [...await shown.evaluate(lowContrast), ...await shown.evaluate(unlabelled), ...await shown.evaluate(small)];
      const found = [...new Set([...closed, ...open])];
      found.slice(0, 8).forEach(text => wrong.push(`${at}: ${text}`));
      check(`${at}: opened, the page is too wide`, (await shown.evaluate(overflow)).page <= screen);
      if (pictures) await shown.screenshot({ path: join(pictures, `${width}-${colorScheme}-open.png`), fullPage: true });
      await shown.context().close();
    }
  }
} catch (error) {
  wrong.push(error.stack);
} finally {
  await browser.close();
  server.close();
  rmSync(folder, { recursive: true, force: true });
}
for (const line of wrong.slice(0, 30)) console.error(line);
if (wrong.length) {
  console.error(`${wrong.length} wrong`);
  process.exitCode = 1;
}
