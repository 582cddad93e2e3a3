"""Small seeded ONNX encoders in the form exporters write, so that the compiler can be tried without
a download.

In: sizes and a seed. Out: an ONNX file with random weights. Never here: real weights, names anyone
may rely on: every value gets an arbitrary name on purpose.
"""

from __future__ import annotations

import hashlib
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class EncoderBuilder:
    """Collects nodes and initialisers; `swap` turns the operands of every commutative node
    around.
    """

    def __init__(self, seed: int, *, swap: bool = False) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self._rng = np.random.default_rng(seed)
        self._seed, self._swap, self._count = seed, swap, 0
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def name(self) -> str:
        self._count += 1
        return hashlib.sha256(f"{self._seed}/{self._count}".encode()).hexdigest()[:10]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; returns the name of its result."""
        if self._swap and kind in ("Add", "Mul"):
            inputs = tuple(reversed(inputs))
        result = self.name()
        self.nodes.append(
            self._helper.make_node(kind, list(inputs), [result], name=self.name(), **attributes)
        )
        return result

    def constant(self, array: npt.NDArray[np.generic]) -> str:
        """Append a Constant node."""
        result = self.name()
        value = self._numpy.from_array(np.asarray(array), self.name())
        self.nodes.append(self._helper.make_node("Constant", [], [result], value=value))
        return result

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weight(self, *shape: int, spread: float = 1.0, centre: float = 0.0) -> str:
        """Append an initialiser of random float32 values."""
        result = self.name()
        data = centre + spread * self._rng.standard_normal(shape)
        self.tensors.append(self._numpy.from_array(data.astype(np.float32), result))
        return result

    def size(self, value: str, axis: int) -> str:
        """One size of `value` as a vector of length one, the long way round that exporters go."""
        index = self.constant(np.array(axis, np.int64))
        return self.op("Unsqueeze", self.op("Gather", self.op("Shape", value), index), self.ints(0))

    def norm(self, value: str, hidden: int) -> str:
        scale = self.weight(hidden, spread=0.2, centre=1.0)
        return self.op(
            "LayerNormalization",
            value,
            scale,
            self.weight(hidden, spread=0.2),
            axis=-1,
            epsilon=1e-12,
        )

    def linear(self, value: str, k: int, n: int) -> str:
        product = self.op("MatMul", value, self.weight(k, n, spread=1.0 / sqrt(k)))
        return self.op("Add", self.weight(n, spread=0.2), product)

    def expand(self, value: str, *sizes: str) -> str:
        """Expand with the detour over Where(size == -1) that exporters write."""
        shape = self.op("Reshape", self.op("Concat", *sizes, axis=0), self.ints(-1))
        ones = self.op("ConstantOfShape", self.op("Shape", shape), value=self._ones())
        minus = self.op("Mul", ones, self.constant(np.array(-1, np.int64)))
        chosen = self.op("Where", self.op("Equal", shape, minus), ones, shape)
        return self.op("Expand", value, chosen)

    def _ones(self) -> Any:
        return self._numpy.from_array(np.array([1], np.int64))


def build_encoder(
    path: Path,
    *,
    layers: int = 2,
    heads: int = 4,
    head_size: int = 32,
    ffn: int = 256,
    vocabulary: int = 500,
    positions: int = 160,
    seed: int = 0,
    swap: bool = False,
    activation: str = "gelu",
) -> Path:
    """Write a random text encoder to `path`. `activation` "tanh" writes one the compiler must
    refuse.
    """
    import onnx
    from onnx import TensorProto, helper

    hidden = heads * head_size
    b = EncoderBuilder(seed, swap=swap)
    ids, mask = b.name(), b.name()
    length = b.size(ids, 1)
    prefix = (b.ints(0), length, b.ints(1), b.ints(1))
    types = b.op("Slice", b.constant(np.zeros((1, positions), np.int64)), *prefix)
    places = b.op("Slice", b.constant(np.arange(positions, dtype=np.int64)[None]), *prefix)
    total = b.op(
        "Add",
        b.op("Gather", b.weight(vocabulary, hidden), ids, axis=0),
        b.op("Gather", b.weight(2, hidden), b.expand(types, b.size(ids, 0), length), axis=0),
    )
    total = b.op("Add", total, b.op("Gather", b.weight(positions, hidden), places, axis=0))
    states = b.norm(total, hidden)
    wide_mask = b.op("Unsqueeze", b.op("Unsqueeze", mask, b.ints(1)), b.ints(2))
    inverse = b.op(
        "Sub",
        b.constant(np.array(1.0, np.float32)),
        b.op("Cast", wide_mask, to=TensorProto.FLOAT),
    )
    low = b.op("Mul", inverse, b.constant(np.array(np.finfo(np.float32).min, np.float32)))
    for _ in range(layers):
        states = _layer(b, states, low, heads, head_size, ffn, activation)
    pooled = _pool(b, states, mask)
    shape = ["batch", "sequence"]
    graph = helper.make_graph(
        b.nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in (ids, mask)],
        [
            helper.make_tensor_value_info(states, TensorProto.FLOAT, ["batch", "sequence", hidden]),
            helper.make_tensor_value_info(pooled, TensorProto.FLOAT, ["batch", hidden]),
        ],
        b.tensors,
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save_model(model, str(path))
    return path


def _layer(
    b: EncoderBuilder,
    states: str,
    low: str,
    heads: int,
    head_size: int,
    ffn: int,
    activation: str,
) -> str:
    hidden = heads * head_size

    def split(order: list[int]) -> str:
        value = b.linear(states, hidden, hidden)
        target = b.op(
            "Concat", b.size(value, 0), b.size(value, 1), b.ints(heads), b.ints(head_size), axis=0
        )
        return b.op("Transpose", b.op("Reshape", value, target), perm=order)

    q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
    root = b.constant(np.array(sqrt(head_size), np.float32))
    scores = b.op("Add", b.op("Div", b.op("MatMul", q, k), root), low)
    turned = b.op(
        "Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3]
    )
    target = b.op("Concat", b.size(turned, 0), b.size(turned, 1), b.ints(hidden), axis=0)
    context = b.op("Reshape", turned, target)
    middle = b.norm(b.op("Add", b.linear(context, hidden, hidden), states), hidden)
    wide = b.linear(middle, hidden, ffn)
    if activation == "gelu":
        root2 = b.constant(np.array(sqrt(2.0), np.float32))
        one = b.constant(np.array(1.0, np.float32))
        factor = b.op("Add", b.op("Erf", b.op("Div", wide, root2)), one)
        half = b.constant(np.array(0.5, np.float32))
        wide = b.op("Mul", b.op("Mul", wide, factor), half)
    else:
        wide = b.op("Tanh", wide)
    return b.norm(b.op("Add", b.linear(wide, ffn, hidden), middle), hidden)


def _pool(b: EncoderBuilder, states: str, mask: str) -> str:
    spread = b.expand(
        b.op("Unsqueeze", mask, b.ints(-1)), b.size(states, 0), b.size(states, 1), b.size(states, 2)
    )
    weight = b.op("Cast", spread, to=1)
    top = b.op("ReduceSum", b.op("Mul", states, weight), b.ints(1), keepdims=0)
    count = b.op("ReduceSum", weight, b.ints(1), keepdims=0)
    floor = b.op("Clip", count, b.constant(np.array(1e-9, np.float32)), "")
    return b.op("Concat", b.op("Div", top, floor), axis=1)
