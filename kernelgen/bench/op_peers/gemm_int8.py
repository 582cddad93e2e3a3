"""Peers of products of bytes.

In: `GemmInt8`. Out: `PEERS`. Never here: weights alone in bytes.

The scale and the zero point of the activations are the same in all copies, so that an engine may
take them for constants, as in a statically quantised model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, FLOAT, Copy
from kernelgen.bench.op_peers.quantised import EXACT
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.ops.operator import UNIT_ROUNDOFF, Array, sum_growth


def _scalar(copy: Copy, name: str) -> str:
    return copy.constant(f"{name}_scalar", copy.inputs[name].reshape(()))


def _fused(copy: Copy) -> None:
    made = copy.node(
        "MatMulIntegerToFloat",
        copy.input("a"),
        copy.weight("w"),
        _scalar(copy, "a_scale"),
        copy.weight("w_scale"),
        _scalar(copy, "a_zero"),
        domain=CONTRIB,
    )
    copy.output("out", made)


def _apart(copy: Copy) -> None:
    total = copy.node("MatMulInteger", copy.input("a"), copy.weight("w"), _scalar(copy, "a_zero"))
    scale = copy.own("scale", copy.inputs["a_scale"] * copy.weights["w_scale"])
    copy.output("out", copy.node("Mul", copy.node("Cast", total, to=FLOAT), scale))


def _dequantised(copy: Copy) -> None:
    """The pattern of a statically quantised model."""
    a = copy.node(
        "DequantizeLinear", copy.input("a"), _scalar(copy, "a_scale"), _scalar(copy, "a_zero")
    )
    w = copy.node("DequantizeLinear", copy.weight("w"), copy.weight("w_scale"), axis=1)
    copy.output("out", copy.node("MatMul", a, w))


def _forms(operator: GemmInt8, dims: Dims) -> Mapping[str, Form]:
    return {
        "MatMulIntegerToFloat": Form(_fused, ("onnxruntime",)),
        "MatMulInteger+Cast+Mul": Form(_apart, settings=EXACT),
        "DequantizeLinear+MatMul": Form(_dequantised, settings=EXACT),
    }


def _shifted(w: Arrays) -> Array:
    """The weights in float32: NumPy multiplies bytes far slower."""
    return w["w"].astype(np.float32)


def _numpy(operator: GemmInt8, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made, wide = out["out"], _shifted(w)
    rows = np.empty(x["a"].shape, np.float32)
    scale = x["a_scale"] * w["w_scale"]
    zero = x["a_zero"].astype(np.float32)

    def call() -> None:
        np.subtract(x["a"], zero, out=rows)
        np.matmul(rows, wide, out=made)
        np.multiply(made, scale, out=made)

    return call


def _torch(torch: Any, operator: GemmInt8, dims: Dims) -> Any:
    kept: dict[int, Any] = {}

    def one(x: Any, w: Any) -> Any:
        at = w["w"].data_ptr()
        if at not in kept:
            kept[at] = w["w"].float()
        rows = x["a"].float() - x["a_zero"].float()
        return {"out": rows @ kept[at] * (x["a_scale"] * w["w_scale"])}

    return one


def _float32_sums(operator: GemmInt8, arrays: Arrays) -> dict[str, Array]:
    """What sums in float32 may err, where the operator wants exact ones."""
    a = (arrays["a"].astype(np.float64) - arrays["a_zero"]) * arrays["a_scale"]
    w = arrays["w"].astype(np.float64) * arrays["w_scale"]
    return {"out": UNIT_ROUNDOFF * sum_growth(operator.k) * (np.abs(a) @ np.abs(w))}


PEERS = Peers(
    _forms,
    _numpy,
    _torch,
    fixed=("a_scale", "a_zero"),
    bound=_float32_sums,
    bound_note="that of float32 sums",
)
