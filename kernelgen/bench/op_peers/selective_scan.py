"""Peers of the selective scan: no stock stack has it as one operator.

In: `SelectiveScan`. Out: `PEERS`. Never here: a fused scan; a ratio over these is one over a loop.

Whatever does not depend on the state is computed for all steps at once where that is faster; the
engines walk the rest in a Scan node, or in nodes for every step of a short sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.ops.operator import Array
from kernelgen.ops.selective_scan import SelectiveScan


def _softplus(z: Array) -> Array:
    """In place of z."""
    above = np.maximum(z, 0.0)
    np.abs(z, out=z)
    np.negative(z, out=z)
    np.exp(z, out=z)
    np.log1p(z, out=z)
    z += above
    return z


def _all_steps(operator: SelectiveScan, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    shape = (dims["length"], operator.channels, operator.states)
    decay, fed = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def call() -> None:
        step = _softplus(x["delta"] + w["bias"])
        np.multiply(step[:, :, None], w["a"], out=decay)
        np.exp(decay, out=decay)
        np.multiply((step * x["x"])[:, :, None], x["b"][:, None, :], out=fed)
        state, y = out["after"], out["y"]
        np.copyto(state, x["before"])
        for t in range(dims["length"]):
            np.multiply(state, decay[t], out=state)
            np.add(state, fed[t], out=state)
            np.dot(state, x["c"][t], out=y[t])
        y += w["d"] * x["x"]

    return call


def _step_by_step(operator: SelectiveScan, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    shape = (operator.channels, operator.states)
    decay, fed = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def call() -> None:
        step = _softplus(x["delta"] + w["bias"])
        scaled = step * x["x"]
        state, y = out["after"], out["y"]
        np.copyto(state, x["before"])
        for t in range(dims["length"]):
            np.multiply(step[t][:, None], w["a"], out=decay)
            np.exp(decay, out=decay)
            np.multiply(state, decay, out=state)
            np.multiply(scaled[t][:, None], x["b"][t], out=fed)
            np.add(state, fed, out=state)
            np.dot(state, x["c"][t], out=y[t])
        y += w["d"] * x["x"]

    return call


def _body(operator: SelectiveScan) -> Any:
    """One step: (state, decay, fed, c) -> (state, y)."""
    state, mix = [operator.channels, operator.states], [operator.states, 1]

    def value(name: str, shape: list[int]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Mul", ["state_in", "decay_in"], ["left"]),
        helper.make_node("Add", ["left", "fed_in"], ["state_out"]),
        helper.make_node("MatMul", ["state_out", "mix_in"], ["y_out"]),
    ]
    inputs = [value(name, state) for name in ("state_in", "decay_in", "fed_in")]
    outputs = [value("state_out", state), value("y_out", [operator.channels, 1])]
    return helper.make_graph(nodes, "step", [*inputs, value("mix_in", mix)], outputs)


def _prepared(operator: SelectiveScan, copy: Copy) -> tuple[str, str]:
    """Decays and inputs of all steps: [length, channels, states] each."""
    step = copy.node("Softplus", copy.node("Add", copy.input("delta"), copy.weight("bias")))
    last, middle = copy.ints(-1), copy.ints(1)
    rates = copy.node("Mul", copy.node("Unsqueeze", step, last), copy.weight("a"))
    scaled = copy.node("Unsqueeze", copy.node("Mul", step, copy.input("x")), last)
    fed = copy.node("Mul", scaled, copy.node("Unsqueeze", copy.input("b"), middle))
    return copy.node("Exp", rates), fed


def _finish(copy: Copy, rows: str, after: str) -> None:
    """`rows` [length, channels, 1] are the sums over states."""
    skip = copy.node("Mul", copy.weight("d"), copy.input("x"))
    y = copy.node("Add", copy.node("Squeeze", rows, copy.ints(-1)), skip)
    copy.output("y", y)
    copy.output("after", after)


def _scan(operator: SelectiveScan, copy: Copy) -> None:
    decay, fed = _prepared(operator, copy)
    mix = copy.node("Unsqueeze", copy.input("c"), copy.ints(-1))
    after, rows = copy.nodes(
        "Scan",
        copy.input("before"),
        decay,
        fed,
        mix,
        count=2,
        body=_body(operator),
        num_scan_inputs=3,
    )
    _finish(copy, rows, after)


def _unrolled(operator: SelectiveScan, copy: Copy) -> None:
    """Two nodes a step and no loop; the sums over states of all steps in one product."""
    decay, fed = _prepared(operator, copy)
    length = copy.dims["length"]
    decays, inputs = (
        copy.nodes("Split", whole, count=length, axis=0, num_outputs=length)
        for whole in (decay, fed)
    )
    state = copy.node("Unsqueeze", copy.input("before"), copy.ints(0))
    states = []
    for keep, new in zip(decays, inputs, strict=True):
        state = copy.node("Add", copy.node("Mul", state, keep), new)
        states.append(state)
    mix = copy.node("Unsqueeze", copy.input("c"), copy.ints(-1))
    every = states[0] if length == 1 else copy.node("Concat", *states, axis=0)
    _finish(
        copy,
        copy.node("MatMul", every, mix),
        copy.node("Squeeze", state, copy.ints(0)),
    )


UNROLLED_STEPS = 256
"""More steps would make a graph that engines prepare for minutes."""


def _forms(operator: SelectiveScan, dims: Dims) -> Mapping[str, Form]:
    found = {"Scan": Form(partial(_scan, operator))}
    if dims["length"] <= UNROLLED_STEPS:
        found["unrolled"] = Form(partial(_unrolled, operator))
    return found


def _torch(torch: Any, operator: SelectiveScan, dims: Dims) -> Any:
    def one(x: Any, w: Any) -> Any:
        step = torch.nn.functional.softplus(x["delta"] + w["bias"])
        decay = torch.exp(step[:, :, None] * w["a"])
        fed = (step * x["x"])[:, :, None] * x["b"][:, None, :]
        state, rows = x["before"], []
        for t in range(dims["length"]):
            state = decay[t] * state + fed[t]
            rows.append(state @ x["c"][t])
        return {"y": torch.stack(rows) + w["d"] * x["x"], "after": state}

    return one


PEERS = Peers(
    _forms,
    {"all steps": _all_steps, "step by step": _step_by_step},
    _torch,
    # OpenVINO's exponential is coarser than ours: 3 to 4 times the bound, and the fastest stack.
    slack=8.0,
)
