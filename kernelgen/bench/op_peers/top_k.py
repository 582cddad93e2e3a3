"""Peers of the k largest of every row with their places.

In: `TopK`. Out: `PEERS`. Never here: sampling.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops.topk import TopK


def _body(operator: TopK, copy: Copy) -> None:
    values, places = copy.nodes(
        "TopK", copy.input("x"), copy.ints(operator.k), count=2, axis=-1, largest=1, sorted=1
    )
    copy.output("values", values)
    copy.output("indices", places)


def _forms(operator: TopK, dims: Dims) -> Mapping[str, Form]:
    return {"TopK": Form(partial(_body, operator))}


def _numpy(operator: TopK, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    """Selection, then a sort of the k alone. Equal values may come in another order than ours; the
    timed contents have none.
    """
    k = operator.k

    def call() -> None:
        part = np.argpartition(x["x"], -k, axis=-1)[:, -k:]
        found = np.take_along_axis(x["x"], part, -1)
        order = np.argsort(-found, axis=-1)
        out["values"][...] = np.take_along_axis(found, order, -1)
        out["indices"][...] = np.take_along_axis(part, order, -1)

    return call


def _torch(torch: Any, operator: TopK, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        found = torch.topk(x["x"], operator.k)
        return {"values": found.values, "indices": found.indices}

    return one


PEERS = Peers(_forms, _numpy, _torch)
