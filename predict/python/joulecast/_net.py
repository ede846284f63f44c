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


# What PyTorch's exporter says of an initializer, and of one that the module learned.
_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_LEARNED = "PARAMETER"
# Rules that put batch norms into the weights before them, and leave out biases that an untrained module has as zeros.
_NOT_OF_THE_MODULE = ("FuseBatchNorm", "RemoveOptionalBias")


def _tidied(program: Any) -> None:
    """What `torch.onnx.export` does of itself with a graph that it exported, but for what a module does not run: its batch norms are
    not put into other weights, and what it learned stays what it was, alone under its own name."""
    import onnx_ir.passes.common as passes
    from onnxscript import optimizer, rewriter

    model = program.model

    def folds(node: Any) -> Optional[bool]:
        learned = any(value is not None and value.metadata_props.get(_KIND) == _LEARNED for value in node.inputs)
        return False if learned else None

    rules = [rule for rule in rewriter._DEFAULT_REWRITE_RULES if not str(rule.name).startswith(_NOT_OF_THE_MODULE)]
    optimizer.inline(model)
    for _ in range(2):
        optimizer.fold_constants(model, onnx_shape_inference=True, should_fold=folds)
        rewriter.rewrite(model, rules)
        passes.RemoveUnusedNodesPass()(model)
    passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    passes.LiftSubgraphInitializersToMainGraphPass()(model)
    passes.CommonSubexpressionEliminationPass()(model)
    passes.OutputFixPass()(model)
    passes.NameFixPass()(model)
    fusions = getattr(rewriter, "onnx_fusions", None)
    if fusions is not None:
        fusions.fuse(model)
    # What came of constants was not learned, either.
    for value in model.graph.initializers.values():
        value.metadata_props.setdefault(_KIND, "CONSTANT_TENSOR")
    # The exporter gives every convolution a bias, zeros where the module has none.
    for node in model.graph:
        if node.op_type in ("Conv", "ConvTranspose", "Gemm") and len(node.inputs) > 2 and node.inputs[2] is not None:
            bias = node.inputs[2]
            if bias.is_initializer() and bias.metadata_props.get(_KIND) != _LEARNED and not bias.const_value.numpy().any():
                node.replace_input_with(2, None)
    passes.RemoveUnusedNodesPass()(model)


def _without_weights(program: Any) -> bytes:
    """The exported model as bytes, without what would be copied to be skipped: values that only training knows, and where in the
    source each node comes from."""
    import onnx_ir as ir

    model = program.model
    for node in model.graph.all_nodes():
        for key in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node", "namespace"):
            node.metadata_props.pop(key, None)
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
                module, args, None, kwargs=kwargs or None, dynamo=True, verbose=False, **{"optimize": False, **options}
            )
            if not options.get("optimize"):
                try:
                    _tidied(program)
                except (ImportError, AttributeError, TypeError):
                    # Of another version of onnxscript: the graph as it makes it, batch norms folded.
                    program.optimize()
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
