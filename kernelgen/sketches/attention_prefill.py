"""Prefill attention: the keys of a sequence are turned once per head of keys, so that a block of
query rows meets a row of positions in outer products; scores of the block stay in a private buffer
through the softmax and meet the values in outer products again.

In: an `AttentionPrefill` and a schedule. Out: its program. Never here: the formula's meaning.

Nothing is padded: a last block of queries is cut into smaller ones, a causal block ends at its last
row's position, and only the lanes of one vector are computed past the end of a sequence and hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelgen.emit.part import BAD_OFFSETS
from kernelgen.machine import Machine
from kernelgen.ops.attention_prefill import AttentionPrefill
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import (
    Build,
    Memory,
    Reach,
    cast,
    fill,
    fma,
    lane,
    max_,
    maximum,
    minimum,
    select,
    span,
    sum_,
    word,
)
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

HIDDEN_SCORE = -3.0e38


@dataclass(frozen=True)
class _Parts:
    """A program in the making: one sequence of `length` tokens from `first` on."""

    operator: AttentionPrefill
    v: int
    rows: int
    keys: int
    b: Build
    memory: Mapping[str, Memory]
    first: Expr
    length: Expr


def _program(operator: AttentionPrefill, schedule: Schedule) -> Kernel:
    v, rows = schedule.number("vector"), schedule.number("rows")
    keys = schedule.number("keys") * v
    b, memory = begin(operator)
    tokens, d = b.dim("tokens"), operator.head_size
    # A vector of room in front: the last square of keys may begin before its sequence.
    high = -(-d // v) * v
    memory["turned"] = b.buffer("turned", "f32", (high, tokens + 3 * v), "private")
    memory["scores"] = b.buffer("scores", "f32", (rows, tokens + 2 * v), "private")
    memory["inverse"] = b.buffer("inverse", "f32", (rows, 1), "private")
    offsets = memory["offsets"]
    with b.run():
        b.check(offsets[0].equals(0), BAD_OFFSETS)
        b.check(offsets[b.dim("n")].equals(tokens), BAD_OFFSETS)
        with b.loop("i", 0, "n") as i:
            b.check(offsets[i] < offsets[i + 1], BAD_OFFSETS)
        with b.parallel("s", 0, "n") as s:
            first = b.let("first", offsets[s])
            length = b.let("length", offsets[s + 1] - first)
            p = _Parts(operator, v, rows, keys, b, memory, first, length)
            with b.loop("h", 0, operator.kv_heads) as h:
                _turn(p, h)
                group = operator.q_heads // operator.kv_heads
                with b.loop("r", 0, group) as r:
                    head = b.let("head", h * group + r)
                    for count, at in _blocks(p):
                        _block(p, h, head, count, at)
    return b.kernel()


def _turn(p: _Parts, h: Expr) -> None:
    """turned[c, v + j] = k[first + j, h, c]; zeros up to the end of the last vector."""
    b, v, k, turned = p.b, p.v, p.memory["k"], p.memory["turned"]
    tokens, d = b.dim("tokens"), p.operator.head_size
    with b.loop("c", 0, d) as c:
        turned[c, span(p.length // v * v + v, v)] = fill(0.0, "f32", v)
    with b.when(tokens < v), b.loop("j", 0, p.length) as j, b.loop("c", 0, d) as c:
        turned[c, j + v] = k[p.first + j, h, c]
    with b.otherwise(), b.loop("j", 0, p.length, v) as j:
        row = b.let("row_no", minimum(p.first + j, tokens - v))
        with b.loop("c", 0, d, v) as c:
            part = k[span(row, v), h, _columns(d, c, v)]
            square = b.let("square", word("transpose", part))
            turned[span(c, v), span(row - p.first + v, v)] = square


def _blocks(p: _Parts) -> Iterator[tuple[int, Expr]]:
    """Blocks of query rows, as (rows, first row): whole ones in a loop, then each smaller size at
    most once.
    """
    b, rows = p.b, p.rows
    whole = b.let("done", p.length // rows * rows)
    with b.loop("i", 0, whole, rows) as i:
        yield rows, i
    left = rows - 1
    while left:
        size = left // 2 + 1
        with b.when(size <= p.length - whole):
            yield size, whole
            b.let("done", whole + size)
        left = max(left - size, size - 1)


def _block(p: _Parts, h: Expr, head: Expr, rows: int, at: Expr) -> None:
    """Output rows `at` to `at + rows` of one query head."""
    b, v, scores = p.b, p.v, p.memory["scores"]
    seen = b.let("seen", minimum(p.length, at + rows) if p.operator.causal else p.length)
    whole = b.let("whole_keys", seen // p.keys * p.keys)
    with b.loop("j", 0, whole, p.keys) as j:
        _products(p, head, rows, at, j, p.keys)
    with b.loop("j", whole, seen, v) as j:
        _products(p, head, rows, at, j, v)
    with b.loop("row_no", 0, rows) as row:
        _weigh(p, row, at, seen)
    lanes = _lanes(p, rows)
    with b.loop("c", 0, p.operator.head_size, lanes) as c:
        mixed = b.let("mixed", fill(0.0, "f32", rows, lanes))
        with b.loop("j", 0, seen) as j:
            value = p.memory["v"][p.first + j, h, _columns(p.operator.head_size, c, lanes)]
            b.let("mixed", fma(scores[span(0, rows), span(j, 1)], value, mixed))
        inverse = p.memory["inverse"][span(0, rows), span(0, 1)]
        columns = _columns(p.operator.head_size, c, lanes)
        p.memory["out"][span(p.first + at, rows), head, columns] = mixed * inverse


def _products(p: _Parts, head: Expr, rows: int, at: Expr, j: Expr, keys: int) -> None:
    """Scores of `rows` queries against `keys` positions from j on."""
    b, d = p.b, p.operator.head_size
    part = b.let("part", fill(0.0, "f32", rows, keys))
    with b.loop("c", 0, d) as c:
        query = p.memory["q"][span(p.first + at, rows), head, span(c, 1)]
        b.let("part", fma(query, p.memory["turned"][c, span(j + p.v, keys)], part))
    p.memory["scores"][span(0, rows), span(j, keys)] = part * p.operator.scale


def _weigh(p: _Parts, row: Expr, at: Expr, seen: Expr) -> None:
    """Weights of one row without their common factor in place of scores, the factor beside them.
    What the row must not see, up to the end of the last vector, weighs nothing.
    """
    b, v, scores = p.b, p.v, p.memory["scores"]
    last = b.let("last", at + row + 1 if p.operator.causal else p.length)
    with b.loop("j", last // v * v, seen, v) as j:
        kept = lane(v) < cast("i32", last - j)
        hidden = fill(HIDDEN_SCORE, "f32", v)
        scores[row, span(j, v)] = select(kept, scores[row, span(j, v)], hidden)
    tops = b.let("tops", fill(HIDDEN_SCORE, "f32", v))
    with b.loop("j", 0, seen, v) as j:
        b.let("tops", maximum(tops, scores[row, span(j, v)]))
    top = b.let("top", max_(tops))
    sums = b.let("sums", fill(0.0, "f32", v))
    with b.loop("j", 0, seen, v) as j:
        weight = b.let("weight", word("exp_below", scores[row, span(j, v)] - top))
        scores[row, span(j, v)] = weight
        b.let("sums", sums + weight)
    total = b.let("total", sum_(sums))
    p.memory["inverse"][row, 0] = 1.0 / total


def _columns(size: int, c: Expr, lanes: int) -> Reach:
    """`lanes` columns of a head from c on; those past the head's last are not touched."""
    return span(c, lanes, size - c if size % lanes else None)


def _registers(v: int) -> int:
    """Vectors of sums that stay in registers beside what feeds them."""
    return 24 if v == 16 else 12


def _lanes(p: _Parts, rows: int) -> int:
    """Lanes of the output that `rows` rows accumulate at once."""
    vectors = -(-p.operator.head_size // p.v)
    while vectors > 1 and rows * vectors > _registers(p.v):
        vectors //= 2
    return vectors * p.v


def _space(operator: AttentionPrefill, machine: Machine) -> SearchSpace:
    every = widths(machine)
    wide = tuple(v for v in every if operator.head_size % v == 0) or every

    def rule(choices: Mapping[str, Value]) -> str | None:
        v, rows, keys = (choices[axis] for axis in ("vector", "rows", "keys"))
        if not (isinstance(v, int) and isinstance(rows, int) and isinstance(keys, int)):
            return f"vector, rows, keys: got {v!r}, {rows!r}, {keys!r}, wanted numbers"
        if rows * keys > _registers(v):
            return f"keys: {rows} rows of {keys} vectors, wanted at most {_registers(v)} in all"
        return None

    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "rows": (2, 4, 6, 8, 12),
        "keys": (1, 2, 3, 4),
    }
    start: dict[str, Value] = {"vector": wide[-1], "rows": 6, "keys": 4 if wide[-1] == 16 else 2}
    return SearchSpace(operator.name, axes, start, rule)


ATTENTION_PREFILL = Sketch("attention_prefill", _program, _space)
