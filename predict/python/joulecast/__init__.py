"""Time, power and energy of neural networks on GPUs, before anything runs.

>>> import joulecast as jc
>>> step = jc.predict("resnet50", "v100", batch=64)
>>> step.network, step.batch, step.fits_in_memory
('resnet50', 64, True)
>>> step.time_s_p05 < step.time_s < step.time_s_p95
True

Options have the names of the command line's, with underscores: `joulecast predict --help` lists them all.
"""

from __future__ import annotations

import os

# As `os` has it: `collections` takes longer to import.
from _collections_abc import Mapping as _Mapping

from . import _joulecast
from ._errors import UnknownName
from ._figure import Figure
from ._joulecast import Answer, Network, Prediction, Table, __version__, gpus, nets
from ._net import export, resolve as _resolve

# What only type checkers read takes longer to import than all else.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

    from ._measure import MeasureError, measure

    _Net = Any
    _Nets = Union[_Net, Sequence[_Net]]

__all__ = [
    "Answer",
    "Figure",
    "MeasureError",
    "Network",
    "Prediction",
    "Table",
    "UnknownName",
    "__version__",
    "compare",
    "describe",
    "export",
    "gpus",
    "layouts",
    "load",
    "map_table",
    "measure",
    "nets",
    "optimize",
    "plan",
    "predict",
    "serve",
    "sweep",
]

_NAMES = {"power_limit": "power-cap"}
# Options of the command line that mean nothing to a function, and what stands for them. They would be passed over in silence.
_WRITTEN = "results are values: to_json(), to_dict(), to_pylist(), plot() and tables"
_NOT_HERE = {
    **dict.fromkeys(("figure", "figures", "force", "format", "help", "new", "output", "quiet", "resume", "version"), _WRITTEN),
    "counting": "the command line alone counts as papers do",
    "layers": "the layers of a result are its .layers",
    "layouts": "that is layouts()",
    "power_cap": "that is power_limit",
}


def _value(value: Any, name: str) -> str:
    if isinstance(value, (str, bytes)):
        return str(value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, _Mapping):
        return ",".join(f"{k}={_value(v, name)}" for k, v in value.items())
    # Arrays without a dimension have a method for it.
    if hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0:
        values = [_value(v, name) for v in value]
        if not values:
            raise ValueError(f"{name} is empty: nothing is asked for")
        return ",".join(values)
    if value is None:
        return "default"
    return str(value)


def _one(gpu: Any) -> None:
    """Refuses several GPUs, and what names none."""
    if gpu is not None and not isinstance(gpu, (str, os.PathLike)):
        raise TypeError(f"gpu is one name or file, not {type(gpu).__name__}: compare() and sweep() take several")


def _words(options: Mapping[str, Any]) -> List[str]:
    """Options by name as the words of a command line: what is None or False is left out, True is the bare option."""
    words: List[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if name in _NOT_HERE:
            raise TypeError(f"there is no option {name} here: {_NOT_HERE[name]}")
        option = "--" + _NAMES.get(name, name).replace("_", "-")
        if name == "inputs":
            if not isinstance(value, _Mapping):
                raise TypeError(f"inputs are shapes by name, as in {{'x': (3, 224, 224)}}, not {type(value).__name__}")
            for each, shape in value.items():
                try:
                    sizes = "x".join(str(int(size)) for size in shape)
                except (TypeError, ValueError):
                    raise TypeError(f"the shape of {each} is whole numbers, as in (3, 224, 224), not {shape!r}") from None
                words += ["--input", f"{each}={sizes}"]
        elif value is True:
            words.append(option)
        else:
            # One word, so that what begins with a dash is a value.
            words.append(f"{option}={_value(value, name)}")
    return words


# Words of questions as they are mostly asked: making them takes longer than finding what was prepared for them.
_WORDS: Dict[Any, List[str]] = {}


def _mode(mode: Optional[str], training: Optional[bool]) -> Optional[str]:
    if training is None:
        return mode
    if training not in (True, False):
        raise TypeError(f"training is True or False, not {training!r}; of both: mode=[\"inference\", \"training\"] of a sweep")
    said = "training" if training else "inference"
    if mode is not None and mode != said:
        raise ValueError(f"mode={mode!r} and training={training} contradict each other")
    return said


def load(net: _Net, *, example_inputs: Any = None, name: Optional[str] = None) -> Network:
    """Reads a network once, for many questions: bytes of a file (our TOML, ONNX, Caffe's prototxt, Hugging Face's config.json), a
    `config.json` as a dict, a path, or a `torch.nn.Module` with example inputs.

    Raises ValueError with the place where the content is wrong, TypeError where it is no network.

    >>> import joulecast as jc
    >>> tiny = jc.load({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "vocab_size": 100,
    ...     "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}, name="tiny")
    >>> tiny.name, tiny.source
    ('tiny', 'huggingface')
    """
    if isinstance(net, Network):
        return net
    typed, held = _resolve(net, example_inputs, name)
    if held is not None:
        return held
    ending = os.path.splitext(typed)[1].lower().lstrip(".")
    if ending not in ("onnx", "prototxt", "json", "toml"):
        raise TypeError(f"{typed!r} is a name, which needs no load(), or no file of a network (.toml, .onnx, .prototxt, .json)")
    with open(typed, "rb") as file:
        content = file.read()
    stem = os.path.splitext(os.path.basename(typed))[0]
    if stem == "config":
        stem = os.path.basename(os.path.dirname(os.path.abspath(typed))) or stem
    return Network(content, name or stem, ending)


def predict(
    net: _Net,
    gpu: Optional[str] = None,
    *,
    batch: Union[int, str] = 1,
    precision: Optional[str] = None,
    mode: Optional[str] = None,
    training: Optional[bool] = None,
    framework: Optional[str] = None,
    launch: Optional[str] = None,
    power_limit: Optional[float] = None,
    clock: Optional[float] = None,
    sequence: Optional[int] = None,
    generate: Optional[int] = None,
    host: Union[float, str, "os.PathLike[str]", None] = None,
    inputs: Optional[Mapping[str, Sequence[int]]] = None,
    example_inputs: Any = None,
    **options: Any,
) -> Prediction:
    """A step of a network on a GPU: its time, power, energy and memory, in total and per layer, with 90 % intervals.

    `batch`: samples per step, or "max". `precision`: "fp32", "tf32", "fp16", "bf16", "int8", "fp8". `power_limit` in watts, `clock` in
    MHz. `generate`: a language model's answer of so many tokens. `host`: how many times as long as the profile says this machine's
    host launches, or a host file. `inputs`: shapes by name. `example_inputs`: of a torch module. Further options as on the command
    line: `gpus="8"`, `optimizer="adam"`, `epochs=90, dataset_size=1281167, price_kwh=0.3`, `tensor_parallel=4`, `weights="int4"`.

    Raises UnknownName (a KeyError) with the nearest names, ValueError for what is wrong in an option or a file, TypeError for options
    that there are not.

    >>> import joulecast as jc
    >>> jc.predict("vgg16", "h200", batch=64, precision="fp16", power_limit=400).power_w < 400.5
    True
    >>> jc.predict("resnet5", "v100")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    joulecast._errors.UnknownName: no net named "resnet5"; nearest: resnet50, ...
    """
    typed, held = _resolve(net, example_inputs)
    key: Any = None
    words: Optional[List[str]] = None
    if not options and host is None and inputs is None:
        key = (typed, gpu, precision, mode, training, framework, launch, sequence, generate)
        try:
            words = _WORDS.get(key)
        except TypeError:
            key = None
    if words is None:
        _one(gpu)
        asked = {
            "net": typed,
            "gpu": gpu,
            "batch": 1,
            "precision": precision,
            "mode": _mode(mode, training),
            "framework": framework,
            "launch": launch,
            "sequence": sequence,
            "generate": generate,
            "host": host,
            "inputs": inputs,
            **options,
        }
        words = _words(asked)
        if key is not None:
            if len(_WORDS) >= 1024:
                _WORDS.clear()
            _WORDS[key] = words
    result = _joulecast.predict(words, batch, power_limit, clock)
    # Until here the network had to be there.
    del held
    return result


def layouts(
    net: _Net, gpu: str, *, batch: Union[int, str] = 1, power_limit: Optional[float] = None, clock: Optional[float] = None, **options: Any
) -> Answer:
    """What layouts of a language model over the GPUs of a node hold, and how fast they answer.

    >>> import joulecast as jc
    >>> len(jc.layouts("llama3_8b", "h100", precision="bf16", batch=8, generate=128).table) > 3
    True
    """
    typed, held = _resolve(net)
    _one(gpu)
    words = [*_words({"net": typed, "gpu": gpu, "batch": 1, **options}), "--layouts"]
    result = _joulecast.layouts(words, batch, power_limit, clock)
    del held
    return result


def _several(nets: _Nets) -> Tuple[List[str], List[Network]]:
    listed = list(nets) if isinstance(nets, (list, tuple, set)) else [nets]
    pairs = [_resolve(net) for net in listed]
    return [typed for typed, _ in pairs], [held for _, held in pairs if held is not None]


def _many(nets: _Nets, gpu: Union[str, Sequence[str]], options: Dict[str, Any], training: Optional[bool]) -> Tuple[List[str], List[Network]]:
    typed, held = _several(nets)
    if training is not None:
        options["mode"] = _mode(options.get("mode"), training)
    return _words({"net": typed, "gpu": gpu, **options}), held


def _bar(progress: Union[bool, Callable[..., Any], None], unit: str) -> Any:
    """A progress bar as tqdm makes them, or None."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress is True, or what makes a bar as tqdm.tqdm does, not {type(progress).__name__}")
    if progress is True:
        from tqdm.auto import tqdm as progress  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]
    return progress(total=0, unit=unit, unit_scale=True) if callable(progress) else None


def _closed(bar: Any) -> None:
    if bar is not None and hasattr(bar, "close"):
        bar.close()


def sweep(
    nets: _Nets,
    gpu: Union[str, Sequence[str]],
    *,
    batch: Union[int, str, Iterable[int]] = 1,
    training: Optional[bool] = None,
    progress: Union[bool, Callable[..., Any], None] = None,
    **options: Any,
) -> Table:
    """Every network on every GPU at every batch, precision, mode, clock and power limit, as a table of a row each: `precision`, `mode`,
    `sequence`, `clock` and `power_limit` take one value or several; None among clocks and limits is what the driver does. What
    cannot be predicted has nulls and an `error`.

    `progress`: True for tqdm, or whatever makes a bar as `tqdm.tqdm` does. `threads`: all cores without. `shard="2/4"`: the second
    of four parts. Ctrl-C ends it.

    >>> import joulecast as jc
    >>> table = jc.sweep(["alexnet", "vgg16"], ["v100", "t4"], batch=[1, 8], power_limit=[None, 60])
    >>> table.num_rows
    16
    >>> table.to_pylist()[0]["network"]
    'alexnet'
    """
    words, held = _many(nets, gpu, {"batch": batch, **options}, training)
    bar = _bar(progress, "prediction")
    try:
        return _joulecast.sweep(words, bar)
    finally:
        del held
        _closed(bar)


def compare(nets: _Nets, gpu: Union[str, Sequence[str]], *, training: Optional[bool] = None, **options: Any) -> Answer:
    """Networks on GPUs side by side: which is best for what; with a budget (`target_latency` in ms, `energy_budget` in J per sample,
    `max_power` in W) the largest batch within it. `price={"v100": 2.5}` per hour.

    >>> import joulecast as jc
    >>> rows = jc.compare(["resnet50"], ["v100", "t4"], batch=[1, 16]).table
    >>> rows.num_rows
    4
    """
    words, held = _many(nets, gpu, options, training)
    result = _joulecast.compare(words)
    del held
    return result


def optimize(net: _Nets, gpu: str, *, batch: Union[int, str] = 1, training: Optional[bool] = None, **options: Any) -> Answer:
    """The clock, power limit and batch with the least `metric`: "energy", "time", "edp", "ed2p", "eds:1.5". `over=["cap", "clock",
    "batch"]`; `max_slowdown=5` percent; `per_layer=True` for a clock of each layer.

    >>> import joulecast as jc
    >>> points = jc.optimize("resnet50", "v100", batch=64, metric="edp").table.to_pylist()
    >>> sum(point["best"] for point in points)
    1
    """
    _one(gpu)
    if not options.keys().isdisjoint(("prompt", "answer", "trace")):
        raise TypeError('of a language model under a load serve() finds the setting: over=["cap", "layout"], objective="energy"')
    words, held = _many(net, gpu, {"batch": batch, **options}, training)
    result = _joulecast.optimize(words)
    del held
    return result


def serve(net: _Net, gpu: str, **options: Any) -> Answer:
    """A language model under a load with continuous batching: latencies, tokens/s, power and J per token. `rate` (requests/s),
    `concurrency` (users), `trace`, or a target `ttft="500ms", tpot="50ms"`; `prompt=1024, answer=256` tokens.

    >>> import joulecast as jc
    >>> jc.serve("llama3_8b", "h100", rate=2, prompt=256, answer=64, requests=200).to_dict()["requests"]
    200
    """
    typed, held = _resolve(net)
    _one(gpu)
    result = _joulecast.serve(_words({"net": typed, "gpu": gpu, **options}))
    del held
    return result


def plan(file: Union[str, "os.PathLike[str]", None] = None, *, text: Optional[str] = None, **options: Any) -> Answer:
    """How many GPUs a load needs, at which power, cost and carbon: by a file `capacity/1` or its text.

    Raises FileNotFoundError, and ValueError with the place where the file is wrong.
    """
    if (file is None) == (text is None):
        raise TypeError("plan takes a file or text=")
    name = "text" if file is None else str(os.fspath(file))
    return _joulecast.plan([name, *_words(options)], text)


def describe(net: _Net, *, example_inputs: Any = None, **options: Any) -> Table:
    """A network's layers: shapes, parameters, multiply-accumulates, operations and traffic of a forward pass of `batch` samples.

    >>> import joulecast as jc
    >>> layers = jc.describe("alexnet").to_pylist()
    >>> sum(layer["parameters"] for layer in layers)
    61100840
    """
    typed, held = _resolve(net, example_inputs)
    result = _joulecast.describe(_words({"net": typed, **options}))
    del held
    return result


def map_table(
    table: Any, *, workers: Optional[int] = 1, progress: Union[bool, Callable[..., Any], None] = None, **options: Any
) -> Table:
    """A prediction for each row of a table: Arrow in, Arrow out, for Ray, Spark, Dask, polars.

    Columns that are read: `network` (or `net`), `gpu`, `batch`, `precision`, `mode`, `framework`, `launch`, `sequence`, `conv_algorithm`,
    `clock_mhz`, `mem_clock_mhz`, `power_limit_w` (or `power_cap_w`). `options` say what no column does: `gpu="v100"`. All columns of the
    table are passed on, those of a sweep's results follow; a row that cannot be predicted has nulls and an `error`. `workers`: threads;
    None for all cores. Engines run one task on a core, so one is the default. `progress`: as of `sweep`. Ctrl-C ends it.

    Raises KeyError where there is no network or GPU, TypeError where the table is none or a column has no text or numbers.
    """
    words: List[str] = []
    for word in _words(options):
        option, _, value = word.partition("=")
        words += [option, value] if value else [option]
    bar = _bar(progress, "row")
    try:
        return _joulecast.map_table(table, words, workers, bar)
    finally:
        _closed(bar)


def __getattr__(name: str) -> Any:
    if name in ("measure", "MeasureError"):
        from . import _measure

        return getattr(_measure, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> List[str]:
    return sorted(set(globals()) | set(__all__))
