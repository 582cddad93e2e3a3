"""The whole-model oracle: runs an ONNX graph node by node in float64 NumPy.

In: an `OnnxModel` and input arrays. Out: the requested outputs, floats in float64.
Never here: speed, fusion, tolerance. An operator it does not know is refused by name, never
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import erf
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kernelgen.graph.onnx_file import GraphError, OnnxModel, OnnxNode

Array = npt.NDArray[Any]
Rule = Callable[[OnnxNode, list[Array]], Array]

_ERF = np.frompyfunc(erf, 1, 1)

# ONNX TensorProto.DataType numbers this interpreter casts to; every float becomes float64.
_CASTS: Mapping[int, type[np.generic]] = {
    1: np.float64,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float64,
    11: np.float64,
}


def run(model: OnnxModel, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
    """Values of `outputs`. Raises `GraphError` for a missing input or an unknown operator."""
    missing = [name for name in model.inputs if name not in feeds]
    if missing:
        raise GraphError(f"inputs: {missing} missing, got {sorted(feeds)}")
    values = {**_constants(model), **{name: _widen(array) for name, array in feeds.items()}}
    for node in needed(model, outputs):
        rule = RULES.get(node.op)
        if rule is None:
            raise GraphError(
                f"{node.where}: operator {node.op!r} is unknown, wanted one of {sorted(RULES)}"
            )
        arguments = [values[name] for name in node.inputs if name]
        values[node.outputs[0]] = rule(node, arguments)
    return {name: values[name] for name in outputs}


@lru_cache(maxsize=1)
def _constants(model: OnnxModel) -> Mapping[str, Array]:
    # A judgement asks for hundreds of runs, and widening the weights took half of each.
    wide = {name: _widen(array) for name, array in model.constants.items()}
    for array in wide.values():
        array.flags.writeable = False
    return wide


def needed(model: OnnxModel, outputs: Sequence[str]) -> list[OnnxNode]:
    """The nodes that `outputs` depend on, in the model's own order."""
    wanted, stack = set[str](), list(outputs)
    while stack:
        name = stack.pop()
        node = model.producers.get(name)
        if node is None or node.outputs[0] in wanted:
            continue
        wanted.add(node.outputs[0])
        stack.extend(node.inputs)
    return [node for node in model.nodes if node.outputs[0] in wanted]


def _widen(array: npt.NDArray[np.generic]) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else np.asarray(array)


def _int(node: OnnxNode, name: str, default: int) -> int:
    return int(cast("int", node.attributes.get(name, default)))


def _gather(node: OnnxNode, args: list[Array]) -> Array:
    return np.take(args[0], args[1], axis=_int(node, "axis", 0))


def _unsqueeze(node: OnnxNode, args: list[Array]) -> Array:
    return np.expand_dims(args[0], tuple(int(axis) for axis in args[1].ravel()))


def _slice(node: OnnxNode, args: list[Array]) -> Array:
    data, starts, ends = args[:3]
    axes = args[3] if len(args) > 3 else np.arange(len(starts))
    steps = args[4] if len(args) > 4 else np.ones(len(starts), np.int64)
    index = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[int(axis)] = slice(int(start), int(end), int(step))
    return data[tuple(index)]


def _reshape(node: OnnxNode, args: list[Array]) -> Array:
    shape = [
        args[0].shape[place] if size == 0 and not _int(node, "allowzero", 0) else int(size)
        for place, size in enumerate(args[1])
    ]
    return args[0].reshape(shape)


def _constant_of_shape(node: OnnxNode, args: list[Array]) -> Array:
    value = cast("Array", node.attributes.get("value", np.zeros(1, np.float64)))
    return _widen(np.full(tuple(int(size) for size in args[0]), value.ravel()[0]))


def _expand(node: OnnxNode, args: list[Array]) -> Array:
    shape = np.broadcast_shapes(args[0].shape, tuple(int(size) for size in args[1]))
    return np.broadcast_to(args[0], shape)


def _softmax(node: OnnxNode, args: list[Array]) -> Array:
    axis = _int(node, "axis", -1)
    powers = np.exp(args[0] - args[0].max(axis=axis, keepdims=True))
    return cast("Array", powers / powers.sum(axis=axis, keepdims=True))


def _layernorm(node: OnnxNode, args: list[Array]) -> Array:
    axis = _int(node, "axis", -1) % args[0].ndim
    axes = tuple(range(axis, args[0].ndim))
    centred = args[0] - args[0].mean(axis=axes, keepdims=True)
    epsilon = float(cast("float", node.attributes.get("epsilon", 1e-5)))
    scaled = centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon) * args[1]
    return cast("Array", scaled + args[2] if len(args) > 2 else scaled)


def _reduce_sum(node: OnnxNode, args: list[Array]) -> Array:
    axes = tuple(int(axis) for axis in args[1].ravel()) if len(args) > 1 else None
    keep = bool(_int(node, "keepdims", 1))
    return cast("Array", args[0].sum(axis=axes, keepdims=keep))


def _clip(node: OnnxNode, args: list[Array]) -> Array:
    # Omitted bounds arrive as empty names; `run` drops those, so place tells which bound is which.
    bounds = iter(args[1:])
    result = args[0]
    if len(node.inputs) > 1 and node.inputs[1]:
        result = np.maximum(result, next(bounds))
    if len(node.inputs) > 2 and node.inputs[2]:
        result = np.minimum(result, next(bounds))
    return result


def _cast(node: OnnxNode, args: list[Array]) -> Array:
    kind = _int(node, "to", 0)
    if kind not in _CASTS:
        raise GraphError(f"{node.where}: got cast to type {kind}, wanted one of {sorted(_CASTS)}")
    return args[0].astype(_CASTS[kind])


def _transpose(node: OnnxNode, args: list[Array]) -> Array:
    return args[0].transpose(cast("list[int]", node.attributes["perm"]))


RULES: Mapping[str, Rule] = {
    "Add": lambda node, args: args[0] + args[1],
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda node, args: np.concatenate(args, axis=_int(node, "axis", 0)),
    "ConstantOfShape": _constant_of_shape,
    "Div": lambda node, args: args[0] / args[1],
    "Equal": lambda node, args: args[0] == args[1],
    "Erf": lambda node, args: np.asarray(_ERF(args[0]), np.float64),
    "Expand": _expand,
    "Gather": _gather,
    "Identity": lambda node, args: args[0],
    "LayerNormalization": _layernorm,
    "MatMul": lambda node, args: args[0] @ args[1],
    "Mul": lambda node, args: args[0] * args[1],
    "ReduceSum": _reduce_sum,
    "Reshape": _reshape,
    "Shape": lambda node, args: np.array(args[0].shape, np.int64),
    "Slice": _slice,
    "Softmax": _softmax,
    "Sub": lambda node, args: args[0] - args[1],
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": lambda node, args: np.where(args[0], args[1], args[2]),
}
