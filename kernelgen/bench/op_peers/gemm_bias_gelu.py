"""Peers of a matrix product with bias and exact GELU.

In: `GemmBiasGelu`. Out: `PEERS`. Never here: the tanh form, which is another function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.activations import gelu
from kernelgen.bench.op_peers.products import gemm, linear, matmul
from kernelgen.ops import GemmBiasGelu


def _gelu(copy: Copy) -> None:
    copy.output("out", copy.node("Gelu", gemm(copy)))


def _bias_gelu(copy: Copy) -> None:
    copy.output("out", copy.node("BiasGelu", matmul(copy), copy.weight("bias"), domain=CONTRIB))


def _forms(operator: GemmBiasGelu, dims: Dims) -> Mapping[str, Form]:
    return {"Gemm+Gelu": Form(_gelu), "MatMul+BiasGelu": Form(_bias_gelu, ("onnxruntime",))}


def _numpy(operator: GemmBiasGelu, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    product = np.empty_like(made)

    def call() -> None:
        linear(x["a"], w["w"], w["bias"], product)
        gelu(product, made)

    return call


def _torch(torch: Any, operator: GemmBiasGelu, dims: Dims) -> Any:
    after = torch.nn.functional.gelu
    return lambda x, w: {"out": after(torch.addmm(w["bias"], x["a"], w["w"]))}


PEERS = Peers(_forms, _numpy, _torch)
