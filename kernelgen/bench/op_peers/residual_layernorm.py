"""Peers of LayerNorm after a residual sum, both given out.

In: `ResidualLayernorm`. Out: `PEERS`. Never here: the product before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.norms import layernorm_rows
from kernelgen.ops.layernorm import ResidualLayernorm


def _plain(operator: ResidualLayernorm, copy: Copy) -> None:
    total = copy.node("Add", copy.input("x"), copy.input("residual"))
    gamma, beta = copy.weight("gamma"), copy.weight("beta")
    made = copy.node("LayerNormalization", total, gamma, beta, axis=-1, epsilon=operator.epsilon)
    copy.output("total", copy.node("Identity", total))
    copy.output("out", copy.node("Identity", made))


def _fused(operator: ResidualLayernorm, copy: Copy) -> None:
    made = copy.nodes(
        "SkipLayerNormalization",
        copy.input("x"),
        copy.input("residual"),
        copy.weight("gamma"),
        copy.weight("beta"),
        count=4,
        domain=CONTRIB,
        epsilon=operator.epsilon,
    )
    copy.output("out", made[0])
    copy.output("total", made[3])


def _forms(operator: ResidualLayernorm, dims: Dims) -> Mapping[str, Form]:
    return {
        "Add+LayerNormalization": Form(partial(_plain, operator)),
        "SkipLayerNormalization": Form(partial(_fused, operator)),
    }


def _numpy(operator: ResidualLayernorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    total, made = out["total"], out["out"]

    def call() -> None:
        np.add(x["x"], x["residual"], out=total)
        np.copyto(made, total)
        layernorm_rows(made, w["gamma"], w["beta"], operator.epsilon)

    return call


def _torch(torch: Any, operator: ResidualLayernorm, dims: Dims) -> Any:
    norm = torch.nn.functional.layer_norm

    def one(x: Any, w: Any) -> Any:
        total = x["x"] + x["residual"]
        made = norm(total, (operator.n,), w["gamma"], w["beta"], operator.epsilon)
        return {"total": total, "out": made}

    return one


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
