"""Reads models of torchvision, timm and transformers as a live module and writes a table of what came of it.

    python predict/python/tools/models_table.py [--only NAME,...] [--exports DIR [--made]] [--output predict/python/models.csv]

Needs torch, torchvision, timm, transformers, onnx and onnxscript (CPU is enough); weights are not downloaded. A row says: whether the
module was read; its parameters, those of them that this pass reads (a mask token is of training alone), and ours; multiply-accumulates
as we count them and as the zoo's definition has them; time and energy of a step on an H200 (fp16, batch 64, through the PyTorch
profile) from the module, and relative to the file that torch.onnx.export writes by itself, and to the zoo's network of that name, where
there is one. What is exported is kept in the folder of --exports, without weights, so that rows are made anew in seconds; with --made
only of what is there, and other rows stay as the table has them: their column `torch`, the version that exported, is another's or empty.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import sys
import tempfile
import time
import warnings
from typing import Any, Callable, Dict, Iterator, List, Tuple

import onnx
import torch

import joulecast as jc

warnings.filterwarnings("ignore")

COLUMNS = [
    "library", "model", "read", "parameters", "parameters_used", "parameters_read", "gmac", "gmac_zoo", "time_ms", "energy_j", "time_to_onnx", "energy_to_onnx",
    "zoo", "time_to_zoo", "energy_to_zoo", "export_s", "torch", "error",
]  # fmt: skip

TORCHVISION = """alexnet convnext_tiny convnext_small convnext_base densenet121 densenet161 densenet169 densenet201 efficientnet_b0
efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_v2_s googlenet inception_v3 mnasnet0_5 mnasnet0_75
mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_x_800mf regnet_x_1_6gf regnet_x_3_2gf
regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d
resnext101_32x8d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 squeezenet1_0 squeezenet1_1 swin_t swin_s swin_v2_t vgg11
vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 wide_resnet50_2 maxvit_t""".split()
SEGMENTATION = "fcn_resnet50 deeplabv3_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large".split()
TIMM = """cait_s24_224 coat_tiny coatnet_0_rw_224 convmixer_768_32 convnextv2_tiny crossvit_15_240 cspresnet50 darknet53 davit_tiny deit3_small_patch16_224 dla60 dpn68 efficientformer_l1
efficientvit_b1 eva02_tiny_patch14_224 fbnetc_100 ghostnetv2_100 gmlp_s16_224 hardcorenas_a hgnet_tiny
hrnet_w18 inception_next_tiny inception_resnet_v2 inception_v4 lcnet_100 levit_128 mixer_b16_224 mixnet_s mobilenetv4_conv_small
mobileone_s1 mobilevit_s mobilevitv2_100 mvitv2_tiny nfnet_l0 pit_s_224 poolformer_s12 regnety_008 resmlp_12_224 resnest50d resnet26d rexnet_100 sebotnet33ts_256 selecsls60 semnasnet_100 seresnet50 skresnet34 spnasnet_100
swinv2_tiny_window8_256 tf_efficientnetv2_b0 tinynet_a tnt_s_patch16_224 tresnet_m visformer_small volo_d1_224 vovnet39a
xception41 xcit_small_12_p16_224""".split()
# By their configurations, each as the family's own default but smaller where that takes longer than it tells.
TRANSFORMERS = """albert bert camembert clip_text_model convbert data2vec-text deberta-v2 electra ernie flaubert funnel gpt2
gpt_neo gpt_neox gptj layoutlm longformer mobilebert mpnet nystromformer opt roberta roformer squeezebert xlm-roberta llama mistral qwen2
qwen3 gemma phi vit deit beit dinov2 convnext swin resnet regnet mobilenet_v2 segformer poolformer levit""".split()


def vision(library: str, names: list[str]) -> Iterator[Tuple[str, str, Callable[[], Tuple[Any, Any]]]]:
    def made(name: str) -> Callable[[], Tuple[Any, Any]]:
        def make() -> Tuple[Any, Any]:
            if library == "timm":
                import timm

                module = timm.create_model(name, pretrained=False)
                return module, torch.zeros(1, *module.default_cfg["input_size"])
            import torchvision

            if name in SEGMENTATION:
                module = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)
                return module, torch.zeros(1, 3, 520, 520)
            options: Dict[str, Any] = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
            module = getattr(torchvision.models, name)(weights=None, **options)
            size = {"inception_v3": 299, "efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300, "efficientnet_b4": 380}
            side = size.get(name, 256 if name == "swin_v2_t" else 224)
            return module, torch.zeros(1, 3, side, side)

        return make

    for name in names:
        yield library, name, made(name)


def texts() -> Iterator[Tuple[str, str, Callable[[], Tuple[Any, Any]]]]:
    def made(name: str) -> Callable[[], Tuple[Any, Any]]:
        def make() -> Tuple[Any, Any]:
            import transformers
            from transformers.initialization import no_init_weights

            config = transformers.AutoConfig.for_model(name)
            for layers in ("num_hidden_layers", "n_layer", "num_layers", "n_layers"):
                if isinstance(getattr(config, layers, None), int) and getattr(config, layers) > 4:
                    setattr(config, layers, 4)
            config.use_cache = False
            # What large weights are is not asked, and drawing them takes minutes.
            with no_init_weights():
                module = transformers.AutoModel.from_config(config).eval()
            if module.main_input_name == "pixel_values":
                size = getattr(config, "image_size", 224)
                return module, {"pixel_values": torch.zeros(1, getattr(config, "num_channels", 3), size, size)}
            return module, {"input_ids": torch.ones(1, 128, dtype=torch.long)}

        return make

    for name in TRANSFORMERS:
        yield "transformers", name, made(name)


def told(why: Exception) -> str:
    """An error in a line, without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", f"{type(why).__name__}: {' '.join(str(why).split())}")[:200]


def exported(library: str, name: str, make: Callable[[], Tuple[Any, Any]], folder: str) -> Dict[str, Any]:
    """What is known of a module without reading its graph: `parameters`, `used`, `export_s`, or an `error`. Its graphs are in the folder
    from then on: NAME.onnx as `jc.export` makes it, NAME.plain.onnx as `torch.onnx.export` does."""
    base = os.path.join(folder, f"{library}-{name}")
    if os.path.exists(base + ".json"):
        with open(base + ".json") as file:
            known: Dict[str, Any] = json.load(file)
            return known
    facts: Dict[str, Any] = {"torch": torch.__version__.split("+")[0]}
    try:
        module, example = make()
    except Exception as why:  # noqa: BLE001: a model that the library itself does not make
        facts["error"] = "not made: " + told(why)
    else:
        module.eval()
        # As of a model that was trained: exporters leave zeros out and share ones.
        with torch.no_grad():
            for value in [*module.parameters(), *module.buffers()]:
                if value.ndim == 1 and value.is_floating_point():
                    value.uniform_(0.5, 1.5)
        # Shared values once, as torch lists them.
        learned = {known: value.numel() for known, value in module.named_parameters()}
        facts["parameters"] = sum(learned.values())
        try:
            for options, ending in (({}, ".onnx"), ({"optimize": True}, ".plain.onnx")):
                began = time.process_time()
                content, _ = jc.export(module, example, name=name, **options)
                facts.setdefault("export_s", round(time.process_time() - began, 1))
                with open(base + ending, "wb") as out:
                    out.write(content)
                if not options:
                    there = {initializer.name for initializer in onnx.load_from_string(content).graph.initializer}
                    facts["used"] = sum(count for known, count in learned.items() if known in there)
        except Exception as why:  # noqa: BLE001: what any library raises is a row
            facts["error"] = told(why)
    with open(base + ".json", "w") as file:
        json.dump(facts, file)
    return facts


def macs(net: Any) -> float:
    return sum(layer["macs"] or 0 for layer in jc.describe(net).to_pylist()) / 1e9


def row(library: str, name: str, facts: Dict[str, Any], folder: str, zoo: set[str]) -> Dict[str, Any]:
    result: Dict[str, Any] = {"library": library, "model": name, "read": False, "error": facts.get("error")}
    result.update(parameters=facts.get("parameters"), parameters_used=facts.get("used"), export_s=facts.get("export_s"), torch=facts.get("torch"))
    base = os.path.join(folder, f"{library}-{name}")
    if not os.path.exists(base + ".onnx"):
        return result
    try:
        with open(base + ".onnx", "rb") as file:
            net = jc.Network(file.read(), name, "onnx", True)
        how: Dict[str, Any] = {"batch": 64, "precision": "fp16", "framework": "pytorch"}
        step = jc.predict(net, "h200", **how)
        result.update(read=True, parameters_read=step.parameters, time_ms=step.time_s * 1e3, energy_j=step.energy_j)
        result["gmac"] = macs(net)
        if os.path.exists(base + ".plain.onnx"):
            plain = jc.predict(base + ".plain.onnx", "h200", **how)
            result.update(time_to_onnx=step.time_s / plain.time_s, energy_to_onnx=step.energy_j / plain.energy_j)
        if library == "torchvision" and name in zoo:
            theirs = jc.predict(name, "h200", **how)
            result.update(zoo=name, time_to_zoo=step.time_s / theirs.time_s, energy_to_zoo=step.energy_j / theirs.energy_j)
            result["gmac_zoo"] = macs(name)
    except Exception as why:  # noqa: BLE001
        result["error"] = told(why)
    return result


def models() -> Iterator[Tuple[str, str, Callable[[], Tuple[Any, Any]]]]:
    yield from vision("torchvision", TORCHVISION + SEGMENTATION)
    yield from texts()
    yield from vision("timm", TIMM)


def within(row: Dict[str, Any], names: List[str]) -> bool:
    return all(row.get(name) is not None and abs(float(row[name]) - 1) <= 0.01 for name in names)


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--exports", help="a folder that keeps what is exported")
    parser.add_argument("--made", action="store_true", help="only rows of what is in the folder of --exports; others are kept")
    parser.add_argument("--output", default=os.path.join(here, "..", "models.csv"))
    asked = parser.parse_args()
    only = set(filter(None, asked.only.split(",")))
    zoo = {net["name"] for net in jc.nets().to_pylist()}
    rows: List[Dict[str, Any]] = []
    before: Dict[Tuple[str, str], Dict[str, Any]] = {}
    if asked.made:
        with open(asked.output, newline="") as file:
            before = {(line["library"], line["model"]): line for line in csv.DictReader(file)}
    with tempfile.TemporaryDirectory() as temporary, open(asked.output, "w", newline="") as file:
        folder = asked.exports or temporary
        os.makedirs(folder, exist_ok=True)
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for library, name, make in models():
            if only and name not in only:
                continue
            if asked.made and not os.path.exists(os.path.join(folder, f"{library}-{name}.json")):
                if (library, name) in before:
                    writer.writerow(before[library, name])
                continue
            made = row(library, name, exported(library, name, make, folder), folder, zoo)
            rows.append(made)
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in made.items()})
            file.flush()
            print(library, name, "read" if made["read"] else made.get("error"), file=sys.stderr)
            gc.collect()
    read = [r for r in rows if r["read"]]
    exact = [r for r in read if r["parameters_used"] == r["parameters_read"]]
    known = [r for r in read if r.get("zoo")]
    alike = [r for r in known if abs(r["gmac"] / r["gmac_zoo"] - 1) <= 0.01]
    print(
        f"{len(rows)} models, {len(read)} read, parameters exact of {len(exact)}; {sum(within(r, ['time_to_onnx', 'energy_to_onnx']) for r in read)}"
        f" as the file of torch.onnx.export; of {len(known)} in the zoo {len(alike)} with its multiply-accumulates, "
        f"{sum(within(r, ['time_to_zoo', 'energy_to_zoo']) for r in known)} with its time and energy within 1 %"
    )


if __name__ == "__main__":
    main()
