"""Mean pooling: a group of columns stays in registers while the rows of a sequence pass.

In: a `MeanPool` and a schedule. Out: its program. Never here: the formula's meaning.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.pool import MeanPool
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.ragged import check_offsets, sequences
from kernelgen.sketches.row import fitting, walk
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import cast, fill
from kernelgen.tile.ir import Kernel


def _program(operator: MeanPool, schedule: Schedule) -> Kernel:
    lanes = fitting(operator.hidden, schedule.number("vector"), schedule.number("group"))
    b, memory = begin(operator)
    states, offsets, out = memory["states"], memory["offsets"], memory["out"]
    with b.run():
        check_offsets(b, offsets)
        for s, first, length in sequences(b, offsets):
            share = b.let("share", 1.0 / cast("f32", length))
            for piece in walk(b, "j", operator.hidden, lanes):
                sums = b.let("sums", fill(0.0, "f32", lanes))
                with b.loop("t", first, first + length) as t:
                    b.let("sums", sums + states[t, piece.span])
                out[s, piece.span] = sums * share
    return b.kernel()


def _space(operator: MeanPool, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "group": (1, 2, 4, 6, 8, 12)}
    start = {"vector": wide[-1], "group": 4}
    return SearchSpace(operator.name, axes, start, lambda choices: None)


MEAN_POOL = Sketch("mean_pool", _program, _space)
