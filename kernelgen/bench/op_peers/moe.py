"""Peers of a sparse mixture of experts.

In: `Moe`. Out: `PEERS`. Never here: the product that makes the logits.

ONNX Runtime has one node for it. Its GELU is the tanh form, so that row is refused as wrong; where
experts are gated it wants w1 and w3 row by row in turn, laid out before the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.ops.moe import CHOSEN, Moe
from kernelgen.ops.operator import Array


def _turned(w: Array) -> Array:
    return np.ascontiguousarray(w.transpose(0, 2, 1))


def _node(operator: Moe, copy: Copy) -> None:
    w1 = copy.weights["w1"]
    if operator.gated:
        pairs = np.stack([_turned(w1), _turned(copy.weights["w3"])], axis=2)
        first = pairs.reshape(operator.experts, -1, operator.hidden)
        kind: dict[str, Any] = {
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "activation_alpha": 1.0,
            "activation_beta": 0.0,
        }
    else:
        first, kind = _turned(w1), {"activation_type": "gelu"}
    made = copy.node(
        "MoE",
        copy.input("x"),
        copy.input("logits"),
        copy.own("fc1", first),
        "",
        copy.own("fc2", _turned(copy.weights["w2"])),
        domain=CONTRIB,
        k=CHOSEN,
        normalize_routing_weights=operator.normalise,
        **kind,
    )
    copy.output("out", made)


def _forms(operator: Moe, dims: Dims) -> Mapping[str, Form]:
    return {"MoE": Form(partial(_node, operator), ("onnxruntime",))}


def _numpy(operator: Moe, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    """Rows of one expert at a time through NumPy's products."""

    def gates() -> tuple[Array, Array]:
        logits = x["logits"]
        order = np.argsort(-logits, axis=-1, kind="stable")[:, :CHOSEN]
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chosen = np.take_along_axis(powers, order, axis=-1)
        total = chosen if operator.normalise else powers
        return order, chosen / total.sum(axis=-1, keepdims=True)

    def call() -> None:
        order, gate = gates()
        out["out"][...] = 0.0
        for expert in np.unique(order):
            rows, places = np.nonzero(order == expert)
            own = x["x"][rows]
            inner = own @ w["w1"][expert]
            if operator.gated:
                power = np.exp(-inner)
                power += np.float32(1.0)
                inner /= power
                inner *= own @ w["w3"][expert]
            else:
                _gelu(inner)
            made = inner @ w["w2"][expert]
            made *= gate[rows, places][:, None]
            out["out"][rows] += made

    return call


def _gelu(rows: Array) -> None:
    """In place, erf after Abramowitz and Stegun 7.1.26: NumPy has none."""
    z = np.abs(rows) * np.float32(0.5**0.5)
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    series = np.full_like(t, 1.061405429)
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(term)
    tail = np.float32(0.5) * series * t * np.exp(-z * z)
    rows *= np.where(rows < 0, tail, 1.0 - tail)


def _torch(torch: Any, operator: Moe, dims: Dims) -> Any:
    layers = torch.nn.functional

    def one(x: Any, w: Any) -> Any:
        scores = torch.softmax(x["logits"], dim=-1)
        gate, order = torch.topk(scores, CHOSEN, dim=-1)
        if operator.normalise:
            gate = gate / gate.sum(dim=-1, keepdim=True)
        made = torch.zeros_like(x["x"])
        for expert in range(operator.experts):
            rows, places = torch.where(order == expert)
            own = x["x"][rows]
            inner = own @ w["w1"][expert]
            if operator.gated:
                inner = layers.silu(inner) * (own @ w["w3"][expert])
            else:
                inner = layers.gelu(inner)
            made.index_add_(0, rows, (inner @ w["w2"][expert]) * gate[rows, places][:, None])
        return {"out": made}

    return one


PEERS = Peers(_forms, _numpy, _torch)
