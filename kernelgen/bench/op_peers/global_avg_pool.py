"""Peers of the mean of all pixels of a channel.

In: `GlobalAvgPool`. Out: `PEERS`. Never here: windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops.pool2d import GlobalAvgPool


def _pool(operator: GlobalAvgPool, copy: Copy) -> None:
    made = copy.node("GlobalAveragePool", copy.input("x"))
    copy.output("out", made, (copy.dims["n"], operator.channels, 1, 1))


def _reduce(copy: Copy) -> None:
    made = copy.node("ReduceMean", copy.input("x"), copy.ints(2, 3), keepdims=0)
    copy.output("out", made)


def _forms(operator: GlobalAvgPool, dims: Dims) -> Mapping[str, Form]:
    return {
        "GlobalAveragePool": Form(partial(_pool, operator)),
        "ReduceMean": Form(_reduce),
    }


def _numpy(operator: GlobalAvgPool, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    pixels = x["x"].reshape(*made.shape, -1)
    count = np.float32(pixels.shape[-1])

    def call() -> None:
        np.add.reduce(pixels, axis=-1, out=made)
        np.divide(made, count, out=made)

    return call


def _torch(torch: Any, operator: GlobalAvgPool, dims: Dims) -> Any:
    return lambda x, w: {"out": x["x"].mean((2, 3))}


PEERS = Peers(_forms, _numpy, _torch)
