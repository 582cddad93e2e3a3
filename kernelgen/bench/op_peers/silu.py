"""Peers of SiLU, element by element.

In: `Silu`. Out: `PEERS`. Never here: the product it gates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers import activations
from kernelgen.ops.activation import Silu


def _body(act: Callable[[Copy, str], str], copy: Copy) -> None:
    copy.output("out", act(copy, copy.input("x")))


def _forms(operator: Silu, dims: Dims) -> Mapping[str, Form]:
    return {
        "Sigmoid+Mul": Form(partial(_body, activations.sigmoid_product)),
        "QuickGelu": Form(partial(_body, activations.quick_gelu)),
        "Swish": Form(partial(_body, activations.swish), opset=24),
    }


def _numpy(operator: Silu, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return partial(activations.silu, x["x"], out["out"])


def _torch(torch: Any, operator: Silu, dims: Dims) -> Any:
    return lambda x, w: {"out": torch.nn.functional.silu(x["x"])}


PEERS = Peers(_forms, _numpy, _torch)
