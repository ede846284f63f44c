"""A step: its names, its forms, what is wrong."""

from __future__ import annotations

import json

import pytest

import joulecast as jc


def test_the_names_are_those_of_the_document() -> None:
    step = jc.predict("resnet50", "v100", batch=64, mode="training", optimizer="adam", epochs=2, dataset_size=128)
    document = step.to_dict()
    assert document["schema"] == "prediction/1" and document == json.loads(step.to_json())
    for name, value in document.items():
        if name == "layers":
            table = getattr(step, name)
            assert table.num_rows == len(value)
            assert [row["time_s"] for row in table.to_pylist()] == [layer["time_s"] for layer in value]
        else:
            assert getattr(step, name) == value, name
    layout = jc.predict("llama3_8b", "h100", precision="bf16", batch=8, generate=16, tensor_parallel=2).to_dict()
    assert layout["layout"] and layout["generation"]["generated_tokens"] == 16
    # Nothing else is public but what shows it.
    others = {"layout", "generation", "plot", "to_dict", "to_json", "to_markdown"}
    assert {name for name in dir(step) if not name.startswith("_")} == set(document) | others


def test_what_is_read_later_is_of_the_same_step() -> None:
    for options in ({}, {"power_limit": 180}, {"clock": 1100}):
        first, again = (jc.predict("resnet50", "v100", batch=48, **options) for _ in range(2))
        figures = first.time_s, first.power_w, first.energy_j, first.core_clock_mhz, first.memory_bytes, first.fits_in_memory
        document = first.to_dict()
        for name, value in document.items():
            if name != "layers":
                assert getattr(first, name) == value, name
        names = "time_s", "power_w", "energy_j", "core_clock_mhz", "memory_bytes", "fits_in_memory"
        assert figures == tuple(document[name] for name in names)
        assert again.to_dict() == document and repr(again) == repr(first)
        assert sum(layer["time_s"] for layer in document["layers"]) == pytest.approx(first.time_s - first.waiting_s)


def test_a_result_cannot_be_changed() -> None:
    step = jc.predict("alexnet", "v100")
    with pytest.raises(AttributeError):
        step.time_s = 1.0  # type: ignore[misc]
    step.memory["weights"] = 0
    step.to_dict()["memory"]["weights"] = 0
    assert step.memory["weights"] > 0


def test_options_are_those_of_the_command_line() -> None:
    base = jc.predict("resnet50", "v100", batch=64)
    assert jc.predict("resnet50", "v100", batch=64, power_limit=200).power_w < base.power_w
    assert jc.predict("resnet50", "v100", batch=64, clock=1200).core_clock_mhz == pytest.approx(1200)
    assert jc.predict("resnet50", "v100", batch=64, training=True).mode == "training"
    assert jc.predict("resnet50", "v100", batch="max").batch > 64
    assert jc.predict("resnet50", "v100", gpus=4, batch=64).gpus == 4
    assert jc.predict("inception_v3", "p100", inputs={"image": (3, 320, 320)}).ops > jc.predict("inception_v3", "p100").ops
    eager = {"framework": "pytorch", "precision": "fp16"}
    slow, fast = (jc.predict("resnet50", "h200", host=factor, **eager) for factor in (2.0, 0.5))
    assert slow.time_s > fast.time_s and slow.host and slow.host["factor"] == 2.0
    assert jc.predict("gpt2", "h200", sequence=128, precision="fp16").ops < jc.predict("gpt2", "h200", precision="fp16").ops


def test_what_is_wrong_is_said_as_python_people_expect() -> None:
    with pytest.raises(KeyError, match='nearest: resnet50'):
        jc.predict("resnet5", "v100")
    with pytest.raises(jc.UnknownName, match='no gpu named "v10"'):
        jc.predict("resnet50", "v10")
    with pytest.raises(jc.UnknownName, match="framework"):
        jc.predict("resnet50", "v100", framework="none")
    with pytest.raises(ValueError, match="batch must be a whole number from 1"):
        jc.predict("resnet50", "v100", batch=0)
    with pytest.raises(ValueError, match="precision"):
        jc.predict("resnet50", "v100", precision="fp3")
    with pytest.raises(ValueError, match="power_limit must be a number above 0"):
        jc.predict("resnet50", "v100", power_limit=-1.0)
    with pytest.raises(ValueError, match="limit of 5"):
        jc.predict("resnet50", "v100", power_limit=5)
    with pytest.raises(TypeError, match="colour"):
        jc.predict("resnet50", "v100", colour="red")
    with pytest.raises(ValueError, match="contradict"):
        jc.predict("resnet50", "v100", mode="inference", training=True)
    with pytest.raises(TypeError, match="^missing: gpu or gpus$"):
        jc.predict("resnet50")
    with pytest.raises(FileNotFoundError, match="none.toml"):
        jc.predict("./none.toml", "v100")
    # Messages name options as Python writes them.
    with pytest.raises(ValueError, match="optimizer is of a training: mode training"):
        jc.predict("resnet50", "v100", optimizer="adam")


@pytest.mark.parametrize("batch", [-1, 2**70, -(2**70), 0, 1.5, float("nan"), None, [1, 2], b"3", "min", object()])
def test_what_is_no_batch_is_said_in_one_line(batch: object) -> None:
    with pytest.raises((TypeError, ValueError), match="^batch must be a whole number") as raised:
        jc.predict("resnet50", "v100", batch=batch)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)
    kind = ValueError if isinstance(batch, (int, str)) else TypeError
    assert raised.type is kind


def test_a_limit_or_clock_of_another_type_is_named() -> None:
    for name in ("power_limit", "clock"):
        with pytest.raises(TypeError, match=f"^{name} must be a number, not str$"):
            jc.predict("resnet50", "v100", **{name: "200"})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=f"^{name} must be a number above 0$"):
            jc.predict("resnet50", "v100", **{name: float("nan")})  # type: ignore[arg-type]


def test_several_values_come_from_anything_that_has_them() -> None:
    expected = [row["batch"] for row in jc.sweep("alexnet", "v100", batch=[1, 2, 3]).to_pylist()]
    for several in ((1, 2, 3), range(1, 4), iter([1, 2, 3]), (n for n in (1, 2, 3)), {1: 0, 2: 0, 3: 0}.keys()):
        assert [row["batch"] for row in jc.sweep("alexnet", "v100", batch=several).to_pylist()] == expected
    for empty in ([], (), range(0), iter([])):
        with pytest.raises(ValueError, match="^batch is empty: nothing is asked for"):
            jc.sweep("alexnet", "v100", batch=empty)
    with pytest.raises(ValueError, match="^net is empty"):
        jc.sweep([], "v100")
    with pytest.raises(ValueError, match="^gpu is empty"):
        jc.compare("alexnet", [], batch=1)


def test_options_that_mean_nothing_here_are_refused() -> None:
    for ask, option, instead in (
        (lambda **o: jc.predict("vgg16", "v100", **o), "power_cap", "that is power_limit"),
        (lambda **o: jc.sweep("vgg16", "v100", **o), "power_cap", "that is power_limit"),
        (lambda **o: jc.predict("llama3_8b", "h100", **o), "layouts", "that is layouts"),
        (lambda **o: jc.predict("vgg16", "v100", **o), "layers", "are its .layers"),
        (lambda **o: jc.predict("vgg16", "v100", **o), "format", "results are values"),
        (lambda **o: jc.sweep("vgg16", "v100", **o), "output", "results are values"),
        (lambda **o: jc.predict("vgg16", "v100", **o), "help", "results are values"),
    ):
        with pytest.raises(TypeError, match=f"^there is no option {option} here: .*{instead}"):
            ask(**{option: 150})


def test_what_is_wrong_in_options_is_said_in_the_words_of_python() -> None:
    with pytest.raises(TypeError, match="^there is no option precison; nearest: precision$"):
        jc.predict("vgg16", "v100", precison="fp16")
    with pytest.raises(ValueError, match="^invalid value '16' for 'precision': must be one of fp32"):
        jc.predict("vgg16", "v100", precision=16)
    with pytest.raises(TypeError, match="^missing: prompt, answer$"):
        jc.serve("llama3_8b", "h100", rate=2)
    with pytest.raises(ValueError, match="^the argument 'rate' cannot be used with 'concurrency'$"):
        jc.serve("llama3_8b", "h100", rate=2, concurrency=2, prompt=16, answer=16)
    with pytest.raises(ValueError, match="^invalid value '1,2' for 'shard': a part of so many, as in 1/4$"):
        jc.sweep("vgg16", "v100", shard=(1, 2))
    for training in ("no", [True, False], 2):
        with pytest.raises(TypeError, match="^training is True or False, not "):
            jc.predict("vgg16", "v100", training=training)
    for shape in (320, ("a", 1), None):
        with pytest.raises(TypeError, match=r"^the shape of image is whole numbers, as in \(3, 224, 224\), not "):
            jc.predict("vgg16", "v100", inputs={"image": shape})
    for one in (jc.predict, jc.optimize, jc.serve, jc.layouts):
        with pytest.raises(TypeError, match="^gpu is one name or file, not list: "):
            one("vgg16", ["v100", "t4"])
    with pytest.raises(FileNotFoundError, match="none.onnx"):
        jc.load("none.onnx")
    with pytest.raises(ValueError, match="^mine/config.json: vocab_size is missing$"):
        jc.load({"model_type": "llama"}, name="mine")
    with pytest.raises(TypeError, match=r"serve\(\) finds the setting"):
        jc.optimize("llama3_8b", "h100", prompt=128, answer=32, tpot="50ms")


def test_what_has_no_names_and_what_draws_no_bar_is_refused() -> None:
    with pytest.raises(TypeError, match="^inputs are shapes by name"):
        jc.predict("resnet50", "v100", inputs=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="^progress is True, or what makes a bar"):
        jc.sweep("alexnet", "v100", progress=3)  # type: ignore[arg-type]


def test_lists_of_names_are_named_as_functions() -> None:
    with pytest.raises(jc.UnknownName, match=r"joulecast.nets\(\) shows all"):
        jc.predict("qqqqqqqq", "v100")
    with pytest.raises(jc.UnknownName, match=r"joulecast.gpus\(\) shows all"):
        jc.predict("alexnet", "qqqqqqqq")


def test_notebooks_show_tables_and_a_figure() -> None:
    html = jc.predict("vgg16", "v100", batch=64)._repr_html_()
    for part in ('<div class="joulecast">', "vgg16 on v100", "<td>time</td>", "conv1_2", "<details>", "<svg", "<li>"):
        assert part in html, part
    assert "<script" not in html and "http://www.w3.org/2000/svg" in html
    assert "prefill" in jc.predict("gpt2", "h200", precision="fp16", sequence=128, generate=8)._repr_html_()


def test_a_figure_is_saved(tmp_path) -> None:  # type: ignore[no-untyped-def]
    figure = jc.predict("vgg16", "v100", batch=64).plot()
    figure.save(tmp_path / "vgg16.svg")
    assert (tmp_path / "vgg16.svg").read_text().startswith("<svg") and figure._repr_svg_() == figure.svg
    with pytest.raises(ValueError, match="^figures are SVG: .* not in .png$"):
        figure.save(tmp_path / "vgg16.png")
    assert not (tmp_path / "vgg16.png").exists()


def test_threads_predict_side_by_side() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        times = set(pool.map(lambda _: jc.predict("resnet50", "v100", batch=64).time_s, range(32)))
    assert len(times) == 1
