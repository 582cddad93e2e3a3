"""Peers of SwiGLU over gate and up side by side.

In: `Swiglu`. Out: `PEERS`. Never here: the products around it.

The engines may also take gate and up as two inputs, split outside the clock: then no node splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers import activations
from kernelgen.ops.activation import Swiglu
from kernelgen.ops.operator import Array

Act = Callable[[Copy, str], str]


def _apart(n: int, x: Arrays) -> dict[str, Array]:
    return {"gate": x["gate_up"][:, :n], "up": x["gate_up"][:, n:]}


def _two(act: Act, copy: Copy) -> None:
    copy.output("out", copy.node("Mul", act(copy, copy.input("gate")), copy.input("up")))


def _split(act: Act, copy: Copy) -> None:
    gate, up = copy.nodes("Split", copy.input("gate_up"), count=2, axis=1, num_outputs=2)
    copy.output("out", copy.node("Mul", act(copy, gate), up))


def _forms(operator: Swiglu, dims: Dims) -> Mapping[str, Form]:
    feed = partial(_apart, operator.n)
    return {
        "Sigmoid+Mul+Mul": Form(partial(_two, activations.sigmoid_product), feed=feed),
        "QuickGelu+Mul": Form(partial(_two, activations.quick_gelu), feed=feed),
        "Split+QuickGelu+Mul": Form(partial(_split, activations.quick_gelu)),
    }


def _numpy(operator: Swiglu, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    gate, up = x["gate_up"][:, : operator.n], x["gate_up"][:, operator.n :]
    made = out["out"]

    def call() -> None:
        activations.silu(gate, made)
        np.multiply(made, up, out=made)

    return call


def _torch(torch: Any, operator: Swiglu, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        gate, up = x["gate_up"].chunk(2, dim=1)
        return {"out": torch.nn.functional.silu(gate) * up}

    return one


PEERS = Peers(_forms, _numpy, _torch)
