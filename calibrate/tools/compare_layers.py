#!/usr/bin/env python3
"""Our layers beside PyTorch's, their sum beside our whole network, and that beside PyTorch's, as Markdown.

  compare_layers.py --layers layers.csv --torch-layers kernels.csv --networks networks.csv \\
      --torch-networks torch_runs.csv more.csv > report.md

Any of the four may be left out; what needs it is left out too. Ratios are ours divided by PyTorch's in (a) and (c), the
sum of layers divided by the network in (b). Layers are matched by kind in order of execution; equal names decide
where the order leaves a choice. Standard library only.
"""
import argparse
import csv
import re
from collections import defaultdict
from typing import NamedTuple

TOLERANCE = 0.10
MODES = {"infer": "inference", "train": "training"}
CLASSES = {
    "Conv2d": "conv2d", "Linear": "linear", "NonDynamicallyQuantizableLinear": "linear", "MaxPool2d": "max_pool2d",
    "AvgPool2d": "avg_pool2d", "AdaptiveAvgPool2d": "adaptive_avg_pool2d", "AdaptiveMaxPool2d": "adaptive_max_pool2d",
    "BatchNorm2d": "batch_norm", "LocalResponseNorm": "local_response_norm", "LayerNorm": "layer_norm",
    "LayerNorm2d": "layer_norm", "Dropout2d": "dropout",
}
OPERATIONS = {
    "cat": "concat", "mul": "multiply", "mean": "adaptive_avg_pool2d", "constant_pad_nd": "pad", "hardtanh": "relu6",
    "reshape": "flatten", "_log_softmax": "softmax", "log_softmax": "softmax", "addmm": "linear", "bmm": "matmul",
    "clamp_min": "relu",
}
# Our networks have hard sigmoids as rectifiers clipped at 6.
FAMILIES = {"hardsigmoid": "relu6", "global_avg_pool2d": "adaptive_avg_pool2d", "global_max_pool2d": "adaptive_max_pool2d"}
WRAPPERS = ("Kernel", "Kernel2", "kernel", "device_kernel", "kernel_cutlass")


class Layer(NamedTuple):
    """One of our rows."""
    name: str
    kind: str
    time_us: float
    algorithm: str
    flags: str


class Place(NamedTuple):
    """A module or operation of PyTorch's with the kernels it ran, as (operation, name, microseconds)."""
    name: str
    kind: str
    kernels: list

    def time_us(self):
        return sum(us for _, _, us in self.kernels)

    def adds_bias(self, operation):
        """Whether it is a convolution's addition of its bias, which PyTorch runs apart."""
        return self.kind == "conv2d" and operation in ("aten::add_", "aten::add")

    def bias_us(self):
        return sum(us for operation, _, us in self.kernels if self.adds_bias(operation))


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    return float(text) if text not in (None, "") else None


def configuration(row):
    """Network, mode, precision, batch and layout; training under autocast is what fp16 means there."""
    mode = MODES.get(row["mode"], row["mode"])
    precision = "fp16" if (mode, row["precision"]) == ("training", "amp") else row["precision"]
    return row["network"], mode, precision, int(row["batch"]), row["layout"]


def title(key):
    network, mode, precision, batch, layout = key
    return f"{network}, {mode}, {precision}, batch {batch}, {layout}"


def counterpart(table, key):
    """The entry of the same configuration, in another layout where there is none in this one, and what to say of it."""
    if key in table:
        return table[key], ""
    for other, value in table.items():
        if other[:4] == key[:4]:
            return value, f"PyTorch's layout is {other[4]}."
    return None, ""


def kind_of(module_kind):
    """Our kind of a module's class or an operation outside modules: its name in small letters where no other is known."""
    if module_kind in CLASSES:
        return CLASSES[module_kind]
    name = module_kind.removeprefix("aten::")
    name = name[:-1] if name.endswith("_") else name
    return OPERATIONS.get(name, name.lower())


def family(kind):
    return FAMILIES.get(kind, kind)


def short(kernel):
    """A kernel's name without return type, namespaces and arguments; what a wrapper wraps."""
    text = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    head, _, inside = text.partition("<")
    name = re.split(r"[(]", head)[0].split("::")[-1].strip()
    if name in WRAPPERS and inside:
        name = re.split(r"[<>(,]", inside)[0].split("::")[-1].strip()
    return name[:60]


def listed(place):
    """The kernels that a place ran, equal ones once."""
    counted = {}
    for operation, name, _ in place.kernels:
        text = short(name) + (" (bias, add_)" if place.adds_bias(operation) else "")
        counted[text] = counted.get(text, 0) + 1
    return " + ".join(f"`{text}`" + (f" x{n}" if n > 1 else "") for text, n in counted.items()).replace("|", "\\|")


def aligned(ours, theirs):
    """Pairs in order of execution, either side None where it stands alone: the most layers of equal kind, and among
    those the most of equal name."""

    def score(layer, place):
        return (family(layer.kind) == family(place.kind)) * (1000 + (layer.name == place.name))

    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i in reversed(range(len(ours))):
        for j in reversed(range(len(theirs))):
            both = score(ours[i], theirs[j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], both + best[i + 1][j + 1] if both else 0)
    pairs, i, j = [], 0, 0
    while i < len(ours) or j < len(theirs):
        both = score(ours[i], theirs[j]) if i < len(ours) and j < len(theirs) else 0
        if both and best[i][j] == both + best[i + 1][j + 1]:
            pairs.append((ours[i], theirs[j]))
            i, j = i + 1, j + 1
        elif j == len(theirs) or (i < len(ours) and best[i][j] == best[i + 1][j]):
            pairs.append((ours[i], None))
            i += 1
        else:
            pairs.append((None, theirs[j]))
            j += 1
    return pairs


def cell(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def ratio(a, b):
    return a / b if a is not None and b else None


def table(columns, rows):
    """A Markdown table; columns after a `:` are aligned to the right."""
    lines = ["| " + " | ".join(c.removeprefix(":") for c in columns) + " |",
             "|" + "|".join("---:" if c.startswith(":") else "---" for c in columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def flagged(value):
    return "!" if value is not None and abs(value - 1) > TOLERANCE else ""


def not_run(row):
    return not number(row["time_us"]) or "not_run" in (row.get("flags") or "")


def our_layers(rows):
    """Our layers of inference by configuration, in order of the network."""
    found = defaultdict(list)
    for row in sorted(rows, key=lambda r: int(r["index"])):
        if row["phase"] == "forward" and MODES.get(row["mode"], row["mode"]) == "inference":
            time_us = None if not_run(row) else number(row["time_us"])
            found[configuration(row)].append(
                Layer(row["layer"], row["kind"], time_us, row.get("algorithm") or "", row.get("flags") or ""))
    return dict(found)


def their_layers(rows):
    """PyTorch's modules and operations by configuration, in order of execution."""
    found = defaultdict(dict)
    for row in rows:
        places = found[configuration(row)]
        place = places.setdefault(int(row["order"]), Place(row["module"], kind_of(row["module_kind"]), []))
        calls = max(1, round(float(row["calls"])))
        place.kernels.extend([(row["op"], row["kernel"], float(row["time_us"]) / calls)] * calls)
    return {key: [places[order] for order in sorted(places)] for key, places in found.items()}


def per_layer(key, ours, theirs, note):
    """Part (a) of one configuration: every layer, then a summary by kind."""
    pairs = aligned(ours, theirs)
    rows, kinds, alone = [], {}, []
    for layer, place in pairs:
        mine, its = layer and layer.time_us, place and place.time_us()
        value = ratio(mine, its)
        kind = layer.kind if layer else place.kind
        extra = place.bias_us() if place else 0
        beside = f"{its - extra:.1f} + {extra:.1f} bias = {its:.1f}" if extra else cell(its, 1)
        if value is None:
            alone.append((kind, mine, its, "our layer not run" if layer and place else "only ours" if layer else
                          "only PyTorch"))
        else:
            kinds.setdefault(kind, []).append((mine, its))
        rows.append([layer.name if layer else place.name or "(operation)", kind,
                     "not run" if layer and mine is None else cell(mine, 1), beside, cell(value), flagged(value),
                     listed(place) if place else "",
                     "; ".join(t for t in (layer.algorithm, layer.flags) if t).replace("|", "\\|") if layer else ""])
    lines = [f"### {title(key)}\n"] + ([note + "\n"] if note else [])
    lines.append(table(["layer", "kind", ":ours us", ":PyTorch us", ":ratio", "", "PyTorch's kernels", "our algorithm"],
                       rows))

    def summary(name, matched):
        mine, its = sum(m for m, _ in matched), sum(t for _, t in matched)
        within = sum(not flagged(ratio(m, t)) for m, t in matched)
        value = ratio(mine, its)
        return [name, str(len(matched)), cell(mine, 1), cell(its, 1), cell(value), flagged(value),
                f"{within} of {len(matched)} ({100 * within / len(matched):.0f} %)" if matched else ""]

    every = [pair for matched in kinds.values() for pair in matched]
    by_kind = [summary(kind, matched) for kind, matched in
               sorted(kinds.items(), key=lambda item: -sum(t for _, t in item[1]))]
    by_kind.append(summary("**all matched**", every))
    for label in ("our layer not run", "only ours", "only PyTorch"):
        rest = [(kind, mine, its) for kind, mine, its, why in alone if why == label]
        if rest:
            what = ", ".join(sorted({kind for kind, _, _ in rest}))
            totals = [[us for us in column if us is not None] for column in list(zip(*rest))[1:]]
            by_kind.append([f"{label}: {what}", str(len(rest)), *(cell(sum(t) if t else None, 1) for t in totals),
                            "", "", ""])
    lines.append(table(["kind", ":layers", ":ours us", ":PyTorch us", ":ratio", "", ":within 10 %"], by_kind))
    value = ratio(sum(l.time_us or 0 for l in ours), sum(p.time_us() for p in theirs))
    lines.append(f"All layers, matched or not: {sum(l.time_us or 0 for l in ours) / 1e3:.3f} ms against "
                 f"{sum(p.time_us() for p in theirs) / 1e3:.3f} ms, ratio {cell(value)}.\n")
    return "\n".join(lines), (key, every, value)


def overview(found):
    """All configurations of part (a), one row each."""
    rows = []
    for key, every, value in found:
        mine, its = sum(m for m, _ in every), sum(t for _, t in every)
        within = sum(not flagged(ratio(m, t)) for m, t in every)
        close = sum(t for m, t in every if not flagged(ratio(m, t)))
        rows.append([key[0], key[2], str(key[3]), str(len(every)), cell(mine / 1e3, 3), cell(its / 1e3, 3),
                     cell(ratio(mine, its)), cell(value), f"{100 * within / max(1, len(every)):.0f} %",
                     f"{100 * close / its:.0f} %" if its else ""])
    return table(["network", "precision", ":batch", ":matched", ":ours ms", ":PyTorch ms", ":ratio", ":ratio of all",
                  ":layers within 10 %", ":time within 10 %"], rows)


def launched(rows):
    """Whole networks by configuration and launch; of several rows of one file the last."""
    found = defaultdict(dict)
    for row in rows:
        found[configuration(row)][row["launch"]] = row
    return dict(found)


def summed(rows):
    """Sums over a step's layers: burst and sustained milliseconds, the share of the latter that was measured, joules
    where watts stand for most of the time, and how many rows did not run."""
    run = [row for row in rows if not not_run(row)]
    burst = sum(number(row["time_us"]) for row in run)
    times = [(number(row.get("sustained_us")) or number(row["time_us"]), number(row.get("watts"))) for row in run]
    total = sum(time for time, _ in times)
    known = sum(time for time, watts in times if watts is not None)
    sustained = sum(number(row["sustained_us"]) for row in run if number(row.get("sustained_us")))
    joules = None
    if known > total / 2:
        spent = sum(time * watts for time, watts in times if watts is not None)
        joules = spent / known * total / 1e6
    return {"burst_ms": burst / 1e3, "ms": total / 1e3, "measured": sustained / total if total else 0.0,
            "watts_share": known / total if total else 0.0, "joules": joules, "missing": len(rows) - len(run)}


def sums_against_network(layers, networks):
    """Part (b)."""
    groups = defaultdict(list)
    for row in layers:
        groups[configuration(row)].append(row)
    rows = []
    for key, inside in groups.items():
        runs = networks.get(key, {})
        launch = "graph" if "graph" in runs else next(iter(runs), "")
        whole, total = runs.get(launch, {}), summed(inside)
        burst, ms, joules = (number(whole.get(c)) for c in ("burst_ms", "ms_per_iter", "joules_per_iter"))
        of_burst, of_ms = ratio(total["burst_ms"], burst), ratio(total["ms"], ms)
        of_joules = ratio(total["joules"], joules)
        notes = ([f"{total['missing']} rows not run"] if total["missing"] else [])
        notes += [f"{launch}, not graph"] if launch and launch != "graph" else []
        notes += ["no whole run"] if not launch else []
        notes += [f"watts for {100 * total['watts_share']:.0f} % of the time"] if total["watts_share"] else []
        rows.append([*key[:3], str(key[3]), str(len(inside)), cell(total["burst_ms"], 3), cell(burst, 3),
                     cell(of_burst) + flagged(of_burst), cell(total["ms"], 3), f"{100 * total['measured']:.0f} %",
                     cell(ms, 3), cell(of_ms) + flagged(of_ms), cell(total["joules"], 3), cell(joules, 3),
                     cell(of_joules) + flagged(of_joules), "; ".join(notes)])
    return table(["network", "mode", "precision", ":batch", ":rows", ":sum, burst ms", ":network, burst ms", ":ratio",
                  ":sum, sustained ms", ":of it measured", ":network ms", ":ratio", ":sum J", ":network J", ":ratio",
                  "notes"], rows)


def spread(values):
    """Mean of several files' values, with their range."""
    values = [value for value in values if value is not None]
    if not values:
        return None, ""
    mean = sum(values) / len(values)
    return mean, f"{mean:.3f}" + (f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else "")


def network_against_torch(ours, theirs):
    """Part (c); `theirs` is one table for each file."""
    rows = []
    for key, runs in ours.items():
        found = [(run, note) for run, note in (counterpart(file, key) for file in theirs) if run]
        if not found:
            continue

        def of(launch, column):
            return spread([number(run[launch].get(column)) for run, _ in found if launch in run])

        mine = {launch: number(runs[launch]["ms_per_iter"]) for launch in runs}
        (graph, graph_text), (eager, eager_text) = of("graph", "ms_per_iter"), of("eager", "ms_per_iter")
        best, name = (mine["graph"], "graph") if "graph" in mine else (mine.get("eager"), "eager")
        other = "graph" if graph is not None else "eager"
        (watts, _), (joules, _) = of(other, "watts"), of(other, "joules_per_iter")
        my_joules = number(runs.get(name, {}).get("joules_per_iter"))
        to_graph, to_eager, of_eager, of_joules = (ratio(best, graph), ratio(best, eager),
                                                   ratio(mine.get("eager"), eager), ratio(my_joules, joules))
        notes = sorted({note for _, note in found if note}) + ([f"{name}, not graph"] if name != "graph" else [])
        rows.append([*key[:3], str(key[3]), cell(best, 3), cell(mine.get("eager"), 3), graph_text, eager_text,
                     cell(to_graph) + flagged(to_graph), cell(to_eager) + flagged(to_eager), cell(of_eager),
                     cell(number(runs.get(name, {}).get("watts")), 0), cell(watts, 0), cell(of_joules) +
                     flagged(of_joules), "; ".join(notes)])
    return table(["network", "mode", "precision", ":batch", ":ours, graph ms", ":ours, eager ms", ":PyTorch, graph ms",
                  ":PyTorch, eager ms", ":graph to graph", ":graph to eager", ":eager to eager", ":our W", ":its W",
                  ":ratio of J", "notes"], rows)


def report(layers, torch_layers, networks, torch_networks):
    """The whole report from the rows of the files; `torch_networks` is a list of them."""
    parts = []
    if layers and torch_layers:
        mine, theirs = our_layers(layers), their_layers(torch_layers)
        texts, found, without = [], [], []
        for key, ours in mine.items():
            places, note = counterpart(theirs, key)
            if places is None:
                without.append(title(key))
                continue
            text, line = per_layer(key, ours, places, note)
            texts.append(text)
            found.append(line)
        parts.append("## (a) Layers beside PyTorch's\n\nOurs: burst. PyTorch's: device time under its profiler, all "
                     "kernels of a module. `!`: more than 10 % apart.\n")
        parts += [overview(found)] + texts
        if without:
            parts.append("Not in PyTorch's file: " + "; ".join(without) + ".\n")
        if unused := [title(key) for key in theirs if key[:4] not in {other[:4] for other in mine}]:
            parts.append("Not in ours: " + "; ".join(unused) + ".\n")
    if layers and networks:
        parts.append("## (b) Sum of our layers beside our network\n\nSustained times of layers that had none are their "
                     "burst times; layers without watts take the mean power of the others over time. Whole runs are "
                     "sustained.\n")
        parts.append(sums_against_network(layers, launched(networks)))
    if networks and torch_networks:
        parts.append("## (c) Our network beside PyTorch's\n\nOf several files the mean, and their range. Power and "
                     "energy: of graphs, eager where there is none.\n")
        parts.append(network_against_torch(launched(networks), [launched(rows) for rows in torch_networks]))
    return "\n".join(parts)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--layers", help="our layers, CSV")
    arguments.add_argument("--torch-layers", help="torch_layers.py's kernels, CSV")
    arguments.add_argument("--networks", help="our whole networks, CSV")
    arguments.add_argument("--torch-networks", nargs="+", default=[], help="torch_networks.py's rows, CSV, several")
    args = arguments.parse_args()
    print(report(*([] if path is None else read(path) for path in (args.layers, args.torch_layers, args.networks)),
                 [read(path) for path in args.torch_networks]))


if __name__ == "__main__":
    main()
