"""RMSNorm, alone or after a residual sum: one pass for the sum of squares, one for the scaled row,
which is in registers or in the first cache by then. A complete sketch that is short: begin a new
one from here.

In: an `Rmsnorm` or `ResidualRmsnorm` and a schedule. Out: its program. Never here: the formula's
meaning.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.rmsnorm import Rmsnorm
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import (
    Row,
    block,
    blocks,
    filled,
    fitting,
    norm_space,
    reader,
    summed,
    walk,
)
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import fma, sum_, word
from kernelgen.tile.ir import Kernel


def _program(operator: Rmsnorm, schedule: Schedule) -> Kernel:
    n, held = operator.n, bool(schedule.number("hold"))
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    x, gamma, out = memory["x"], memory["gamma"], memory["out"]
    residual, total = memory.get("residual"), memory.get("total")
    scale = b.buffer("scale", "f32", (n,), "packed")
    with b.prepare():
        for piece in walk(b, "j", n, lanes):
            scale[piece.span] = gamma[piece.span]
    with b.run():
        for i, rows in blocks(b, b.dim("m"), schedule.number("rows")):
            at = block(i, rows)
            row = Row(b, n, lanes, summed(x, residual, at), held=held, again=reader(total or x, at))
            squares = b.let("squares", filled(0.0, rows, lanes))
            for piece, v in row.each():
                if total is not None:
                    total[at, piece.span] = v
                b.let("squares", fma(v, v, squares))
            mean = b.let("sum_of_squares", sum_(squares)) * (1.0 / n)
            factor = b.let("factor", 1.0 / word("sqrt", mean + operator.epsilon))
            for piece, v in row.each():
                out[at, piece.span] = v * factor * scale[piece.span]
    return b.kernel()


def _space(operator: Rmsnorm, machine: Machine) -> SearchSpace:
    return norm_space(operator.name, operator.n, widths(machine))


RMSNORM = Sketch("rmsnorm", _program, _space)
RESIDUAL_RMSNORM = Sketch("residual_rmsnorm", _program, _space)
