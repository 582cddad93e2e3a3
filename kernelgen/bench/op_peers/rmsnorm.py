"""Peers of RMSNorm.

In: `Rmsnorm`. Out: `PEERS`. Never here: a residual.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.norms import rmsnorm_rows
from kernelgen.ops.rmsnorm import Rmsnorm


def _standard(operator: Rmsnorm, copy: Copy) -> None:
    made = copy.node(
        "RMSNormalization",
        copy.input("x"),
        copy.weight("gamma"),
        axis=-1,
        epsilon=operator.epsilon,
    )
    copy.output("out", made)


def _simplified(operator: Rmsnorm, copy: Copy) -> None:
    # The name under which the engines' own transformer tools write it.
    made = copy.node(
        "SimplifiedLayerNormalization",
        copy.input("x"),
        copy.weight("gamma"),
        axis=-1,
        epsilon=operator.epsilon,
    )
    copy.output("out", made)


def _forms(operator: Rmsnorm, dims: Dims) -> Mapping[str, Form]:
    return {
        "RMSNormalization": Form(partial(_standard, operator), opset=23),
        "SimplifiedLayerNormalization": Form(partial(_simplified, operator)),
    }


def _numpy(operator: Rmsnorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(rmsnorm_rows, x["x"], w["gamma"], operator.epsilon, out["out"])


def _torch(torch: Any, operator: Rmsnorm, dims: Dims) -> Any:
    norm = torch.nn.functional.rms_norm
    return lambda x, w: {"out": norm(x["x"], (operator.n,), w["gamma"], operator.epsilon)}


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
