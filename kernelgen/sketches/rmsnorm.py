"""RMSNorm: one pass for the sum of squares, one for the scaled row; a row is in the first cache by
then. The shortest complete sketch: begin a new one from here.

In: an `Rmsnorm` and a schedule. Out: its program. Never here: the formula's meaning.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.rmsnorm import Rmsnorm
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import fill, fma, span, sum_, word
from kernelgen.tile.ir import Kernel


def _program(operator: Rmsnorm, schedule: Schedule) -> Kernel:
    lanes = schedule.number("vector") * schedule.number("sums")
    b, memory = begin(operator)
    x, gamma, out = memory["x"], memory["gamma"], memory["out"]
    n = operator.n
    scale = b.buffer("scale", "f32", (n,), "packed")
    with b.prepare(), b.loop("j", 0, n, lanes) as j:
        scale[span(j, lanes, n - j)] = gamma[span(j, lanes, n - j)]
    whole = n // lanes * lanes
    with b.run(), b.parallel("i", 0, "m") as i:
        squares = b.let("squares", fill(0.0, "f32", lanes))
        with b.loop("j", 0, whole, lanes) as j:
            v = b.let("v", x[i, span(j, lanes)])
            b.let("squares", fma(v, v, squares))
        if whole < n:
            rest = b.let("rest", x[i, span(whole, lanes, n - whole)])
            b.let("squares", fma(rest, rest, squares))
        total = b.let("total", sum_(squares))
        factor = b.let("factor", 1.0 / word("sqrt", total * (1.0 / n) + operator.epsilon))
        with b.loop("j", 0, whole, lanes) as j:
            out[i, span(j, lanes)] = x[i, span(j, lanes)] * factor * scale[span(j, lanes)]
        if whole < n:
            left = n - whole
            out[i, span(whole, lanes, left)] = (
                x[i, span(whole, lanes, left)] * factor * scale[span(whole, lanes, left)]
            )
    return b.kernel()


def _space(operator: Rmsnorm, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "sums": (1, 2, 4)}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "sums": 2}, lambda choices: None)


RMSNORM = Sketch("rmsnorm", _program, _space)
