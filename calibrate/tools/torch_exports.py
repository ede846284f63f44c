#!/usr/bin/env python3
"""Networks of torchvision, timm and transformers as ONNX files, as PyTorch's two exporters write them, without weights.

On the CPU. Needs torch, onnx and onnxscript, and torchvision, timm and transformers for their networks. Networks are
freshly built, not trained, in eval mode: what one exports where only shapes matter.

  torch_exports.py --out exports.tar.gz --facts exports.json
  torch_exports.py --out some.tar.gz --facts some.json --networks resnet50,vit_b_16 --forms plain,open

Forms of a file `NETWORK.EXPORTER.FORM.onnx`, EXPORTER being `dynamo` (torch.export) or `script` (TorchScript):

  plain   torch.onnx.export(network, input), nothing else said, one sample
  open    the same with an open batch
  kept    batch norms kept (TorchScript's exporter only: training=PRESERVE)

Initializers and constants of more than a few elements keep name, type and shape and point to a file that does not
exist. Of what is only said for readers, the metadata that tell the modules and the rewriting rules stay.

The facts of a file: parameters, modules that ran by class, multiply-accumulates of convolutions and linear modules as
PyTorch counts them, versions, or the error. One process per file: one that fails or hangs takes no other along.
"""
import argparse
import collections
import importlib
import io
import json
import multiprocessing
import os
import re
import sys
import tarfile
import tempfile
import time
import traceback
import warnings

# What a network is called here: where it comes from, its name there, the side of its image.
TORCHVISION = {name: 224 for name in (
    "alexnet vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg19 resnet18 resnet34 resnet50 resnet101 resnet152 "
    "resnext50_32x4d resnext101_32x8d wide_resnet50_2 wide_resnet101_2 squeezenet1_0 squeezenet1_1 densenet121 "
    "densenet169 densenet201 googlenet mobilenet_v2 mobilenet_v3_large mobilenet_v3_small mnasnet0_5 mnasnet1_0 "
    "efficientnet_b0 regnet_x_400mf regnet_x_800mf regnet_y_400mf regnet_y_1_6gf convnext_tiny swin_t vit_b_16 "
    "vit_b_32 swin_s convnext_small shufflenet_v2_x1_0").split()}
TORCHVISION.update({"inception_v3": 299, "efficientnet_b1": 240, "efficientnet_b2": 288})
TIMM = {"mobilenetv1_100": 224, "inception_v4": 299, "resnet50": 224, "vit_base_patch16_224": 224,
        "swin_tiny_patch4_window7_224": 224, "mobilenetv3_large_100": 224, "densenet121": 224, "convnext_tiny": 224}
# Hidden size, layers, heads.
LANGUAGE = {"bert_base": (768, 12, 12), "bert_large": (1024, 24, 16), "gpt2": (768, 12, 12)}
SEQUENCE = 128

# Of node metadata: what says which module and which rewriting rule a node comes from.
KEPT_METADATA = ("pkg.onnxscript.rewriter.rule_name", "pkg.torch.onnx.class_hierarchy", "pkg.torch.onnx.name_scopes")
MOST_REALS, MOST_WHOLES = 64, 4096
ABSENT = "weights.bin"


def networks():
    """All networks by the name of their files."""
    known = {name: ("torchvision", name, side) for name, side in TORCHVISION.items()}
    known.update({f"timm_{name}": ("timm", name, side) for name, side in TIMM.items()})
    known.update({name: ("transformers", name, SEQUENCE) for name in LANGUAGE})
    return known


def build(library, name, size):
    """The network and one input for it."""
    import torch
    torch.manual_seed(0)
    if library == "torchvision":
        models = importlib.import_module("torchvision.models")
        # Their default draws from SciPy's truncated normal distribution, for minutes.
        quick = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        return getattr(models, name)(weights=None, **quick).eval(), torch.randn(1, 3, size, size)
    if library == "timm":
        return importlib.import_module("timm").create_model(name, pretrained=False).eval(), torch.randn(1, 3, size, size)
    transformers = importlib.import_module("transformers")
    hidden, layers, heads = LANGUAGE[name]
    if name.startswith("bert"):
        config = transformers.BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                         intermediate_size=4 * hidden)
        make = transformers.BertModel
    else:
        config = transformers.GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads)
        make = transformers.GPT2LMHeadModel
    config.use_cache, config.return_dict = False, False
    return make(config).eval(), torch.randint(0, 1000, (1, size))


def facts_of(network, example):
    """What PyTorch itself says of a network."""
    import torch
    classes, macs, handles = collections.Counter(), [0], []

    def note(module, inputs, output):
        classes[type(module).__name__] += 1
        if isinstance(module, torch.nn.modules.conv._ConvNd):
            macs[0] += output.numel() * module.weight[0].numel()
        elif isinstance(module, torch.nn.Linear):
            macs[0] += output.numel() * module.in_features

    for module in network.modules():
        if not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(note))
    with torch.no_grad():
        network(example)
    for handle in handles:
        handle.remove()
    parameters = sum(p.numel() for p in network.parameters())
    # Heads that only training uses are in no export.
    unused = sum(p.numel() for n, p in network.named_parameters() if re.match(r"(aux|AuxLogits)", n))
    return {"parameters": parameters, "parameters_of_inference": parameters - unused, "modules": dict(classes),
            "macs_of_modules": macs[0]}


def exported(network, example, exporter, form):
    """The model's message."""
    import onnx
    import torch
    if exporter == "dynamo":
        shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if form == "open" else {}
        if form == "open":
            example = torch.cat([example, example])
        program = torch.onnx.export(network, (example,), dynamo=True, verbose=False, **shapes)
        return program.model_proto
    more = {}
    if form == "open":
        more = {"input_names": ["input"], "output_names": ["output"],
                "dynamic_axes": {"input": {0: "batch"}, "output": {0: "batch"}}}
    elif form == "kept":
        more = {"training": torch.onnx.TrainingMode.PRESERVE}
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        torch.onnx.export(network, (example,), file.name, dynamo=False, **more)
        return onnx.load(file.name)


def strip_tensor(tensor):
    """Takes a tensor's values out, unless they may be a shape or a factor."""
    from onnx import TensorProto
    count = 1
    for dim in tensor.dims:
        count *= dim
    reals = tensor.data_type in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    tensor.ClearField("doc_string")
    if count <= (MOST_REALS if reals else MOST_WHOLES) or tensor.data_type == TensorProto.STRING:
        return
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", ABSENT


def strip_graph(graph):
    """Takes weights, values' shapes in between, and what is only said for readers out of a graph and its branches."""
    for field in ("doc_string", "value_info", "quantization_annotation", "metadata_props"):
        graph.ClearField(field)
    for value in list(graph.input) + list(graph.output):
        value.ClearField("doc_string")
        value.ClearField("metadata_props")
    for tensor in graph.initializer:
        tensor.ClearField("metadata_props")
        strip_tensor(tensor)
    for node in graph.node:
        strip_node(node)


def strip_node(node):
    node.ClearField("doc_string")
    kept = [(p.key, p.value) for p in node.metadata_props if p.key in KEPT_METADATA]
    node.ClearField("metadata_props")
    for key, value in kept:
        entry = node.metadata_props.add()
        entry.key, entry.value = key, value
    for attribute in node.attribute:
        attribute.ClearField("doc_string")
        if attribute.HasField("t"):
            strip_tensor(attribute.t)
        for tensor in attribute.tensors:
            strip_tensor(tensor)
        if attribute.HasField("g"):
            strip_graph(attribute.g)
        for graph in attribute.graphs:
            strip_graph(graph)


def strip(model):
    model.ClearField("doc_string")
    model.ClearField("metadata_props")
    strip_graph(model.graph)
    for function in model.functions:
        function.ClearField("doc_string")
        for node in function.node:
            strip_node(node)
    return model


def job(file, library, name, size, exporter, form, folder):
    """One export, in a process of its own: the file and its facts."""
    start = time.monotonic()
    record = {"file": file, "library": library, "network": name, "size": size, "exporter": exporter, "form": form}
    # Exporters talk much; what is wrong is in the facts.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        import torch
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        network, example = build(library, name, size)
        record.update(facts_of(network, example))
        if form == "kept" and not any("BatchNorm" in name for name in record["modules"]):
            raise ValueError("no batch norm to keep: the same file as plain")
        model = exported(network, example, exporter, form)
        record["opset"] = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=None)
        record["producer"] = f"{model.producer_name} {model.producer_version}"
        rules = collections.Counter(p.value for n in model.graph.node for p in n.metadata_props
                                    if p.key == KEPT_METADATA[0])
        record["rules"], record["operators"] = dict(rules), dict(collections.Counter(n.op_type for n in model.graph.node))
        data = strip(model).SerializeToString()
        record["bytes"] = len(data)
        with open(os.path.join(folder, file), "wb") as out:
            out.write(data)
    except BaseException as error:  # Whatever it is, the others go on and the table says it.
        record["error"] = f"{type(error).__name__}: {error}"[:2000]
        record["trace"] = traceback.format_exc()[-2000:]
    record["seconds"] = round(time.monotonic() - start, 1)
    with open(os.path.join(folder, file + ".json"), "w", encoding="utf-8") as out:
        json.dump(record, out)


def versions():
    found = {"python": sys.version.split()[0]}
    for library in ("torch", "torchvision", "timm", "transformers", "onnx", "onnxscript", "onnx_ir"):
        try:
            found[library] = getattr(importlib.import_module(library), "__version__", "?")
        except Exception as error:  # A library that is not there is said, and its networks fail one by one.
            found[library] = f"missing: {type(error).__name__}: {error}"[:300]
    return found


def run(jobs, folder, workers, budget, patience):
    """Runs the jobs, so many at once, each for so long, all for so long. Returns what was not finished."""
    context, start = multiprocessing.get_context("fork"), time.monotonic()
    waiting, running, lost = collections.deque(jobs), {}, {}
    while waiting or running:
        late = time.monotonic() - start > budget
        if late:
            lost.update({item[0]: "not begun: out of time" for item in waiting})
            waiting.clear()
        while waiting and len(running) < workers:
            item = waiting.popleft()
            process = context.Process(target=job, args=(*item, folder))
            process.start()
            running[item[0]] = (process, time.monotonic())
        for file, (process, began) in list(running.items()):
            if not process.is_alive():
                process.join()
                if process.exitcode != 0:
                    lost[file] = f"its process ended with {process.exitcode}"
                del running[file]
            elif late or time.monotonic() - began > patience:
                process.kill()
                process.join()
                lost[file] = f"stopped after {time.monotonic() - began:.0f} s"
                del running[file]
        time.sleep(0.05)
    return lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the archive, .tar.gz")
    parser.add_argument("--facts", required=True, help="the facts, .json")
    parser.add_argument("--networks", help="which, by comma; all without it")
    parser.add_argument("--forms", default="plain,open,kept")
    parser.add_argument("--workers", type=int, default=min(16, os.cpu_count() or 1))
    parser.add_argument("--budget", type=float, default=270, help="seconds after which nothing more is run")
    parser.add_argument("--patience", type=float, default=150, help="seconds for one file")
    args = parser.parse_args()
    known = networks()
    chosen = args.networks.split(",") if args.networks else list(known)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        parser.error(f"not known: {', '.join(unknown)}; known are {', '.join(known)}")
    forms = {"plain": ("dynamo", "script"), "open": ("dynamo", "script"), "kept": ("script",)}
    jobs = []
    for form in args.forms.split(","):
        for exporter in forms[form]:
            for name in chosen:
                library, there, size = known[name]
                jobs.append((f"{name}.{exporter}.{form}.onnx", library, there, size, exporter, form))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # Imported once: the processes below are copies of this one.
    found = versions()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        lost = run(jobs, folder, args.workers, args.budget, args.patience)
        records = []
        with tarfile.open(args.out, "w:gz") as archive:
            for file, library, there, size, exporter, form in jobs:
                path = os.path.join(folder, file)
                try:
                    with open(path + ".json", encoding="utf-8") as facts:
                        records.append(json.load(facts))
                except (OSError, ValueError):
                    records.append({"file": file, "library": library, "network": there, "size": size,
                                    "exporter": exporter, "form": form, "error": lost.get(file, "left nothing")})
                if "error" not in records[-1]:
                    with open(path, "rb") as data:
                        content = data.read()
                    entry = tarfile.TarInfo(file)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    with open(args.facts, "w", encoding="utf-8") as out:
        json.dump({"schema": "exports/1", "versions": found, "files": records}, out, indent=1)
    failed = [r for r in records if "error" in r]
    for record in failed:
        print(f"{record['file']}: {record['error'].splitlines()[0][:200]}")
    print(f"{len(records) - len(failed)} of {len(records)} files in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
