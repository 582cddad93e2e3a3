"""Peers of a sparse mixture of two experts per row.

In: `Moe`. Out: `PEERS`. Never here: the gate's own product.

ONNX Runtime has a fused node. Without one, an engine either computes every expert for every row, or
gathers the chosen experts' weights; both are tried. NumPy sorts rows by expert.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers import activations
from kernelgen.ops.moe import CHOSEN, Moe
from kernelgen.ops.operator import Array

GATHERED_ROWS = 4
"""More rows than this would gather more weights than there are."""


def turned(w: Array) -> Array:
    """[experts, n, k], rows of outputs, as the fused node wants its weights."""
    return np.ascontiguousarray(w.transpose(0, 2, 1))


def _fused(operator: Moe, copy: Copy) -> None:
    # Gate and up lie in turns; alpha and beta make it plain SwiGLU.
    first = np.stack([turned(copy.weights["w1"]), turned(copy.weights["w3"])], axis=2)
    made = copy.node(
        "MoE",
        copy.input("x"),
        copy.input("logits"),
        copy.own("both", first.reshape(operator.experts, 2 * operator.middle, operator.hidden)),
        "",
        copy.weight("w2", turned),
        domain=CONTRIB,
        k=CHOSEN,
        normalize_routing_weights=operator.normalise,
        activation_type="swiglu",
        swiglu_fusion=1,
        activation_alpha=1.0,
        activation_beta=0.0,
    )
    copy.output("out", made)


def _chosen(operator: Moe, copy: Copy) -> tuple[str, str]:
    """Gates and places [m, 2] of the two best experts."""
    logits = copy.input("logits")
    if not operator.normalise:
        logits = copy.node("Softmax", logits, axis=-1)
    best, places = copy.nodes("TopK", logits, copy.ints(CHOSEN), count=2, axis=-1)
    if operator.normalise:
        best = copy.node("Softmax", best, axis=-1)
    return best, places


def _middle(operator: Moe, copy: Copy, x: str, w1: str, w3: str) -> str:
    inner = copy.node("MatMul", x, w1)
    if not operator.gated:
        return copy.node("Gelu", inner)
    return copy.node("Mul", activations.sigmoid_product(copy, inner), copy.node("MatMul", x, w3))


def _every(operator: Moe, copy: Copy) -> None:
    m = copy.dims["m"]
    best, places = _chosen(operator, copy)
    none = copy.constant("no_gates", np.zeros((m, operator.experts), np.float32))
    gates = copy.node("ScatterElements", none, places, best, axis=1)
    gates = copy.node("Unsqueeze", copy.node("Transpose", gates, perm=[1, 0]), copy.ints(2))
    w3 = copy.weight("w3") if operator.gated else ""
    middle = _middle(operator, copy, copy.input("x"), copy.weight("w1"), w3)
    made = copy.node("Mul", copy.node("MatMul", middle, copy.weight("w2")), gates)
    copy.output("out", copy.node("ReduceSum", made, copy.ints(0), keepdims=0))


def _gathered(operator: Moe, copy: Copy) -> None:
    best, places = _chosen(operator, copy)
    x = copy.node("Unsqueeze", copy.input("x"), copy.ints(1, 2))
    weights = {
        name: copy.node("Gather", copy.weight(name), places, axis=0) for name in copy.weights
    }
    middle = _middle(operator, copy, x, weights["w1"], weights.get("w3", ""))
    made = copy.node("MatMul", middle, weights["w2"])
    made = copy.node("Mul", made, copy.node("Unsqueeze", best, copy.ints(2, 3)))
    copy.output("out", copy.node("ReduceSum", made, copy.ints(1, 2), keepdims=0))


def _forms(operator: Moe, dims: Dims) -> Mapping[str, Form]:
    found = {"every expert": Form(partial(_every, operator))}
    if operator.gated:
        # The fused node's GELU is the tanh form, another function.
        found["MoE"] = Form(partial(_fused, operator), ("onnxruntime",))
    if dims["m"] <= GATHERED_ROWS:
        found["gathered experts"] = Form(partial(_gathered, operator))
    return found


def _gates(operator: Moe, logits: Array) -> tuple[Array, Array]:
    """Places of the two best experts and their gates, both [m, 2]."""
    places = np.argpartition(-logits, CHOSEN - 1, axis=-1)[:, :CHOSEN]
    best = np.take_along_axis(logits, places, -1)
    top = logits.max(axis=-1, keepdims=True)
    best = np.exp(best - top)
    whole = best if operator.normalise else np.exp(logits - top)
    return places, best / whole.sum(axis=-1, keepdims=True)


def _numpy(operator: Moe, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made, rows = out["out"], x["x"]

    def call() -> None:
        places, gates = _gates(operator, x["logits"])
        made[...] = 0.0
        for expert in np.unique(places):
            here, slot = np.nonzero(places == expert)
            mine = rows[here]
            inner = mine @ w["w1"][expert]
            middle = np.empty_like(inner)
            if operator.gated:
                activations.silu(inner, middle)
                middle *= mine @ w["w3"][expert]
            else:
                activations.gelu(inner, middle)
            made[here] += gates[here, slot][:, None] * (middle @ w["w2"][expert])

    return call


def _torch(torch: Any, operator: Moe, dims: Dims) -> Any:
    layers = torch.nn.functional

    def one(x: Any, w: Any) -> Any:
        best, places = torch.topk(x["logits"], CHOSEN)
        gates = torch.softmax(best, -1)
        if not operator.normalise:
            gates = torch.softmax(x["logits"], -1).gather(1, places)
        made = torch.zeros_like(x["x"])
        for expert in torch.unique(places).tolist():
            here, slot = torch.nonzero(places == expert, as_tuple=True)
            mine = x["x"][here]
            inner = mine @ w["w1"][expert]
            if operator.gated:
                middle = layers.silu(inner) * (mine @ w["w3"][expert])
            else:
                middle = layers.gelu(inner)
            made[here] += gates[here, slot][:, None] * (middle @ w["w2"][expert])
        return {"out": made}

    return one


PEERS = Peers(_forms, _numpy, _torch)
