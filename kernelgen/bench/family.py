"""What a stock stack needs to know to run an operator family: one `Peers` record per family.

In: the family's name. Out: `Peers`, found in `kernelgen/bench/op_peers/<family>.py` under the name
`PEERS`. A new family needs a new file and no other change.
Never here: running a stack, timing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelgen.bench.net import OPSET, Copy
from kernelgen.ops.operator import Array, Operator

Arrays = Mapping[str, Array]
Dims = Mapping[str, int]
Call = Callable[[], object]
NumpyForm = Callable[[Any, Dims, Arrays, Arrays, Arrays], Call]

GRAPH_STACKS = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class Form:
    """One way to write an operator as ONNX nodes.

    `body` adds the nodes of one copy. `feed` turns the operator's inputs into the graph's inputs
    outside the clock (a mask from offsets, int32 from int64); by default they are the same.
    `settings` are options of a stack by its name; `opset` where a node needs a newer one.
    """

    body: Callable[[Copy], None]
    stacks: tuple[str, ...] = GRAPH_STACKS
    feed: Callable[[Arrays], dict[str, Array]] | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    opset: int = OPSET


def _no_forms(operator: Any, dims: Dims) -> Mapping[str, Form]:
    return {}


@dataclass(frozen=True)
class Peers:
    """How the stock stacks run one family.

    `forms(operator, dims)`: ONNX graphs by name; all are tried, the fastest correct one counts.
    `numpy(operator, dims, inputs, weights, outputs)`: a call that fills one copy's `outputs`; or
    several such formulations by name.
    `torch(torch, operator, dims)`: a function (inputs, weights) -> outputs over torch tensors.
    `shared_weights`: no stack packs these weights, and a model has one set (a table).
    `fixed`: inputs whose values all copies share (see `Contents`).
    `slack`: how often the error bound a peer may err. `bound(operator, arrays)`: another bound than
    the operator's, for a stack whose honest arithmetic is coarser; `bound_note` says which.
    """

    forms: Callable[[Any, Dims], Mapping[str, Form]] = _no_forms
    numpy: NumpyForm | Mapping[str, NumpyForm] | None = None
    torch: Callable[[Any, Any, Dims], Callable[..., Mapping[str, Any]]] | None = None
    shared_weights: bool = False
    fixed: tuple[str, ...] = ()
    slack: float = 2.0
    bound: Callable[[Any, Arrays], Mapping[str, Array]] | None = None
    bound_note: str = "the operator's"


def peers_of(operator: Operator) -> Peers:
    """The record of the operator's family; one without any peer where the family has no file."""
    name = f"kernelgen.bench.op_peers.{operator.family}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return Peers()
    found: Peers = module.PEERS
    return found
