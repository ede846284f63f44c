"""What people have as a network, as what the predictor reads."""

from __future__ import annotations

import os
import sys

from ._joulecast import Network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Tuple


def _ending(content: bytes) -> str:
    """Which file of ours, ONNX, Caffe or Hugging Face this is the content of."""
    head = content[:4096].lstrip()
    # A model begins with its version: field 1, a number.
    if content[:1] == b"\x08":
        return "onnx"
    if head[:1] == b"{":
        return "json"
    if b"\x00" in head:
        raise ValueError("these bytes are no network: neither ONNX nor text")
    for line in head.decode("utf-8", "replace").splitlines():
        line = line.strip()
        if line and not line.startswith("#"):
            # `name: "LeNet"`, `layer {`: Caffe; `name = "LeNet"`, `[[layer]]`: ours.
            return "toml" if line.startswith("[") or "=" in line.split(":")[0] else "prototxt"
    raise ValueError("these bytes are empty")


def _config(config: Mapping[str, Any], name: Optional[str]) -> Network:
    if not ("architectures" in config or "model_type" in config):
        raise ValueError("a dict is taken as a Hugging Face config.json, which has model_type or architectures")
    import json

    called = name or str(config.get("_name_or_path") or config.get("name_or_path") or config.get("model_type"))
    text = json.dumps(dict(config), default=str)
    return Network(text.encode(), called.rstrip("/").rsplit("/", 1)[-1], "json")


def _is_mapping(value: object) -> bool:
    # collections.abc takes longer to import than this package; what tokenizers return is no Mapping besides.
    return hasattr(value, "keys") and hasattr(value, "__getitem__")


def _is_module(net: object) -> bool:
    # Whoever has a module has imported torch.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(net, torch.nn.Module)


def _without_weights(program: Any) -> bytes:
    """The exported model as bytes, without values that only training knows: they would be copied to be skipped."""
    import onnx_ir as ir

    model = program.model
    for value in list(model.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or tensor.size <= 4096 or not tensor.dtype.is_floating_point():
            continue
        value.const_value = ir.ExternalTensor(
            "weights", 0, tensor.nbytes, dtype=tensor.dtype, shape=ir.Shape(tensor.shape), name=value.name or "weight"
        )
    content: bytes = ir.to_proto(model).SerializeToString()
    return content


def export(module: Any, example_inputs: Any, *, name: Optional[str] = None, **options: Any) -> Tuple[bytes, str]:
    """A `torch.nn.Module` as the bytes of an ONNX model without weights, and its name.

    `example_inputs`: a tensor, a tuple of them, or a dict by name, as the module is called with. The batch of the inputs does not
    matter. `options` go to `torch.onnx.export`. Nothing is written to disk. Needs torch, onnx and onnxscript.

    Raises ImportError where one of these is not installed, and what `torch.onnx.export` raises.
    """
    import contextlib
    import io

    import torch

    args: Tuple[Any, ...] = ()
    kwargs: Dict[str, Any] = {}
    if _is_mapping(example_inputs):
        kwargs = dict(example_inputs)
    elif isinstance(example_inputs, (tuple, list)):
        args = tuple(example_inputs)
    else:
        args = (example_inputs,)
    called = name or type(module).__name__
    # As it is deployed: dropout and batch norms of inference. Training is predicted from the same graph.
    training = module.training
    module.eval()
    try:
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            program = torch.onnx.export(
                module, args, None, kwargs=kwargs or None, dynamo=True, verbose=False, **{"optimize": True, **options}
            )
    finally:
        module.train(training)
    return _without_weights(program), called


def resolve(net: Any, example_inputs: Any = None, name: Optional[str] = None) -> Tuple[str, Optional[Network]]:
    """What stands for a network where networks are named, and what has to live as long as it is used."""
    if isinstance(net, Network):
        return net._typed, net
    if isinstance(net, str):
        return net, None
    if isinstance(net, os.PathLike):
        path = os.fspath(net)
        path = path.decode() if isinstance(path, bytes) else path
        # A bare name is one of the zoo, a path is not.
        return (path if os.sep in path or "." in path else os.path.join(".", path)), None
    held: Network
    if isinstance(net, (bytes, bytearray, memoryview)):
        content = bytes(net)
        held = Network(content, name or "network", _ending(content))
    elif _is_mapping(net):
        held = _config(net, name)
    elif _is_module(net):
        if example_inputs is None:
            config = getattr(net, "config", None)
            if config is None or not hasattr(config, "to_dict"):
                raise TypeError("a torch module needs example_inputs: a tensor, a tuple of them, or a dict by name")
            held = _config(config.to_dict(), name)
        else:
            content, called = export(net, example_inputs, name=name)
            # A module runs its batch norms, whatever an export makes of them.
            held = Network(content, called, "onnx", True)
    elif hasattr(net, "SerializeToString"):
        held = Network(net.SerializeToString(), name or "network", "onnx")
    else:
        raise TypeError(
            "a network is a name, a path, bytes of a file, a config.json as a dict, a torch module, or what load() returns, "
            f"not {type(net).__name__}"
        )
    return held._typed, held
