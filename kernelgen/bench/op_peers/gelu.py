"""Peers of exact GELU, element by element.

In: `Gelu`. Out: `PEERS`. Never here: the tanh form, which is another function.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers import activations
from kernelgen.ops.activation import Gelu


def _standard(copy: Copy) -> None:
    copy.output("out", copy.node("Gelu", copy.input("x")))


def _contrib(copy: Copy) -> None:
    copy.output("out", copy.node("Gelu", copy.input("x"), domain=CONTRIB))


def _forms(operator: Gelu, dims: Dims) -> Mapping[str, Form]:
    return {"Gelu": Form(_standard), "Gelu, contrib": Form(_contrib, ("onnxruntime",))}


def _numpy(operator: Gelu, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(activations.gelu, x["x"], out["out"])


def _torch(torch: Any, operator: Gelu, dims: Dims) -> Any:
    return lambda x, w: {"out": torch.nn.functional.gelu(x["x"])}


PEERS = Peers(_forms, _numpy, _torch)
