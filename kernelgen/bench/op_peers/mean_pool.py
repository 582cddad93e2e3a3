"""Peers of mean pooling over sequences.

In: `MeanPool`. Out: `PEERS`. Never here: pooling of images.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops import MeanPool
from kernelgen.ops.operator import Array


def averaging(offsets: Array) -> Array:
    """The matrix that turns token rows into means: [n, tokens]."""
    lengths = np.diff(offsets)
    matrix = np.zeros((len(lengths), int(offsets[-1])), np.float32)
    for row, (begin, end) in enumerate(itertools.pairwise(offsets)):
        matrix[row, begin:end] = 1.0 / (end - begin)
    return matrix


def _matmul(copy: Copy) -> None:
    matrix = copy.constant("averaging", averaging(copy.inputs["offsets"]))
    copy.output("out", copy.node("MatMul", matrix, copy.input("states")))


def _reduce(copy: Copy) -> None:
    if copy.dims["n"] == 1:
        copy.output("out", copy.node("ReduceMean", copy.input("states"), copy.ints(0), keepdims=1))
        return
    lengths = copy.constant("lengths", np.diff(copy.inputs["offsets"]))
    parts = copy.nodes("Split", copy.input("states"), lengths, count=copy.dims["n"], axis=0)
    means = [copy.node("ReduceMean", part, copy.ints(0), keepdims=1) for part in parts]
    copy.output("out", copy.node("Concat", *means, axis=0))


def _forms(operator: MeanPool, dims: Dims) -> Mapping[str, Form]:
    return {"ReduceMean": Form(_reduce), "MatMul": Form(_matmul)}


def _numpy(operator: MeanPool, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    states, made = x["states"], out["out"]
    if dims["n"] == 1:
        count = np.float32(dims["tokens"])

        def single() -> None:
            np.add.reduce(states, axis=0, out=made[0])
            np.divide(made, count, out=made)

        return single
    starts = x["offsets"][:-1]
    counts = np.diff(x["offsets"]).astype(np.float32)[:, None]

    def ragged() -> None:
        np.add.reduceat(states, starts, axis=0, out=made)
        np.divide(made, counts, out=made)

    return ragged


def _torch(torch: Any, operator: MeanPool, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        if dims["n"] == 1:
            return {"out": x["states"].mean(0, keepdim=True)}
        return {"out": torch.segment_reduce(x["states"], "mean", offsets=x["offsets"])}

    return one


PEERS = Peers(_forms, _numpy, _torch, fixed=("offsets",))
