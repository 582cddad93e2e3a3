"""ONNX graphs that hold one operator several times, once per copy of its buffers.

In: a body that writes one copy, and the contents. Out: the serialised model and the arrays its
inputs read. Weights are initialisers, so that an engine packs them before the clock starts.
Never here: which nodes an operator consists of, any engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kernelgen.bench.contents import Contents
from kernelgen.ops.operator import Array

OPSET = 21
IR_VERSION = 11
CONTRIB = "com.microsoft"
_INLINE_LIMIT = 1_900_000_000


@dataclass(frozen=True)
class Result:
    """The value `full` is output `name` of copy `number`."""

    full: str
    number: int
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass
class _Parts:
    copies: int
    stacked: bool
    nodes: list[Any] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    initialisers: dict[str, Any] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    contrib: bool = False

    def source(self, name: str, number: int, array: Array) -> str:
        """The value that holds input `name` of copy `number`."""
        full = f"{name}_{number}"
        own = name if self.stacked else full
        if own not in self.inputs:
            shape = list(array.shape)
            if self.stacked:
                pieces = [f"{name}_{place}" for place in range(self.copies)]
                shape[0] *= self.copies
                split = helper.make_node("Split", [name], pieces, axis=0, num_outputs=self.copies)
                self.nodes.append(split)
            self.inputs[own] = helper.make_tensor_value_info(own, _kind(array.dtype), shape)
        return full

    def outputs(self) -> list[Any]:
        """What the graph gives out: every result, or one whole per output tensor."""
        if not self.stacked:
            return [
                helper.make_tensor_value_info(one.full, _kind(one.dtype), list(one.shape))
                for one in self.results
            ]
        found = []
        for name in dict.fromkeys(one.name for one in self.results):
            pieces = [one for one in self.results if one.name == name]
            first = pieces[0]
            self.nodes.append(
                helper.make_node("Concat", [one.full for one in pieces], [f"{name}_all"], axis=0)
            )
            shape = [first.shape[0] * len(pieces), *first.shape[1:]]
            found.append(helper.make_tensor_value_info(f"{name}_all", _kind(first.dtype), shape))
        return found


class Copy:
    """One copy of the operator inside a graph: hands out value names and collects nodes."""

    def __init__(
        self, parts: _Parts, contents: Contents, number: int, feeds: Mapping[str, Array]
    ) -> None:
        self._parts = parts
        self._contents = contents
        self._number = number
        self.feeds = feeds
        self.inputs = contents.inputs[number]
        self.dims = contents.dims
        self.weights = contents.weights_of(number)
        self._set = number % len(contents.weights)

    def input(self, name: str) -> str:
        """The graph input that holds `name` of this copy."""
        return self._parts.source(name, self._number, self.feeds[name])

    def weight(self, name: str, change: Callable[[Array], Array] | None = None) -> str:
        """The initialiser of weight `name`, after `change` (a layout the engine wants)."""
        label = "" if change is None else f"_{change.__name__}"
        full = f"{name}_w{self._set}{label}"
        if full not in self._parts.initialisers:
            array = self.weights[name]
            self._add(full, array if change is None else change(array))
        return full

    def constant(self, name: str, array: Array) -> str:
        """An initialiser common to all copies; `name` stands for its contents."""
        if name not in self._parts.initialisers:
            self._add(name, array)
        return name

    def ints(self, *numbers: int) -> str:
        """A one-dimensional int64 constant."""
        return self.constant("i_" + "_".join(map(str, numbers)), np.array(numbers, np.int64))

    def own(self, name: str, array: Array) -> str:
        """An initialiser of this copy's weight set."""
        full = f"{name}_w{self._set}"
        if full not in self._parts.initialisers:
            self._add(full, array)
        return full

    def _add(self, name: str, array: Array) -> None:
        self._parts.initialisers[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node with one output; returns the output's name."""
        return self.nodes(kind, *inputs, domain=domain, count=1, **attributes)[0]

    def nodes(
        self, kind: str, *inputs: str, count: int, domain: str = "", **attributes: Any
    ) -> list[str]:
        """One node with `count` outputs."""
        place = len(self._parts.nodes)
        outputs = [f"t{place}.{at}" for at in range(count)]
        self._parts.nodes.append(
            helper.make_node(kind, list(inputs), outputs, f"n{place}", domain=domain, **attributes)
        )
        self._parts.contrib |= domain == CONTRIB
        return outputs

    def output(self, name: str, value: str, shape: tuple[int, ...] | None = None) -> None:
        """Make `value` the operator's output `name`; `shape` where the graph's differs from it."""
        tensor = next(t for t in self._contents.operator.by_role("output") if t.name == name)
        full = f"{name}_{self._number}"
        sizes = tensor.sizes(self.dims) if shape is None else shape
        dtype = np.dtype(tensor.dtype)
        last = self._parts.nodes[-1]
        if value in last.output:
            last.output[list(last.output).index(value)] = full
        else:
            self._parts.nodes.append(helper.make_node("Identity", [value], [full]))
        self._parts.results.append(Result(full, self._number, name, sizes, dtype))


@dataclass(frozen=True)
class Model:
    """`stacked`: the graph's inputs and outputs hold all copies end to end."""

    data: bytes
    results: tuple[Result, ...]
    input_names: tuple[str, ...]
    stacked: bool


def build(
    body: Callable[[Copy], None],
    contents: Contents,
    feeds: list[dict[str, Array]],
    *,
    opset: int = OPSET,
    stacked: bool = False,
) -> Model:
    """The model of all copies, each with its own inputs and outputs, or `stacked` with common ones.

    Raises `ValueError` when it is too large for one file.
    """
    parts = _Parts(contents.copies, stacked)
    for number in range(contents.copies):
        body(Copy(parts, contents, number, feeds[number]))
    outputs = parts.outputs()
    graph = helper.make_graph(
        parts.nodes, "ops", list(parts.inputs.values()), outputs, list(parts.initialisers.values())
    )
    opsets = [helper.make_opsetid("", opset)]
    if parts.contrib:
        opsets.append(helper.make_opsetid(CONTRIB, 1))
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    if model.ByteSize() > _INLINE_LIMIT:
        raise ValueError(f"model: {model.ByteSize()} bytes, wanted at most {_INLINE_LIMIT}")
    return Model(model.SerializeToString(), tuple(parts.results), tuple(parts.inputs), stacked)


def _kind(dtype: np.dtype[Any]) -> int:
    kind: int = helper.np_dtype_to_tensor_dtype(dtype)
    return kind


FLOAT = TensorProto.FLOAT
__all__ = ["CONTRIB", "FLOAT", "Copy", "Model", "build", "onnx"]
