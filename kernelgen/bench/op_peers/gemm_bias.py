"""Peers of a matrix product with bias.

In: `GemmBias`. Out: `PEERS`. Never here: other epilogues.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.products import gemm, linear, matmul
from kernelgen.ops import GemmBias


def _gemm(copy: Copy) -> None:
    copy.output("out", gemm(copy))


def _matmul(copy: Copy) -> None:
    copy.output("out", copy.node("Add", matmul(copy), copy.weight("bias")))


def _forms(operator: GemmBias, dims: Dims) -> Mapping[str, Form]:
    return {"Gemm": Form(_gemm), "MatMul+Add": Form(_matmul)}


def _numpy(operator: GemmBias, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(linear, x["a"], w["w"], w["bias"], out["out"])


def _torch(torch: Any, operator: GemmBias, dims: Dims) -> Any:
    return lambda x, w: {"out": torch.addmm(w["bias"], x["a"], w["w"])}


PEERS = Peers(_forms, _numpy, _torch)
