"""Packed attention: one sequence and one head at a time out of fused rows [q | k | v], nothing
padded between sequences.

In: an `Attention` and a schedule. Out: its program. Never here: the formula's meaning.

The keys of a head are turned once, square by square, so that scores of one query come out as whole
vectors along the keys. A block of query rows then has its scores, softmax and weighted sum of
values done while they are in the first cache. Blocks are of nearly equal height, so that none has
too few sums to keep the multipliers busy.

Inside a model memory would idle meanwhile: with `ahead`, every head of the first sequence asks for
as many lines of the weights that follow in packed memory, which are the next operator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelgen.machine import Machine
from kernelgen.ops.attention import Attention
from kernelgen.schedule.resources import registers
from kernelgen.schedule.schedule import Schedule, ScheduleError, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.ragged import check_offsets, sequences
from kernelgen.sketches.row import LINE
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import (
    Build,
    Index,
    Memory,
    cast,
    fill,
    fma,
    lane,
    max_,
    maximum,
    select,
    span,
    sum_,
    word,
)
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

HIDDEN_SCORE = -3.0e38

_SUMS = {16: 24, 8: 12, 4: 12}
"""Vectors of sums that stay in registers beside what feeds them, by lanes."""


@dataclass(frozen=True)
class _Parts:
    """A program in the making: one sequence of `length` tokens from `first` on. Keys come in
    strips of v positions, `strips` of them, `kv` at a time.
    """

    operator: Attention
    v: int
    kv: int
    b: Build
    memory: Mapping[str, Memory]
    first: Expr
    length: Expr
    strips: Expr

    def keys(self, strip: Expr, c: Expr | int) -> Expr:
        """Column c of the turned keys of one strip."""
        return self.memory["turned"][strip, c, span(0, self.v)]

    def fused(self, part: str, rows: Index, c: Expr | int, lanes: int) -> Expr:
        """Columns of "q", "k" or "v" of the head in hand."""
        return self.memory["qkv"][rows, span(self.b.dim(f"{part}_at") + c, lanes)]


def _program(operator: Attention, schedule: Schedule) -> Kernel:
    v, qr, kv = (schedule.number(axis) for axis in ("vector", "qr", "kv"))
    b, memory = begin(operator)
    # A strip: v keys turned, then their scores. The last group may have a single position.
    most = b.dim("tokens") // (kv * v) * kv + kv
    memory["tail"] = b.buffer("tail", "f32", (v, operator.head_size), "private")
    memory["turned"] = b.buffer("turned", "f32", (most, operator.head_size + qr, v), "private")
    ahead = schedule.number("ahead")
    if ahead:
        memory["following"] = b.buffer("following", "f32", (0,), "packed")
    with b.run():
        check_offsets(b, memory["offsets"])
        for s, first, length in sequences(b, memory["offsets"]):
            strips = b.let("strips", (length + (kv * v - 1)) // (kv * v) * kv)
            p = _Parts(operator, v, kv, b, memory, first, length, strips)
            blocks = b.let("blocks", (length + (qr - 1)) // qr)
            _clear_tail(p)
            with b.loop("head", 0, operator.heads) as head:
                for i, part in enumerate("qkv"):
                    b.let(f"{part}_at", head * operator.head_size + i * operator.hidden)
                if ahead:
                    _fetch(p, s, head, ahead)
                _turn(p)
                with b.loop("block", 0, blocks) as block:
                    row = b.let("begin", block * length // blocks)
                    rows = b.let("rows", (block + 1) * length // blocks - row)
                    for count in range(1, qr + 1):
                        with b.when(rows.equals(count)):
                            _block(p, count, row)
    return b.kernel()


def _clear_tail(p: _Parts) -> None:
    """Places past the last row of the sequence stay zero for all heads."""
    b = p.b
    with b.loop("i", p.length % p.v, p.v) as i, b.loop("c", 0, p.operator.head_size, p.v) as c:
        p.memory["tail"][i, span(c, p.v)] = fill(0.0, "f32", p.v)


def _fetch(p: _Parts, s: Expr, head: Expr, lines: int) -> None:
    """Asks for this head's share of what follows; a long run of sequences asks once."""
    b = p.b
    with b.when(s.equals(0)), b.loop("line", head * lines, head * lines + lines) as line:
        b.prefetch(p.memory["following"], line * LINE)


def _turn(p: _Parts) -> None:
    """turned[j / v, c, j % v] = k[first + j, head, c], zeros past the last position."""
    b, v, d = p.b, p.v, p.operator.head_size
    turned, tail = p.memory["turned"], p.memory["tail"]
    whole = b.let("whole_strips", p.length // v)
    with b.loop("strip", 0, whole) as strip, b.loop("c", 0, d, v) as c:
        rows = span(p.first + strip * v, v)
        square = b.let("square", word("transpose", p.fused("k", rows, c, v)))
        turned[strip, span(c, v), span(0, v)] = square
    with b.when(whole < p.strips):
        with b.loop("i", 0, p.length % v) as i, b.loop("c", 0, d, v) as c:
            tail[i, span(c, v)] = p.fused("k", p.first + whole * v + i, c, v)
        with b.loop("c", 0, d, v) as c:
            square = b.let("square", word("transpose", tail[span(0, v), span(c, v)]))
            turned[whole, span(c, v), span(0, v)] = square
    if p.kv > 1:
        with b.loop("strip", whole + 1, p.strips) as strip, b.loop("c", 0, d) as c:
            turned[strip, c, span(0, v)] = fill(0.0, "f32", v)


def _block(p: _Parts, rows: int, at: Expr) -> None:
    """Output rows `at` to `at + rows` of one head."""
    b, v, turned = p.b, p.v, p.memory["turned"]
    its_scores = span(p.operator.head_size, rows)
    hidden = b.let("hidden", fill(HIDDEN_SCORE, "f32", v))
    tops = b.let("tops", fill(HIDDEN_SCORE, "f32", rows, v))
    with b.loop("strip", 0, p.strips, p.kv) as strip:
        for i, part in enumerate(_products(p, rows, at, strip)):
            # Positions past the last weigh nothing.
            left = b.let("left", cast("i32", p.length - (strip + i) * v))
            score = b.let(f"score_{i}", select(lane(v) < left, part * p.operator.scale, hidden))
            b.let("tops", maximum(tops, score))
            turned[strip + i, its_scores, span(0, v)] = score
    top = b.let("top", max_(tops))
    sums = b.let("sums", fill(0.0, "f32", rows, v))
    with b.loop("strip", 0, p.strips) as strip:
        every = turned[strip, its_scores, span(0, v)]
        weight = b.let("weight", word("exp_below", every - top))
        b.let("sums", sums + weight)
        turned[strip, its_scores, span(0, v)] = weight
    total = b.let("total", sum_(sums))
    _mix(p, rows, at, total)


def _products(p: _Parts, rows: int, at: Expr, strip: Expr) -> list[Expr]:
    """Products of `rows` queries with `kv` strips of keys."""
    b, v = p.b, p.v
    parts = [b.let(f"part_{i}", fill(0.0, "f32", rows, v)) for i in range(p.kv)]
    with b.loop("c", 0, p.operator.head_size, unroll=4) as c:
        keys = [b.let(f"keys_{i}", p.keys(strip + i, c)) for i in range(p.kv)]
        query = p.fused("q", span(p.first + at, rows), c, 1)
        for i, part in enumerate(parts):
            b.let(f"part_{i}", fma(query, keys[i], part))
    return parts


def _mix(p: _Parts, rows: int, at: Expr, total: Expr) -> None:
    """The values, weighted: as many columns at once as have sums in registers."""
    b, v, d = p.b, p.v, p.operator.head_size
    whole = b.let("whole_mixed", p.length // v)
    share = b.let("share", 1.0 / total)
    lanes = _lanes(p, rows)
    with b.loop("c", 0, d, lanes) as c:
        mixed = b.let("mixed", fill(0.0, "f32", rows, lanes))

        def step(strip: Expr, i: Expr) -> None:
            t = b.let("t", p.first + strip * v + i)
            value = b.let("value", p.fused("v", t, c, lanes))
            weights = p.memory["turned"][strip, span(d, rows), span(i, 1)]
            b.let("mixed", fma(weights, value, mixed))

        with b.loop("strip", 0, whole) as strip, b.loop("i", 0, v) as i:
            step(strip, i)
        with b.loop("i", 0, p.length % v) as i:
            step(whole, i)
        p.memory["out"][span(p.first + at, rows), span(b.dim("q_at") + c, lanes)] = mixed * share


def _lanes(p: _Parts, rows: int) -> int:
    """Columns of the output that `rows` rows add up at once."""
    vectors = p.operator.head_size // p.v
    while vectors % 2 == 0 and rows * vectors > _SUMS[p.v]:
        vectors //= 2
    return vectors * p.v


def _space(operator: Attention, machine: Machine) -> SearchSpace:
    wide = tuple(v for v in widths(machine) if operator.head_size % v == 0)
    if not wide:
        raise ScheduleError(
            f"{operator.name}: head size {operator.head_size}, wanted a multiple of 4"
        )

    def rule(choices: Mapping[str, Value]) -> str | None:
        v, qr, kv = (int(choices[axis]) for axis in ("vector", "qr", "kv"))
        have, need = registers(v, machine), qr * kv + kv + 1
        if need > have:
            return f"qr, kv: {qr} queries need {need} registers, the machine has {have}"
        return None

    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "qr": (1, 2, 3, 4, 6, 8, 12),
        "kv": (1, 2, 3, 4),
        "ahead": (0, 32, 64, 128, 256),
    }
    start: dict[str, Value] = {
        "vector": wide[-1],
        "qr": 8 if wide[-1] == 16 else 2,
        "kv": 1,
        "ahead": 128,
    }
    return SearchSpace(operator.name, axes, start, rule)


ATTENTION = Sketch("attention", _program, _space)
