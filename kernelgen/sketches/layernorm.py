"""LayerNorm, alone or after a residual sum: the mean first, then the squares around it, then the
row; never the two sums at once, which loses the variance when the mean is far from zero.

In: a `Layernorm` or `ResidualLayernorm` and a schedule. Out: its program. Never here: the formula's
meaning.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.layernorm import Layernorm
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


def _program(operator: Layernorm, schedule: Schedule) -> Kernel:
    n, held = operator.n, bool(schedule.number("hold"))
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    x, out = memory["x"], memory["out"]
    residual, total = memory.get("residual"), memory.get("total")
    scale = b.buffer("scale", "f32", (n,), "packed")
    shift = b.buffer("shift", "f32", (n,), "packed")
    with b.prepare():
        for piece in walk(b, "j", n, lanes):
            scale[piece.span] = memory["gamma"][piece.span]
            shift[piece.span] = memory["beta"][piece.span]
    with b.run():
        for i, rows in blocks(b, b.dim("m"), schedule.number("rows")):
            at = block(i, rows)
            row = Row(b, n, lanes, summed(x, residual, at), held=held, again=reader(total or x, at))
            sums = b.let("sums", filled(0.0, rows, lanes))
            for piece, v in row.each():
                if total is not None:
                    total[at, piece.span] = v
                b.let("sums", sums + v)
            mean = b.let("row_sum", sum_(sums)) * (1.0 / n)
            mean = b.let("mean", mean)
            squares = b.let("squares", filled(0.0, rows, lanes))
            for piece, v in row.each():
                away = b.let(b.fresh("away"), piece.only(v - mean, 0.0))
                b.let("squares", fma(away, away, squares))
            variance = b.let("sum_of_squares", sum_(squares)) * (1.0 / n)
            factor = b.let("factor", 1.0 / word("sqrt", variance + operator.epsilon))
            for piece, v in row.each():
                out[at, piece.span] = fma((v - mean) * factor, scale[piece.span], shift[piece.span])
    return b.kernel()


def _space(operator: Layernorm, machine: Machine) -> SearchSpace:
    return norm_space(operator.name, operator.n, widths(machine))


LAYERNORM = Sketch("layernorm", _program, _space)
RESIDUAL_LAYERNORM = Sketch("residual_layernorm", _program, _space)
