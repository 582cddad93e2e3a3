"""Embedding: rows copied; with `ahead` the lines of a later row are fetched meanwhile, which pays
where the hardware does not see rows coming.

In: an `Embedding` and a schedule. Out: its program. Never here: norms.
"""

from __future__ import annotations

from kernelgen.emit.part import BAD_ID
from kernelgen.machine import Machine
from kernelgen.ops.embedding import Embedding
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import fitting, walk
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import minimum
from kernelgen.tile.ir import Kernel

LINE = 16
"""Floats of a cache line."""


def _program(operator: Embedding, schedule: Schedule) -> Kernel:
    n, words, ahead = operator.n, operator.words, schedule.number("ahead")
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    ids, out = memory["ids"], memory["out"]
    rows = b.buffer("rows", "f32", (words, n), "packed")
    with b.prepare(), b.loop("w", 0, words) as w:
        for piece in walk(b, "j", n, lanes):
            rows[w, piece.span] = memory["table"][w, piece.span]
    with b.run(), b.parallel("t", 0, "tokens") as t:
        word = b.let("id", ids[t])
        b.check((word >= 0) & (word < words), BAD_ID)
        if ahead:
            later = b.let("later", word)
            wanted = b.let("wanted", ids[minimum(t + ahead, b.dim("tokens") - 1)])
            # Not checked yet: nothing is reckoned with an id from outside the table.
            with b.when((wanted >= 0) & (wanted < words)):
                b.let("later", wanted)
            with b.loop("line", 0, min(n, schedule.number("lines") * LINE), LINE) as line:
                b.prefetch(rows, (later, line))
        for piece in walk(b, "j", n, lanes):
            out[t, piece.span] = rows[word, piece.span]
    return b.kernel()


def _space(operator: Embedding, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "sums": (1, 2, 4, 8), "ahead": (0, 1, 2, 4), "lines": (1, 8, 64)}
    start = {"vector": wide[-1], "sums": 4, "ahead": 0, "lines": 8}
    return SearchSpace(operator.name, axes, start, lambda choices: None)


EMBEDDING = Sketch("embedding", _program, _space)
