"""Peers of a matrix product with bias, residual and LayerNorm.

In: `GemmBiasResidualLayernorm`. Out: `PEERS`. Never here: the norm without a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.norms import layernorm_rows
from kernelgen.bench.op_peers.products import gemm, linear, matmul
from kernelgen.ops import GemmBiasResidualLayernorm


def _plain(operator: GemmBiasResidualLayernorm, copy: Copy) -> None:
    total = copy.node("Add", gemm(copy), copy.input("residual"))
    gamma, beta = copy.weight("gamma"), copy.weight("beta")
    copy.output(
        "out",
        copy.node("LayerNormalization", total, gamma, beta, axis=-1, epsilon=operator.epsilon),
    )


def _skip(operator: GemmBiasResidualLayernorm, copy: Copy) -> None:
    # The fused node wants three dimensions or two; bias is its own input.
    words = [copy.weight(name) for name in ("gamma", "beta", "bias")]
    made = copy.node(
        "SkipLayerNormalization",
        matmul(copy),
        copy.input("residual"),
        *words,
        domain=CONTRIB,
        epsilon=operator.epsilon,
    )
    copy.output("out", made)


def _forms(operator: GemmBiasResidualLayernorm, dims: Dims) -> Mapping[str, Form]:
    return {
        "Gemm+Add+LayerNormalization": Form(partial(_plain, operator)),
        "MatMul+SkipLayerNormalization": Form(partial(_skip, operator), ("onnxruntime",)),
    }


def _numpy(
    operator: GemmBiasResidualLayernorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays
) -> Call:
    made = out["out"]

    def call() -> None:
        linear(x["a"], w["w"], w["bias"], made)
        np.add(made, x["residual"], out=made)
        layernorm_rows(made, w["gamma"], w["beta"], operator.epsilon)

    return call


def _torch(torch: Any, operator: GemmBiasResidualLayernorm, dims: Dims) -> Any:
    norm = torch.nn.functional.layer_norm

    def one(x: Any, w: Any) -> Any:
        total = torch.addmm(w["bias"], x["a"], w["w"]) + x["residual"]
        return {"out": norm(total, (operator.n,), w["gamma"], w["beta"], operator.epsilon)}

    return one


PEERS = Peers(_forms, _numpy, _torch)
