"""Peers of rotary position embedding.

In: `Rope`. Out: `PEERS`. Never here: partial heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.ops.operator import Array
from kernelgen.ops.rope import Rope


def _feed(x: Arrays) -> dict[str, Array]:
    tokens = len(x["positions"])
    return {"x": x["x"].reshape(1, tokens, -1), "positions": x["positions"][None]}


def _shape(operator: Rope, copy: Copy) -> tuple[int, ...]:
    return (1, copy.dims["tokens"], operator.heads * operator.size)


def _contrib(operator: Rope, copy: Copy) -> None:
    made = copy.node(
        "RotaryEmbedding",
        copy.input("x"),
        copy.input("positions"),
        copy.weight("cosines"),
        copy.weight("sines"),
        domain=CONTRIB,
        interleaved=int(operator.interleaved),
        num_heads=operator.heads,
    )
    copy.output("out", made, _shape(operator, copy))


def _standard(operator: Rope, copy: Copy) -> None:
    made = copy.node(
        "RotaryEmbedding",
        copy.input("x"),
        copy.weight("cosines"),
        copy.weight("sines"),
        copy.input("positions"),
        interleaved=int(operator.interleaved),
        num_heads=operator.heads,
    )
    copy.output("out", made, _shape(operator, copy))


def _plain(operator: Rope, copy: Copy) -> None:
    """Halves turned with one multiplication each; not for neighbours."""
    rows = copy.ints(copy.dims["tokens"], 1, operator.size // 2)
    cosine, sine = (
        copy.node("Reshape", copy.node("Gather", copy.weight(name), copy.input("positions")), rows)
        for name in ("cosines", "sines")
    )
    a, b = copy.nodes("Split", copy.input("x"), count=2, axis=2, num_outputs=2)

    def times(first: str, second: str) -> str:
        return copy.node("Mul", first, second)

    left = copy.node("Sub", times(a, cosine), times(b, sine))
    right = copy.node("Add", times(b, cosine), times(a, sine))
    copy.output("out", copy.node("Concat", left, right, axis=2))


def _forms(operator: Rope, dims: Dims) -> Mapping[str, Form]:
    found = {
        "RotaryEmbedding, contrib": Form(partial(_contrib, operator), ("onnxruntime",), _feed),
        "RotaryEmbedding": Form(partial(_standard, operator), feed=_feed, opset=23),
    }
    if not operator.interleaved:
        found["Gather+Mul+Add"] = Form(partial(_plain, operator))
    return found


def _numpy(operator: Rope, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    half = operator.size // 2
    first, second = slice(0, half), slice(half, None)
    if operator.interleaved:
        first, second = slice(0, None, 2), slice(1, None, 2)
    a, b = x["x"][..., first], x["x"][..., second]
    left, right = out["out"][..., first], out["out"][..., second]
    spare = np.empty(a.shape, np.float32)

    def call() -> None:
        cosine = w["cosines"][x["positions"]][:, None]
        sine = w["sines"][x["positions"]][:, None]
        np.multiply(a, cosine, out=left)
        np.multiply(b, sine, out=spare)
        np.subtract(left, spare, out=left)
        np.multiply(b, cosine, out=right)
        np.multiply(a, sine, out=spare)
        np.add(right, spare, out=right)

    return call


def _torch(torch: Any, operator: Rope, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        cosine = w["cosines"][x["positions"]][:, None]
        sine = w["sines"][x["positions"]][:, None]
        if operator.interleaved:
            a, b = x["x"][..., ::2], x["x"][..., 1::2]
            parts = (a * cosine - b * sine, b * cosine + a * sine)
            return {"out": torch.stack(parts, -1).flatten(-2)}
        a, b = x["x"].chunk(2, dim=-1)
        return {"out": torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1)}

    return one


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
