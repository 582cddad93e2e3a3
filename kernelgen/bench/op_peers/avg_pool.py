"""Peers of pooling by the mean of the pixels inside the image.

In: `AvgPool`. Out: `PEERS`. Never here: whole images.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.op_peers.max_pool import forms, windows
from kernelgen.ops.pool2d import AvgPool


def _numpy(operator: AvgPool, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    inside, taps = windows(operator, x["x"], 0.0, made)
    _, ones = windows(operator, np.ones_like(x["x"]), 0.0, made)
    share = np.float32(1.0) / np.sum(ones, axis=0)

    def call() -> None:
        if operator.padding:
            np.copyto(inside, x["x"])
        np.copyto(made, taps[0])
        for tap in taps[1:]:
            np.add(made, tap, out=made)
        np.multiply(made, share, out=made)

    return call


def _forms(operator: AvgPool, dims: Dims) -> Mapping[str, Form]:
    return forms(operator, "AveragePool")


def _torch(torch: Any, operator: AvgPool, dims: Dims) -> Any:
    pool = torch.nn.functional.avg_pool2d
    sizes = (operator.kernel, operator.stride, operator.padding)
    return lambda x, w: {"out": pool(x["x"], *sizes, count_include_pad=False)}


PEERS = Peers(_forms, _numpy, _torch)
