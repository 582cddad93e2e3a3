"""Rotary embedding: the turn of a token is looked up once for all its heads.

In: a `Rope` and a schedule. Out: its program. Never here: angles; they are weights.
"""

from __future__ import annotations

from kernelgen.emit.part import BAD_LENGTH
from kernelgen.machine import Machine
from kernelgen.ops.rope import Rope
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import Piece, fitting, pieces
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, Value, fma, span, word
from kernelgen.tile.ir import Kernel


def _program(operator: Rope, schedule: Schedule) -> Kernel:
    return _interleaved(operator, schedule) if operator.interleaved else _halves(operator, schedule)


def _halves(operator: Rope, schedule: Schedule) -> Kernel:
    half, count = operator.size // 2, operator.positions
    lanes = fitting(half, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    x, out = memory["x"], memory["out"]
    turns = b.buffer("turns", "f32", (count, 2, half), "packed")
    with b.prepare(), b.loop("p", 0, count) as p:
        for piece in pieces(half, lanes):
            turns[p, 0, piece.span] = memory["cosines"][p, piece.span]
            turns[p, 1, piece.span] = memory["sines"][p, piece.span]
    with b.run(), b.parallel("t", 0, "tokens") as t:
        at = b.let("at", memory["positions"][t])
        b.check((at >= 0) & (at < count), BAD_LENGTH)
        angles = _angles(b, turns, at, pieces(half, lanes))
        with b.loop("h", 0, operator.heads) as h:
            for piece, cosine, sine in angles:
                start = piece.start + half
                upper = span(start, lanes, piece.left)
                first = b.let(b.fresh("first"), x[t, h, piece.span])
                second = b.let(b.fresh("second"), x[t, h, upper])
                out[t, h, piece.span] = fma(first, cosine, -(second * sine))
                out[t, h, upper] = fma(second, cosine, first * sine)
    return b.kernel()


def _interleaved(operator: Rope, schedule: Schedule) -> Kernel:
    """(a, b) -> (a, b) (cos, cos) + (b, a) (-sin, sin): the tables are packed in pairs."""
    size, count = operator.size, operator.positions
    lanes = fitting(size, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    x, out = memory["x"], memory["out"]
    turns = b.buffer("turns", "f32", (count, 2, size), "packed")
    with b.prepare(), b.loop("p", 0, count) as p, b.loop("j", 0, size // 2) as j:
        cosine = memory["cosines"][p, j]
        sine = memory["sines"][p, j]
        for side in (0, 1):
            turns[p, 0, j * 2 + side] = cosine
            turns[p, 1, j * 2 + side] = sine if side else -sine
    with b.run(), b.parallel("t", 0, "tokens") as t:
        at = b.let("at", memory["positions"][t])
        b.check((at >= 0) & (at < count), BAD_LENGTH)
        angles = _angles(b, turns, at, pieces(size, lanes))
        with b.loop("h", 0, operator.heads) as h:
            for piece, cosine, sine in angles:
                pair = b.let(b.fresh("pair"), x[t, h, piece.span])
                out[t, h, piece.span] = fma(pair, cosine, word("swap", pair) * sine)
    return b.kernel()


def _angles(
    b: Build, turns: Memory, at: Value, parts: tuple[Piece, ...]
) -> list[tuple[Piece, Value, Value]]:
    """The turn at position `at`, in registers for all heads."""
    return [
        (
            piece,
            b.let(b.fresh("cosine"), turns[at, 0, piece.span]),
            b.let(b.fresh("sine"), turns[at, 1, piece.span]),
        )
        for piece in parts
    ]


def _space(operator: Rope, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "sums": (1, 2, 4)}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "sums": 2}, lambda choices: None)


ROPE = Sketch("rope", _program, _space)
