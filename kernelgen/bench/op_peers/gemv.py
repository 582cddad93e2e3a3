"""Peers of one row times a matrix.

In: `Gemv`. Out: `PEERS`. Never here: several rows, quantised weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops.gemv import Gemv
from kernelgen.ops.operator import Array


def transposed(w: Array) -> Array:
    return np.ascontiguousarray(w.T)


def as_row(x: Arrays) -> dict[str, Array]:
    """The vector as a matrix of one row."""
    return {"x": x["x"][None]}


def _matmul(operator: Gemv, copy: Copy) -> None:
    made = copy.node("MatMul", copy.input("x"), copy.weight("w"))
    copy.output("out", made, (1, operator.n))


def _gemm(operator: Gemv, copy: Copy) -> None:
    turned = copy.weight("w", transposed)
    copy.output("out", copy.node("Gemm", copy.input("x"), turned, transB=1), (1, operator.n))


def _forms(operator: Gemv, dims: Dims) -> Mapping[str, Form]:
    return {
        "MatMul": Form(partial(_matmul, operator), feed=as_row),
        "Gemm, transposed": Form(partial(_gemm, operator), feed=as_row),
    }


def _straight(operator: Gemv, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(np.dot, x["x"], w["w"], out=out["out"])


def _turned(operator: Gemv, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(np.dot, transposed(w["w"]), x["x"], out=out["out"])


def _torch(torch: Any, operator: Gemv, dims: Dims) -> Any:
    return lambda x, w: {"out": x["x"] @ w["w"]}


PEERS = Peers(_forms, {"x W": _straight, "transposed W x": _turned}, _torch)
