"""What a network may be."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import joulecast as jc

OURS = b"""
schema = "network/1"
name = "mine"
title = "A network of one layer"
source = "this test"
layers = [{ name = "conv1", kind = "conv2d", channels = 8, kernel = 3 }]

[inputs]
image = { shape = [3, 32, 32] }
"""

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 100,
}


def test_onnx_by_path_bytes_and_load(onnx_file: Path) -> None:
    by_path = jc.predict(onnx_file, "v100", batch=8)
    by_name = jc.predict(str(onnx_file), "v100", batch=8)
    by_bytes = jc.predict(onnx_file.read_bytes(), "v100", batch=8)
    loaded = jc.load(onnx_file)
    assert (loaded.name, loaded.source, loaded.parameters) == ("resnet50", "onnx", by_path.parameters)
    steps = [by_path, by_name, by_bytes, jc.predict(loaded, "v100", batch=8)]
    assert len({(step.time_s, step.energy_j, step.parameters, step.source) for step in steps}) == 1


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    ops = []
    for channels in (b"channels = 8", b"channels = 9", b"channels = 8"):
        path.write_bytes(OURS.replace(b"channels = 8", channels))
        steps = [jc.predict(path, "v100", batch=batch) for batch in (8, 8, 16)]
        assert steps[0].ops == steps[1].ops == steps[2].ops // 2
        ops.append(steps[0].ops)
    assert ops[0] == ops[2] and ops[0] * 9 == ops[1] * 8
    path.unlink()
    with pytest.raises(FileNotFoundError):
        jc.predict(path, "v100", batch=8)


def test_our_files_and_caffes() -> None:
    caffe = b'name: "small"\ninput: "data"\ninput_shape { dim: 1 dim: 3 dim: 8 dim: 8 }\n' + (
        b'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }\n'
    )
    assert (jc.load(caffe).source, jc.load(caffe).parameters) == ("prototxt", 3 * 3 * 3 * 4 + 4)
    ours = jc.load(OURS)
    assert (ours.name, ours.source, ours.parameters) == ("mine", "file", 3 * 3 * 3 * 8 + 8)
    step = jc.predict(ours, "t4", training=True)
    assert {layer["name"] for layer in step.layers.to_pylist()} == {"conv1"}


def test_a_config_of_hugging_face() -> None:
    step = jc.predict(LLAMA, "h100", precision="bf16", generate=4)
    assert step.source == "huggingface" and step.network == "llama" and step.parameters > 0
    assert jc.load(LLAMA, name="a/b,c").name == "b_c"
    with pytest.raises(ValueError, match="model_type"):
        jc.predict({"layers": 3}, "h100")


def test_what_is_no_network_is_refused() -> None:
    for wrong, why in ((b"", "empty"), (b"\x00\x01\x02", "no network"), (b"\x08\xff\xff", "network.onnx"), (b"[inputs]\n", "toml")):
        with pytest.raises(ValueError, match=why):
            jc.predict(wrong, "v100")
    for wrong_type in (3, None, 2.5, object()):
        with pytest.raises(TypeError, match="a network is a name"):
            jc.predict(wrong_type, "v100")
    with pytest.raises(TypeError, match="no load"):
        jc.load("resnet50")


def test_the_place_of_what_is_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="network.toml.*line 3"):
        jc.predict(b'schema = "network/1"\nname = "a"\nlayers = [\n', "v100")


def test_networks_in_memory_are_forgotten() -> None:
    network = jc.load(LLAMA)
    typed = network._typed
    assert jc.predict(typed, "h100").network == "llama"
    del network
    gc.collect()
    with pytest.raises((ValueError, FileNotFoundError)):
        jc.predict(typed, "h100")


def test_several_at_once(onnx_file: Path) -> None:
    nets = [jc.load(onnx_file), jc.load(LLAMA), "alexnet"]
    rows = jc.sweep(nets, "v100", batch=[1, 2]).to_pylist()
    assert [row["network"] for row in rows] == ["resnet50"] * 2 + ["llama"] * 2 + ["alexnet"] * 2
    assert all(row["error"] is None for row in rows)
