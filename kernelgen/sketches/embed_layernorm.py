"""The way into an encoder: the rows of word and position are added and normalised while a later
word's row, which may lie anywhere in a large table, is fetched.

In: an `EmbedLayernorm` and a schedule. Out: its program. Never here: the formula's meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.emit.part import BAD_ID, BAD_LENGTH
from kernelgen.machine import Machine
from kernelgen.ops.embed import EmbedLayernorm
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.ragged import check_offsets, sequences
from kernelgen.sketches.row import LINE, Piece, Row, filled, fitting, may_hold, reader, walk
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, fma, sum_, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel


def _program(operator: EmbedLayernorm, schedule: Schedule) -> Kernel:
    n, ahead, held = operator.hidden, schedule.number("ahead"), bool(schedule.number("hold"))
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    ids, offsets = memory["ids"], memory["offsets"]
    memory["words"] = b.buffer("words", "f32", (operator.vocabulary, n), "packed")
    memory["places"] = b.buffer("places", "f32", (operator.positions, n), "packed")
    memory["scale"] = b.buffer("scale", "f32", (n,), "packed")
    memory["shift"] = b.buffer("shift", "f32", (n,), "packed")
    _pack(b, memory, operator, lanes)
    with b.run():
        check_offsets(b, offsets)
        with b.loop("t", 0, "tokens") as t:
            b.check((ids[t] >= 0) & (ids[t] < operator.vocabulary), BAD_ID)
        for _, first, length in sequences(b, offsets):
            b.check(length <= operator.positions, BAD_LENGTH)
            with b.loop("place", 0, length) as place:
                t = b.let("token", first + place)
                if ahead:
                    with b.when(t + ahead < b.dim("tokens")):
                        later = b.let("later", ids[t + ahead])
                        with b.loop("line", 0, n, LINE, unroll=32) as line:
                            b.prefetch(memory["words"], (later, line))
                _row(b, memory, operator, lanes, (t, place), held=held)
    return b.kernel()


def _pack(b: Build, memory: dict[str, Memory], operator: EmbedLayernorm, lanes: int) -> None:
    """The word table; the position table with the token type already added; scale and shift."""
    n = operator.hidden
    with b.prepare():
        with b.loop("w", 0, operator.vocabulary) as w:
            for piece in walk(b, "j", n, lanes):
                memory["words"][w, piece.span] = memory["word"][w, piece.span]
        with b.loop("p", 0, operator.positions) as p:
            for piece in walk(b, "j", n, lanes):
                kind = memory["token_type"][piece.span]
                memory["places"][p, piece.span] = memory["position"][p, piece.span] + kind
        for piece in walk(b, "j", n, lanes):
            memory["scale"][piece.span] = memory["gamma"][piece.span]
            memory["shift"][piece.span] = memory["beta"][piece.span]


def _row(
    b: Build,
    memory: dict[str, Memory],
    operator: EmbedLayernorm,
    lanes: int,
    at: tuple[Expr, Expr],
    *,
    held: bool,
) -> None:
    """The mean first, then the squares of what is left, so that a large mean costs no accuracy.
    What registers do not hold waits in the output.
    """
    (t, place), out = at, memory["out"]
    known = b.let("known", memory["ids"][t])

    def added(piece: Piece) -> Expr:
        return memory["words"][known, piece.span] + memory["places"][place, piece.span]

    row = Row(b, operator.hidden, lanes, added, held=held, again=reader(out, t))
    sums = b.let("sums", filled(0.0, 1, lanes))
    for piece, x in row.each():
        if not held:
            out[t, piece.span] = x
        b.let("sums", sums + x)
    n = operator.hidden
    mean = b.let("mean", b.let("row_sum", sum_(sums)) * (1.0 / n))
    squares = b.let("squares", filled(0.0, 1, lanes))
    for piece, x in row.each():
        away = b.let(b.fresh("away"), piece.only(x - mean, 0.0))
        b.let("squares", fma(away, away, squares))
    variance = b.let("variance", b.let("sum_of_squares", sum_(squares)) * (1.0 / n))
    factor = b.let("factor", 1.0 / word("sqrt", variance + operator.epsilon))
    for piece, x in row.each():
        scale, shift = memory["scale"][piece.span], memory["shift"][piece.span]
        out[t, piece.span] = fma(b.let(b.fresh("scaled"), (x - mean) * factor), scale, shift)


def _space(operator: EmbedLayernorm, machine: Machine) -> SearchSpace:
    wide = widths(machine)

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, sums = int(choices["vector"]), int(choices["sums"])
        if not choices["hold"]:
            return None
        return may_hold(operator.hidden, 1, fitting(operator.hidden, vector, sums), vector)

    held = int(-(-operator.hidden // wide[-1]) <= (24 if wide[-1] >= 16 else 12))
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "sums": (1, 2, 4, 8),
        "hold": (0, 1),
        "ahead": (0, 1, 2, 3, 4),
    }
    start: dict[str, Value] = {"vector": wide[-1], "sums": 4, "hold": held, "ahead": 2}
    return SearchSpace(operator.name, axes, start, rule)


EMBED_LAYERNORM = Sketch("embed_layernorm", _program, _space)
