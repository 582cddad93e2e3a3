"""Peers of LayerNorm.

In: `Layernorm`. Out: `PEERS`. Never here: a residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.norms import layernorm_rows
from kernelgen.ops.layernorm import Layernorm


def _body(operator: Layernorm, copy: Copy) -> None:
    made = copy.node(
        "LayerNormalization",
        copy.input("x"),
        copy.weight("gamma"),
        copy.weight("beta"),
        axis=-1,
        epsilon=operator.epsilon,
    )
    copy.output("out", made)


def _forms(operator: Layernorm, dims: Dims) -> Mapping[str, Form]:
    return {"LayerNormalization": Form(partial(_body, operator))}


def _numpy(operator: Layernorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]

    def call() -> None:
        np.copyto(made, x["x"])
        layernorm_rows(made, w["gamma"], w["beta"], operator.epsilon)

    return call


def _torch(torch: Any, operator: Layernorm, dims: Dims) -> Any:
    norm = torch.nn.functional.layer_norm
    shape = (operator.n,)
    return lambda x, w: {"out": norm(x["x"], shape, w["gamma"], w["beta"], operator.epsilon)}


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
