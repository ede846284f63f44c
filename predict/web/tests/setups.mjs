// Whether the module answers as the command does: node setups.mjs PREDICT [DIST]. Prints the largest
// difference and times; ends with 1 where a value differs by more than 1e-12 of itself, or anything else differs.

import { execFileSync, spawnSync } from "node:child_process";
import { gzipSync, brotliCompressSync, constants } from "node:zlib";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { question } from "../page/state.js";
import { Model } from "../page/model.js";

const here = dirname(fileURLToPath(import.meta.url));
const [predict, dist = join(here, "../dist")] = process.argv.slice(2);
const ALLOWED = 1e-12;

// Network, GPU, batch, precision, mode, framework, and what else is set.
const SETUPS = [
  ["resnet50", "h200", 64, "fp16", "inference", "cudnn"],
  ["resnet50", "h200", 64, "fp32", "training", "pytorch"],
  ["resnet50", "v100", 32, "fp32", "inference", "cudnn"],
  ["resnet50", "v100", 128, "fp16", "training", "pytorch"],
  ["resnet50", "a100-sxm4-80gb", 256, "tf32", "training", "pytorch"],
  ["resnet50", "t4", 8, "int8", "inference", "tensorrt"],
  ["resnet50", "l4", 16, "fp16", "inference", "tensorrt"],
  ["resnet50", "rtx4090", 1, "fp16", "inference", "pytorch"],
  ["resnet50", "h100-sxm", 512, "bf16", "training", "pytorch"],
  ["resnet50", "b200", 128, "bf16", "inference", "cudnn"],
  ["resnet50", "mi300x", 64, "fp16", "inference", "cudnn"],
  ["resnet50", "xeon-e5-2698v3", 4, "fp32", "inference", "caffe"],
  ["resnet50", "v100", 64, "fp32", "inference", "cudnn", { cap: "200" }],
  ["resnet50", "h200", 64, "fp16", "inference", "cudnn", { clock: "1200" }],
  ["resnet50", "a100-pcie-40gb", 64, "fp16", "training", "pytorch", { clock: "1000", cap: "200" }],
  ["resnet18", "gtx1080ti", 16, "fp32", "training", "pytorch"],
  ["resnet152", "titan-x-pascal", 32, "fp32", "training", "tensorflow"],
  ["vgg16", "v100", 64, "fp32", "inference", "cudnn"],
  ["vgg16", "p100-pcie", 32, "fp32", "training", "mxnet"],
  ["vgg16", "h200", 128, "bf16", "inference", "cudnn"],
  ["vgg19", "t4", 16, "fp16", "inference", "cudnn"],
  ["alexnet", "titan-x-maxwell", 256, "fp32", "training", "caffe"],
  ["alexnet", "m40", 64, "fp32", "inference", "cudnn"],
  ["alexnet", "k20m", 64, "fp32", "inference", "cudnn"],
  ["googlenet", "v100", 64, "fp32", "training", "cntk"],
  ["googlenet", "h100-pcie", 32, "fp16", "inference", "cudnn"],
  ["inception_v3", "h200", 32, "tf32", "inference", "pytorch"],
  ["inception_v4", "p4", 8, "fp32", "inference", "cudnn"],
  ["mobilenet_v2", "t4", 32, "fp32", "inference", "cudnn"],
  ["mobilenet_v2", "h200", 256, "bf16", "training", "pytorch"],
  ["mobilenet_v3_large", "rtx3090", 64, "fp16", "training", "pytorch"],
  ["efficientnet_b0", "l40s", 32, "fp16", "inference", "tensorrt"],
  ["efficientnet_b2", "v100", 16, "fp32", "training", "pytorch"],
  ["densenet121", "h200", 64, "fp32", "inference", "cudnn"],
  ["squeezenet1_1", "p4", 4, "fp32", "inference", "cudnn"],
  ["convnext_tiny", "h200", 64, "bf16", "training", "pytorch"],
  ["swin_t", "h200", 32, "fp16", "inference", "pytorch"],
  ["vit_b_16", "h200", 64, "bf16", "training", "pytorch"],
  ["vit_b_16", "a100-sxm4-40gb", 32, "fp16", "inference", "cudnn"],
  ["bert_base", "h200", 16, "bf16", "training", "pytorch", { sequence: "384" }],
  ["bert_large", "h100-sxm", 8, "fp16", "inference", "tensorrt"],
  ["gpt2", "h200", 4, "bf16", "training", "pytorch", { sequence: "512" }],
  ["llama3_2_1b", "h200", 1, "bf16", "inference", "cudnn", { sequence: "2048" }],
  ["llama3_8b", "h100-sxm", 1, "fp8", "inference", "cudnn", { sequence: "1024" }],
  ["mixtral_8x7b", "h200", 2, "bf16", "inference", "cudnn", { sequence: "256" }],
  ["resnext50_32x4d", "v100", 32, "fp32", "inference", "cudnn"],
  ["regnet_y_400mf", "h200", 128, "fp16", "inference", "pytorch"],
  ["vgg16", "t4", 4096, "fp32", "training", "pytorch"],
  // Files, as they may be dropped.
  ["resnet34.onnx", "h200", 32, "fp16", "inference", "cudnn"],
  ["mobilenet_v1.toml", "v100", 32, "fp32", "training", "pytorch"],
  // Refused, in the same words.
  ["resnet50", "v100", 32, "bf16", "inference", "cudnn"],
  ["resnet50", "t4", 32, "int8", "training", "cudnn"],
  ["resnet51", "t4", 32, "fp32", "inference", "cudnn"],
];

const folder = mkdtempSync(join(tmpdir(), "setups-"));
let worst = 0, worstAt = "";
const wrong = [];

function same(theirs, ours, at) {
  if (typeof theirs === "number" && typeof ours === "number") {
    const difference = theirs === ours ? 0 : Math.abs(theirs - ours) / Math.max(Math.abs(theirs), Math.abs(ours));
    if (difference > worst) [worst, worstAt] = [difference, at];
    if (!(difference <= ALLOWED)) wrong.push(`${at}: ${theirs} and ${ours}`);
  } else if (theirs && ours && typeof theirs === "object" && typeof ours === "object") {
    const keys = new Set([...Object.keys(theirs), ...Object.keys(ours)]);
    for (const key of keys) same(theirs[key], ours[key], `${at}/${key}`);
  } else if (theirs !== ours) {
    wrong.push(`${at}: ${JSON.stringify(theirs)} and ${JSON.stringify(ours)}`);
  }
}

function command(arguments_) {
  const ran = spawnSync(predict, [...arguments_, "--format", "json"], { encoding: "utf8", maxBuffer: 1 << 28, env: { ...process.env, XDG_CONFIG_HOME: folder } });
  if (ran.error) throw ran.error;
  return ran.status === 0 ? JSON.parse(ran.stdout) : { error: ran.stderr.trim().replace(/^error: /, "") };
}

try {
  const bytes = readFileSync(join(dist, "joulecast.wasm"));
  const start = performance.now();
  const module = await WebAssembly.compile(bytes);
  const imports = WebAssembly.Module.imports(module);
  if (imports.length) wrong.push(`the module imports ${JSON.stringify(imports)}`);
  const model = await Model.of(module);
  const loaded = performance.now() - start;
  const asked = performance.now();
  const catalog = model.ask({ ask: "catalog" });
  const listed = performance.now() - asked;
  const files = readdirSync(join(dist, "data"));
  for (const [name, file] of Object.entries(catalog.calibrations)) {
    if (!files.includes(file)) wrong.push(`data/${file} is not there`);
    else if (!model.provide(name, readFileSync(join(dist, "data", file)))) wrong.push(`${name} was not wanted`);
  }
  const ask = q => {
    try {
      return model.ask(q);
    } catch (error) {
      return { error: error.message };
    }
  };
  for (const [name, to] of [["resnet34.onnx", "onnx"], ["mobilenet_v1.toml", "toml"]]) {
    execFileSync(predict, ["convert", name.split(".")[0], "--to", to, "--output", join(folder, name)]);
    model.hold(name, readFileSync(join(folder, name)));
  }

  const option = { clock: "--clock", cap: "--power-cap", sequence: "--sequence" };
  const line = ([net, gpu, batch, precision, mode, framework, more = {}]) => ["--net", net, "--gpu", gpu, "--batch", String(batch),
    "--precision", precision, "--mode", mode, "--framework", framework, ...Object.entries(more).flatMap(([key, value]) => [option[key], value])];
  const of = (ask, [net, gpu, batch, precision, mode, framework, more = {}], gpus = [gpu]) =>
    question(ask, { net, gpu, batch, precision, mode, framework, sequence: "", clock: "", cap: "", ...more }, gpus);
  const [first, again] = [[], []];
  let answered = 0;
  process.chdir(folder);
  for (const setup of SETUPS) {
    const theirs = command(line(setup));
    let at = performance.now();
    const ours = ask(of("step", setup));
    first.push(performance.now() - at);
    at = performance.now();
    ask(of("step", setup));
    again.push(performance.now() - at);
    same(theirs, ours, setup.slice(0, 6).join(" "));
    if (!ours.error) answered += 1;
  }

  const small = SETUPS[2];
  same(command(["optimize", ...line(small), "--metric", "energy", "--over", "cap,clock"]), ask(of("curves", small)), "optimize");
  const rest = line(small).slice(4);
  same(command(["compare", "--net", "resnet50", "--gpu", "t4,v100,h200", ...rest]), ask(of("compare", small, ["t4", "v100", "h200"])).comparison, "compare");
  const file = readFileSync(join(dist, "plan.toml"), "utf8");
  // The page types no command.
  same({ ...command(["plan", join(dist, "plan.toml")]), command: "" }, ask({ ask: "plan", file }), "plan");

  const middle = list => [...list].sort((a, b) => a - b)[list.length >> 1].toFixed(2);
  const size = b => `${b.length} bytes, gzip ${gzipSync(b, { level: 9 }).length}, brotli ${brotliCompressSync(b, { params: { [constants.BROTLI_PARAM_LGWIN]: 24 } }).length}`;
  console.log(`module: ${size(bytes)}`);
  for (const file of files) console.log(`data/${file}: ${size(readFileSync(join(dist, "data", file)))}`);
  console.log(`compiled in ${loaded.toFixed(0)} ms, lists in ${listed.toFixed(1)} ms`);
  console.log(`prediction with its JSON: first ${middle(first)} ms (at most ${Math.max(...first).toFixed(1)}), again ${middle(again)} ms (at most ${Math.max(...again).toFixed(1)})`);
  console.log(`${answered} setups answered, ${SETUPS.length - answered} refused; largest difference ${worst.toExponential(2)} (${worstAt})`);
} finally {
  process.chdir(here);
  rmSync(folder, { recursive: true, force: true });
}
for (const line of wrong.slice(0, 20)) console.error(line);
if (wrong.length) {
  console.error(`${wrong.length} differences`);
  process.exitCode = 1;
}
