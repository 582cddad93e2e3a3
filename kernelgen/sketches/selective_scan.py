"""Selective scan: channels side by side in the lanes, their states in registers, one step after the
other; nothing of the state touches memory between the first step and the last.

In: a `SelectiveScan` and a schedule. Out: its program. Never here: the formula's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.selective_scan import SelectiveScan
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, Reach, fma, maximum, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

_TERMS = 8
"""Terms of the series of log(1 + e), e at most 1: the ninth is below half a unit in the last place
of the first.
"""


def _program(operator: SelectiveScan, schedule: Schedule) -> Kernel:
    v, n = schedule.number("vector"), operator.channels
    b, memory = begin(operator)
    memory["rates"] = b.buffer("rates", "f32", (operator.states, n), "packed")
    memory["skip"] = b.buffer("skip", "f32", (n,), "packed")
    memory["shift"] = b.buffer("shift", "f32", (n,), "packed")
    with b.prepare(), b.loop("j", 0, n) as j:
        memory["skip"][j] = memory["d"][j]
        memory["shift"][j] = memory["bias"][j]
        with b.loop("s", 0, operator.states) as s:
            memory["rates"][s, j] = memory["a"][j, s]
    whole = n // v * v
    with b.run():
        with b.parallel("j", 0, whole, v) as j:
            _walk(b, memory, operator, schedule, span(j, v))
        if whole < n:
            _walk(b, memory, operator, schedule, span(whole, v, n - whole))
    return b.kernel()


def _walk(
    b: Build,
    memory: Mapping[str, Memory],
    operator: SelectiveScan,
    schedule: Schedule,
    lanes: Reach,
) -> None:
    """All steps of one vector of channels."""
    sums, states = schedule.number("sums"), range(operator.states)
    kept = [b.let(f"state_{s}", memory["before"][lanes, s]) for s in states]
    skip, shift = (
        b.let("skip_here", memory["skip"][lanes]),
        b.let("shift_here", memory["shift"][lanes]),
    )
    with b.loop("t", 0, "length") as t:
        size = b.let("size", _softplus(b, memory["delta"][t, lanes] + shift))
        x = b.let("x_here", memory["x"][t, lanes])
        fed = b.let("fed", size * x)
        parts: list[Expr] = []
        for s in states:
            decay = word("exp_below", size * memory["rates"][s, lanes])
            b.let(f"state_{s}", fma(decay, kept[s], fed * memory["b"][t, s]))
            if s < sums:
                parts.append(b.let(f"part_{s}", kept[s] * memory["c"][t, s]))
            else:
                b.let(f"part_{s % sums}", fma(kept[s], memory["c"][t, s], parts[s % sums]))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        memory["y"][t, lanes] = fma(skip, x, total)
    for s in states:
        memory["after"][lanes, s] = kept[s]


def _softplus(b: Build, z: Expr) -> Expr:
    """log(1 + exp(z)) = max(z, 0) + log(1 + e), e = exp(-|z|), by the series of atanh, which keeps
    its accuracy for the smallest e.
    """
    z = b.let("z", z)
    e = b.let("e", word("exp_below", -word("abs", z)))
    ratio = b.let("ratio", e / (e + 2.0))
    square = b.let("square", ratio * ratio)
    series = b.let("series", square * (1.0 / (2 * _TERMS - 1)) + 1.0 / (2 * _TERMS - 3))
    for term in range(_TERMS - 3, -1, -1):
        b.let("series", fma(series, square, 1.0 / (2 * term + 1)))
    return maximum(z, 0.0) + ratio * series * 2.0


def _space(operator: SelectiveScan, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "sums": (1, 2, 4)}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "sums": 2}, lambda choices: None)


SELECTIVE_SCAN = Sketch("selective_scan", _program, _space)
