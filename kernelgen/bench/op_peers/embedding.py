"""Peers of a table lookup.

In: `Embedding`. Out: `PEERS`. Never here: norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops.embedding import Embedding
from kernelgen.ops.operator import Array


def _small(x: Arrays) -> dict[str, Array]:
    return {"ids": x["ids"].astype(np.int32)}


def _body(copy: Copy) -> None:
    copy.output("out", copy.node("Gather", copy.weight("table"), copy.input("ids"), axis=0))


def _forms(operator: Embedding, dims: Dims) -> Mapping[str, Form]:
    return {"Gather": Form(_body), "Gather, int32": Form(_body, feed=_small)}


def _numpy(operator: Embedding, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    def call() -> None:
        # The default mode copies through a buffer; ids are inside the table here.
        np.take(w["table"], x["ids"], axis=0, out=out["out"], mode="clip")

    return call


def _torch(torch: Any, operator: Embedding, dims: Dims) -> Any:
    return lambda x, w: {"out": torch.nn.functional.embedding(x["ids"], w["table"])}


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True)
