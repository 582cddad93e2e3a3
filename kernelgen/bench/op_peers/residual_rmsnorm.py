"""Peers of RMSNorm after a residual sum, both given out.

In: `ResidualRmsnorm`. Out: `PEERS`. Never here: the product before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.norms import rmsnorm_rows
from kernelgen.ops.rmsnorm import ResidualRmsnorm


def _plain(operator: ResidualRmsnorm, copy: Copy) -> None:
    total = copy.node("Add", copy.input("x"), copy.input("residual"))
    made = copy.node(
        "RMSNormalization", total, copy.weight("gamma"), axis=-1, epsilon=operator.epsilon
    )
    copy.output("total", copy.node("Identity", total))
    copy.output("out", copy.node("Identity", made))


def _fused(operator: ResidualRmsnorm, copy: Copy) -> None:
    made = copy.nodes(
        "SkipSimplifiedLayerNormalization",
        copy.input("x"),
        copy.input("residual"),
        copy.weight("gamma"),
        count=4,
        domain=CONTRIB,
        epsilon=operator.epsilon,
    )
    copy.output("out", made[0])
    copy.output("total", made[3])


def _forms(operator: ResidualRmsnorm, dims: Dims) -> Mapping[str, Form]:
    return {
        "Add+RMSNormalization": Form(partial(_plain, operator), opset=23),
        "SkipSimplifiedLayerNormalization": Form(partial(_fused, operator)),
    }


def _numpy(operator: ResidualRmsnorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    total, made = out["total"], out["out"]

    def call() -> None:
        np.add(x["x"], x["residual"], out=total)
        rmsnorm_rows(total, w["gamma"], operator.epsilon, made)

    return call


def _torch(torch: Any, operator: ResidualRmsnorm, dims: Dims) -> Any:
    norm = torch.nn.functional.rms_norm

    def one(x: Any, w: Any) -> Any:
        total = x["x"] + x["residual"]
        return {"total": total, "out": norm(total, (operator.n,), w["gamma"], operator.epsilon)}

    return one


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
