"""Peers of softmax over rows, with or without an additive mask.

In: `Softmax`. Out: `PEERS`. Never here: the products of attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.rows import softmax_rows
from kernelgen.ops.softmax import Softmax


def _body(operator: Softmax, copy: Copy) -> None:
    scores = copy.input("x")
    if operator.masked:
        scores = copy.node("Add", scores, copy.input("mask"))
    copy.output("out", copy.node("Softmax", scores, axis=-1))


def _forms(operator: Softmax, dims: Dims) -> Mapping[str, Form]:
    return {"Softmax": Form(partial(_body, operator))}


def _numpy(operator: Softmax, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]

    def call() -> None:
        if operator.masked:
            np.add(x["x"], x["mask"], out=made)
        else:
            np.copyto(made, x["x"])
        softmax_rows(made)

    return call


def _torch(torch: Any, operator: Softmax, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        scores = x["x"] + x["mask"] if operator.masked else x["x"]
        return {"out": torch.softmax(scores, -1)}

    return one


PEERS = Peers(_forms, _numpy, _torch)
