"""Softmax over rows: the maximum, then exp and its sum, then the scaling, over rows in registers or
in the first cache; long rows in chunks that fit there, each with the maximum so far.

In: a `Softmax` and a schedule. Out: its program. Never here: attention, which never holds a whole
row.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.softmax import Softmax
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.schedule import Value as Choice
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import (
    MOST_SUMS,
    Row,
    block,
    blocks,
    fetch,
    filled,
    fitting,
    may_hold,
    summed,
    walk,
)
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import (
    Build,
    Memory,
    Value,
    fill,
    fma,
    max_,
    maximum,
    select,
    sum_,
    value,
    word,
)
from kernelgen.tile.ir import Kernel

LOWEST = -3.4028234663852886e38
"""The lowest float32: where a maximum begins, so that in a row of -inf alone every exp is exp(-inf)
= 0 and none exp(-inf + inf)."""


def _program(operator: Softmax, schedule: Schedule) -> Kernel:
    n, chunk = operator.n, schedule.number("chunk")
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    long = 0 < chunk < n
    tops = b.buffer("tops", "f32", (-(-n // chunk),), "private") if long else None
    with b.run():
        if tops is not None:
            with b.parallel("i", 0, "m") as i:
                _chunked(b, operator, memory, i, lanes, chunk, tops)
        else:
            for i, rows in blocks(b, b.dim("m"), schedule.number("rows")):
                _whole(b, operator, memory, i, rows, lanes, schedule)
    return b.kernel()


def _share(b: Build, total: Value) -> Value:
    """1 / total; zero for a row that holds nothing."""
    return b.let("share", select(total.equals(0.0), 0.0, 1.0 / total))


def _whole(
    b: Build,
    operator: Softmax,
    memory: Mapping[str, Memory],
    i: Value,
    rows: int,
    lanes: int,
    schedule: Schedule,
) -> None:
    out, n, at = memory["out"], operator.n, block(i, rows)
    held, ahead = bool(schedule.number("hold")), schedule.number("ahead")
    row = Row(b, n, lanes, summed(memory["x"], memory.get("mask"), at), held=held)
    best = b.let("best", filled(LOWEST, rows, lanes))
    for piece, z in row.each():
        best = b.let("best", maximum(piece.only(z, LOWEST), best))
    top = b.let("top", max_(best))
    sums = b.let("sums", filled(0.0, rows, lanes))
    kept = []
    for piece, z in row.each():
        if ahead:
            for number in range(rows):
                for wanted in memory.values():
                    fetch(b, wanted, i + number + ahead, piece)
        e = b.let(b.fresh("e"), piece.only(word("exp_below", z - top), 0.0))
        b.let("sums", sums + e)
        if held:
            kept.append((piece, e))
        else:
            out[at, piece.span] = e
    share = _share(b, b.let("total", sum_(sums)))
    for piece, e in kept:
        out[at, piece.span] = e * share
    if not held:
        for piece in walk(b, "j", n, lanes):
            out[at, piece.span] = out[at, piece.span] * share


def _chunked(
    b: Build,
    operator: Softmax,
    memory: Mapping[str, Memory],
    i: Value,
    lanes: int,
    chunk: int,
    tops: Memory,
) -> None:
    """Every chunk is read once and scaled by the maximum so far, which `tops` keeps; the last pass
    brings all to the maximum of the row.
    """
    out = memory["out"]
    load = summed(memory["x"], memory.get("mask"), i)
    many, rest = divmod(operator.n, chunk)
    b.let("top", LOWEST)
    b.let("total", 0.0)

    def take(number: Value | int, start: Value | int, length: int) -> None:
        b.let("best", fill(LOWEST, "f32", lanes))
        for piece in walk(b, "j", length, lanes, start):
            b.let("best", maximum(piece.only(load(piece), LOWEST), "best"))
        b.let("before", "top")
        here = b.let("here", max_("best"))
        top = b.let("top", maximum(here, "before"))
        tops[number] = top
        b.let("sums", fill(0.0, "f32", lanes))
        for piece in walk(b, "j", length, lanes, start):
            e = b.let("e", piece.only(word("exp_below", load(piece) - top), 0.0))
            out[i, piece.span] = e
            b.let("sums", e + "sums")
        more = b.let("more", sum_("sums"))
        b.let("total", fma("total", word("exp_below", "before" - top), more))

    with b.loop("c", 0, many) as c:
        take(c, c * chunk, chunk)
    if rest:
        take(many, many * chunk, rest)
    share = _share(b, value("total"))

    def scale(number: Value | int, start: Value | int, length: int) -> None:
        factor = b.let("factor", word("exp_below", tops[number] - "top") * share)
        for piece in walk(b, "j", length, lanes, start):
            out[i, piece.span] = out[i, piece.span] * factor

    with b.loop("c", 0, many) as c:
        scale(c, c * chunk, chunk)
    if rest:
        scale(many, many * chunk, rest)


def _space(operator: Softmax, machine: Machine) -> SearchSpace:
    """`rows` go together, `sums` vectors make a piece, `hold` keeps rows in registers, `chunk` is
    the length of the parts a row is taken in (0: whole), `ahead` fetches that many rows early.
    """
    wide, n = widths(machine), operator.n

    def rule(choices: Mapping[str, Choice]) -> str | None:
        vector, rows, sums, chunk, ahead = (
            int(choices[axis]) for axis in ("vector", "rows", "sums", "chunk", "ahead")
        )
        if 0 < chunk < n and (choices["hold"] or rows > 1 or ahead):
            return f"chunk: got {chunk} with hold, rows or ahead, which are for whole rows"
        if rows * sums > MOST_SUMS:
            return f"sums: got {sums} vectors for {rows} rows, wanted at most {MOST_SUMS} in all"
        if not choices["hold"]:
            return None
        return may_hold(n, rows, fitting(n, vector, sums), vector)

    axes = {
        "vector": wide,
        "rows": (1, 2, 4),
        "sums": (1, 2, 4, 8),
        "hold": (0, 1),
        "chunk": (0, 1024, 2048, 4096),
        "ahead": (0, 4, 8),
    }
    vectors = -(-n // wide[-1])
    # Short rows wait for their own sums, so several go side by side.
    start = {
        "vector": wide[-1],
        "rows": 4 if vectors <= 4 else 2 if vectors <= 8 else 1,
        "sums": 2 if vectors <= 4 else 4,
        "hold": int(vectors <= wide[-1]),
        "chunk": 0 if n <= 65536 else 2048,
        "ahead": 0,
    }
    return SearchSpace(operator.name, axes, start, rule)


SOFTMAX = Sketch("softmax", _program, _space)
