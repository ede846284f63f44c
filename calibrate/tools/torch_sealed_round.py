#!/usr/bin/env python3
"""Makes a round of sealed tests (data/sealed/README.md): exports its networks, and draws its rows by a hash.

On the CPU. Needs torch with torchvision, timm, torchaudio and transformers, onnx and onnxscript, and the program `predict`.

  torch_sealed_round.py export --folder exported --record exported.json --predict target/release/predict
  torch_sealed_round.py draw --round 1 --record exported.json --folder exported --networks 54 --out data/sealed/round-1.toml
  torch_sealed_round.py draw --round 2 --record exported.json --folder exported --after data/sealed/round-1.toml --out ...

`export` writes the networks as the program's own files, without weights; the record holds what PyTorch says of each, which
export was read, and of those that cannot be why. An export is taken where the file that is read of it has PyTorch's
parameters within 3 % and at least the multiply-accumulates of its modules. Networks that the record has are skipped; each runs
in a process of its own.

`draw` takes so many networks of those that were read, of each library its share in the order of the SHA-256 of seed and
name, and rows of each in the order of that of seed and row, kinds of rows in turn, so that nobody chooses. Networks of
earlier rounds (--after) and those that tests/sealed.rs keeps are left out. The networks' files are copied into the folder of the round's name, under nets. Rows that would not fit into 60 GiB or take longer than 0.1 s by a bound from operations and
activations are not drawn from; no prediction is asked for that.
"""
import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

# Exporter and form, the first that is read well is taken: batch norms kept, one sample or an open batch.
FORMS = (("script", "kept"), ("dynamo", "plain"), ("script", "open"), ("dynamo", "open"), ("script", "plain"))
# Where a module computes in 32 bits whatever it is given, as norms and rotations of language models do, this exporter has its
# conversions. Networks of transformers are exported so second: the first exporter has some conversions that do not run.
NARROW = ("dynamo", "plain", "bfloat16")
# Networks that are named after norms which compute in 32 bits, too, and are exported so first: the other exporter loses these.
WIDE_NORMS = ("_evos", "_frn")
SCHEMA = "sealed/1"
SEED = "joulecast sealed round {}"
BOARDS = ("h200", "h100")
# Kinds of rows, of which a network has as many as it has rows, one after the other.
LAUNCHES = ("graph", "eager", "train", "graph", "eager", "train-graph")
ROWS = 3
# Of so many networks one row more, a step that two GPUs share; each takes such a batch.
PAIRS = 28
Batches = collections.namedtuple("Batches", "inference training pairs")
POWERS_OF_TWO = Batches((1, 4, 16, 64, 256), (4, 16, 32, 64, 128), (32, 64, 128))
# Rounds from this one on are of batches between these, which libraries may run by other kernels.
BETWEEN_SINCE, BETWEEN = 27, Batches((3, 6, 12, 25, 40, 100, 200), (6, 12, 20, 48, 96), (24, 48, 96))
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# A bound of a step's time and memory on the smaller board: rates in operations per second, bytes per second.
RATES = {"fp32": 35e12, "tf32": 150e12, "fp16": 250e12, "bf16": 250e12}
BANDWIDTH, LONGEST, MOST = 1.5e12, 0.1, 60 << 30


# Of networks that a hash names: larger ones are exported for minutes, and have few steps within the bounds above.
MOST_PARAMETERS = 250e6
# An export may hold tables of positions and masks as parameters.
MOST_PARAMETERS_OFF = 0.03


def facts_of(model, sample):
    """Parameters, multiply-accumulates and bytes of activations of one sample in fp32, as PyTorch counts them."""
    import torch
    from torch import nn
    macs, activations, layers = [0], [0], [0]

    def note(module, inputs, output):
        output = output[0] if isinstance(output, tuple) else output
        if not torch.is_tensor(output):
            return
        layers[0] += 1
        activations[0] += 4 * output.numel()
        if isinstance(module, nn.modules.conv._ConvTransposeNd):
            macs[0] += inputs[0].numel() * module.weight[0].numel()
        elif isinstance(module, nn.modules.conv._ConvNd):
            macs[0] += output.numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            macs[0] += output.numel() * module.in_features
        elif isinstance(module, nn.RNNBase):
            steps = inputs[0].numel() // inputs[0].shape[-1]
            macs[0] += steps * sum(p.numel() for n, p in module.named_parameters() if n.startswith("weight"))

    handles = [m.register_forward_hook(note) for m in model.modules() if not any(True for _ in m.children())]
    with torch.no_grad():
        model(*sample)
    for handle in handles:
        handle.remove()
    return {"parameters": sum(p.numel() for p in model.parameters()), "macs": macs[0], "activations": activations[0],
            "layers": layers[0], "batch_norms": any("BatchNorm" in type(m).__name__ for m in model.modules())}


def keep_dropouts():
    """Exporters leave out what does nothing in evaluation; in training a dropout runs, and is counted there."""
    import torch
    from torch.onnx import symbolic_helper

    def dropout(g, x, p, train):
        rate = symbolic_helper._maybe_get_const(p, "f")
        if not rate:
            return x
        return g.op("Dropout", x, g.op("Constant", value_t=torch.tensor(rate, dtype=torch.float)))

    for name in ("aten::dropout", "aten::feature_dropout"):
        torch.onnx.register_custom_op_symbolic(name, dropout, 12)


def keep_contiguous():
    """Exporters leave out what changes no value; where a module asks for values side by side, views of another order are copied."""
    import torch
    from torch.onnx import symbolic_helper

    def contiguous(g, x, memory_format):
        if symbolic_helper._maybe_get_const(memory_format, "i") != 0:
            return x
        return g.op("joulecast::Contiguous", x).setType(x.type())

    torch.onnx.register_custom_op_symbolic("aten::contiguous", contiguous, 12)


def exported(model, sample, exporter, form):
    """The model's message, without weights."""
    import onnx
    import torch
    from torch_exports import strip
    # Two samples where the batch is open: one of length 1 would be taken for a constant.
    names = [f"input{i}" for i in range(len(sample))]
    if exporter == "dynamo":
        shapes = {"dynamic_shapes": tuple({0: torch.export.Dim("batch")} for _ in sample)} if form == "open" else {}
        return strip(torch.onnx.export(model, sample, dynamo=True, verbose=False, input_names=names, **shapes).model_proto)
    more = {"input_names": names}
    if form == "open":
        more |= {"output_names": ["output"], "dynamic_axes": {name: {0: "batch"} for name in names + ["output"]}}
    if form in ("kept", "open"):
        # What is computed of weights alone is kept, too: it runs in every step.
        more |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
        keep_dropouts()
        keep_contiguous()
        more |= {"custom_opsets": {"joulecast": 1}}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(model, sample, file.name, dynamo=False, **more)
        return strip(onnx.load(file.name))


def read(predict, message, name, folder):
    """What `predict` reads of a message: its parameters, multiply-accumulates and notes; its file lies in the folder."""
    onnx_file, file = os.path.join(folder, f"{name}.onnx"), os.path.join(folder, f"{name}.toml")
    with open(onnx_file, "wb") as out:
        out.write(message.SerializeToString())
    for command in (["convert", onnx_file, "--unfold-batch-norm", "--output", file, "--force"], ["describe", "--net", file]):
        done = subprocess.run([predict, *command], capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"predict {command[0]}: {done.stderr.strip().splitlines()[-1][:300]}")
    # Parameters, and multiply-accumulates in millions to four digits.
    total = re.search(r"^total +(\d+) +([\d.]+)", done.stdout, re.M)
    if not total:
        raise ValueError("predict describe says neither parameters nor multiply-accumulates")
    return file, int(total[1]), round(float(total[2]) * 1e6)


def export(name, folder, predict, pipe):
    """One network, in a process of its own; its record goes into the pipe."""
    import warnings
    import torch
    from torch_sealed_networks import NETWORKS
    # Exporters talk much; what is wrong is in the record.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    network = NETWORKS[name]
    record, failures = {"library": network.library, "inputs": [list(s) for s in network.inputs]}, []
    try:
        model = network.build().eval()
        record |= facts_of(model, network.sample(1))
    except BaseException as error:  # noqa: BLE001 - the record says it
        pipe.send(record | {"refused": f"PyTorch: {type(error).__name__}: {str(error).splitlines()[0][:200]}"})
        return
    forms = [(*form, None) for form in FORMS]
    if name.endswith(WIDE_NORMS):
        forms.insert(0, NARROW)
    elif network.library == "transformers":
        forms.insert(1, NARROW)
    for exporter, form, narrow in forms:
        label = ", ".join(filter(None, (exporter, form, narrow)))
        try:
            sample = network.sample(2 if form == "open" else 1)
            model = model.to(getattr(torch, narrow or "float32"))
            if narrow:
                sample = tuple(x.to(getattr(torch, narrow)) if x.is_floating_point() else x for x in sample)
            message = exported(model, sample, exporter, form)
            with tempfile.TemporaryDirectory() as at:
                file, parameters, macs = read(predict, message, name, at)
                if abs(parameters / record["parameters"] - 1) > MOST_PARAMETERS_OFF:
                    raise ValueError(f"{parameters} parameters are read of {record['parameters']}")
                if macs < 0.99 * record["macs"]:
                    raise ValueError(f"{macs} multiply-accumulates are read of {record['macs']}")
                with open(file, encoding="utf-8") as text:
                    content = text.read()
            with open(os.path.join(folder, f"{name}.toml"), "w", encoding="utf-8") as out:
                out.write(content)
            pipe.send(record | {"export": label, "macs_read": macs, "parameters_read": parameters, "failures": failures})
            return
        except BaseException as error:  # noqa: BLE001
            line = re.sub(r"\S*/(\S+\.onnx)", r"\1", next(iter(str(error).strip().splitlines()), ""))[:300]
            failures.append(f"{label}: {type(error).__name__}: {line}")
    pipe.send(record | {"refused": "; ".join(failures)})


def run_names(args):
    """Networks of timm that neither a round nor the zoo has named, in the order of their hashes: nobody chooses them."""
    import timm
    import torch
    from torch_sealed_networks import NETWORKS
    seed, found = SEED.format(args.round), 0
    zoo = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data", "nets")
    known = set(NETWORKS) | listed("KEPT") | {os.path.splitext(file)[0] for file in os.listdir(zoo)}
    for name in sorted(timm.list_models(), key=lambda name: hashed(seed, "name", name)):
        if found == args.networks:
            break
        if name in known:
            continue
        try:
            with torch.device("meta"):
                model = timm.create_model(name, pretrained=False)
        except RuntimeError:  # What values decide is not known there.
            model = timm.create_model(name, pretrained=False)
        parameters = sum(p.numel() for p in model.parameters())
        _, height, width = timm.get_pretrained_cfg(name, allow_unregistered=True).input_size
        if parameters <= MOST_PARAMETERS and height == width:
            found += 1
            print(f'    "{name}": timm("{name}"{"" if height == 224 else f", {height}"}),', flush=True)


def run_exports(args):
    from torch_sealed_networks import NETWORKS
    os.makedirs(args.folder, exist_ok=True)
    records = {}
    if os.path.exists(args.record):
        with open(args.record, encoding="utf-8") as file:
            records = json.load(file)
    names = args.networks.split(",") if args.networks else list(NETWORKS)
    context = multiprocessing.get_context("spawn")
    for name in names:
        if name in records and not args.again:
            continue
        began = time.monotonic()
        ours, theirs = context.Pipe(False)
        process = context.Process(target=export, args=(name, args.folder, args.predict, theirs))
        process.start()
        theirs.close()
        record = {"refused": f"stopped after {args.patience} s"}
        try:
            if ours.poll(args.patience):
                record = ours.recv()
        except EOFError:
            record = {"refused": "its process ended"}
        process.kill()
        process.join()
        records[name] = record
        with open(args.record, "w", encoding="utf-8") as file:
            json.dump(records, file, indent=1)
        said = record.get("refused") or f"{record['export']}; {record['macs_read'] / max(1, record['macs']):.3f} of the MACs"
        print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)


def hashed(seed, *parts):
    return hashlib.sha256(" ".join((seed, *map(str, parts))).encode()).hexdigest()


def bound(fact, mode, precision, batch):
    """Seconds and bytes of a step, roughly and rather too large."""
    passes, width = (3 if mode == "train" else 1), (4 if precision in ("fp32", "tf32") else 2)
    macs = max(fact["macs"], fact.get("macs_read", 0))
    traffic = 3 * passes * fact["activations"] / 4 * width * batch + 6 * passes * fact["parameters"] * 4
    seconds = 2 * macs * batch * passes / RATES[precision] + traffic / BANDWIDTH
    kept = fact["activations"] * batch * (width / 4 * 2.5 if mode == "train" else width / 4)
    return seconds, kept + fact["parameters"] * 24


def candidates(fact, launch, batches):
    """Rows that may be drawn: mode, precision, batch, launch."""
    training = launch.startswith("train")
    for precision in PRECISIONS:
        # A scaled loss cannot be captured.
        if launch == "train-graph" and precision == "fp16":
            continue
        for batch in batches.training if training else batches.inference:
            mode = "train" if training else "infer"
            seconds, bytes_ = bound(fact, mode, precision, batch)
            if seconds < LONGEST and bytes_ < MOST:
                yield mode, precision, batch, "graph" if launch in ("graph", "train-graph") else "eager"


def picked(seed, records, most):
    """So many networks, of every library its share."""
    by_library = {}
    for name in sorted(records, key=lambda name: hashed(seed, "network", name)):
        by_library.setdefault(records[name]["library"], []).append(name)
    places = {name: (i + 0.5) / len(names) for names in by_library.values() for i, name in enumerate(names)}
    order = sorted(places, key=lambda name: (places[name], hashed(seed, "network", name)))
    return {name: records[name] for name in (order[:most] if most else order)}


def drawn(seed, records, batches):
    """Rows of every network: one of each kind of three that follow each other, from a place that the hash says, each the
    first by its hash that is unlike the network's others in precision and batch."""
    rows = {}
    for name in records:
        own, at = [], int(hashed(seed, name, "turn"), 16)
        for turn in range(ROWS):
            launch = LAUNCHES[(at + turn) % len(LAUNCHES)]
            # While transformers captures a graph it hands attention a mask, with which other kernels run.
            if records[name]["library"] == "transformers":
                launch = {"graph": "eager", "train-graph": "train"}.get(launch, launch)
            free = [c for c in candidates(records[name], launch, batches) if c not in own]
            alike = lambda c: sum((c[1] == o[1]) + (c[2] == o[2]) for o in own)  # noqa: E731
            if free:
                own.append(min(free, key=lambda c: (alike(c), hashed(seed, name, *c))))
        rows[name] = own
    return rows


def listed(constant):
    """Networks of a list in tests/sealed.rs: KEPT for a later test, TEST_ALONE."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "sealed.rs"), encoding="utf-8") as file:
        found = re.search(rf"const {constant}: \[&str; (\d+)\] = \[(.*?)\];", file.read(), re.DOTALL)
    names = set(re.findall(r'"(\w+)"', found[2]))
    if len(names) != int(found[1]):
        sys.exit(f"tests/sealed.rs: {constant} is not read whole")
    return names


def shared(seed, records, batches):
    """A step that two GPUs share, of the first networks by their hash that have one."""
    rows = {}
    for name in sorted(records, key=lambda name: hashed(seed, "pair", name)):
        free = [c for c in candidates(records[name], "train", batches) if c[2] in batches.pairs]
        if free and len(rows) < PAIRS:
            rows[name] = min(free, key=lambda c: hashed(seed, "pair", name, *c))
    return rows


def run_draw(args):
    import torch
    from importlib.metadata import version
    with open(args.record, encoding="utf-8") as file:
        records = json.load(file)
    seed = SEED.format(args.round)
    earlier = listed("KEPT")
    for path in args.after:
        with open(path, "rb") as file:
            earlier |= {member["name"] for member in tomllib.load(file)["network"]}
    read_ = picked(seed, {n: r for n, r in records.items() if "refused" not in r and n not in earlier}, args.networks)
    refused = {name: r for name, r in records.items() if "refused" in r}
    batches = BETWEEN if args.round >= BETWEEN_SINCE else POWERS_OF_TWO
    rows, pairs = drawn(seed, read_, batches), shared(seed, read_, batches)
    nets = os.path.join(os.path.splitext(args.out)[0], "nets")
    os.makedirs(nets, exist_ok=True)
    for name in read_:
        shutil.copyfile(os.path.join(args.folder, f"{name}.toml"), os.path.join(nets, f"{name}.toml"))
    lines = [f"# Round {args.round} of the sealed tests: its networks, and the rows that are predicted, sealed and then measured once.",
             "# Made by calibrate/tools/torch_sealed_round.py, which says by which rule; not to be edited once it is sealed.",
             f'schema = "{SCHEMA}"', f"round = {args.round}", f'seed = "{seed}"', 'role = "test"',
             f"boards = [{', '.join(json.dumps(b) for b in BOARDS)}]", 'framework = "pytorch"',
             f'exported = "torch {torch.__version__.split("+")[0]}, ' +
             ", ".join(f"{p} {version(p)}" for p in ("torchvision", "torchaudio", "timm", "transformers")).replace("+cu130", "") + '"']
    for name in sorted(read_):
        r = read_[name]
        inputs = " and ".join("x".join(map(str, s)) for s in r["inputs"])
        lines += ["", "[[network]]", f'name = "{name}"', f'library = "{r["library"]}"', f'inputs = "{inputs}"',
                  f'export = "{r["export"]}"', f"parameters = {r['parameters']}", f"macs = {int(r['macs_read'])}"]
        rows_of = sorted(rows[name], key=lambda row: (row[0], row[3], PRECISIONS.index(row[1]), row[2]))
        lines += ["rows = ["] + [f'  {{ mode = "{m}", precision = "{p}", batch = {b}, launch = "{l}" }},'
                                 for m, p, b, l in rows_of]
        if name in pairs:
            m, p, b, l = pairs[name]
            lines.append(f'  {{ mode = "{m}", precision = "{p}", batch = {b}, launch = "{l}", gpus = 2 }},')
        lines.append("]")
    for name in sorted(refused):
        lines += ["", "[[refused]]", f'name = "{name}"', f"reason = {json.dumps(records[name]['refused'])}"]
    with open(args.out, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    kinds = {}
    for name, own in rows.items():
        for mode, precision, _, launch in own:
            for key in ((mode, launch), (precision,)):
                kinds[key] = kinds.get(key, 0) + 1
    print(f"{len(read_)} networks, {sum(map(len, rows.values()))} rows and {len(pairs)} of two GPUs, {len(refused)} refused", kinds)
    print("fewest rows:", sorted((len(own), name) for name, own in rows.items())[:8])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("export")
    one.add_argument("--folder", required=True, help="for the networks' files")
    one.add_argument("--record", required=True)
    one.add_argument("--predict", default="target/release/predict", help="the program")
    one.add_argument("--networks", help="which, by comma; all without it")
    one.add_argument("--again", action="store_true", help="also those that the record has")
    one.add_argument("--patience", type=float, default=400, help="seconds for one network")
    one.set_defaults(run=run_exports)
    two = commands.add_parser("draw")
    two.add_argument("--round", type=int, required=True)
    two.add_argument("--record", required=True)
    two.add_argument("--folder", required=True, help="where export wrote the networks' files")
    two.add_argument("--networks", type=int, default=0, help="how many; all without it")
    two.add_argument("--after", action="append", default=[], help="the file of an earlier round; may be repeated")
    two.add_argument("--out", required=True)
    two.set_defaults(run=run_draw)
    three = commands.add_parser("names", help="networks of timm that nothing has named, by their hash")
    three.add_argument("--round", type=int, required=True)
    three.add_argument("--networks", type=int, required=True, help="how many")
    three.set_defaults(run=run_names)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
