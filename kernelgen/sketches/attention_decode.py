"""Decode attention: the keys in one stream, a softmax over scores kept aside, the values in one
stream. All heads visit a block of positions before the next block comes, so that memory is read in
order and once, whatever the number of query heads.

In: an `AttentionDecode` or `AttentionDecodePaged` and a schedule. Out: its program. Never here: the
formula's meaning.

Scores of one vector of positions are products with as many rows of keys at once, their sums turned
side by side. A last block may reach past the cached positions, never past the cache: what it finds
there is overwritten before it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernelgen.emit.part import BAD_LENGTH, BAD_PAGE
from kernelgen.machine import Machine
from kernelgen.ops.attention_decode import PAGE, AttentionDecode, AttentionDecodePaged
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import (
    Build,
    Index,
    Memory,
    Reach,
    cast,
    fill,
    fma,
    max_,
    maximum,
    minimum,
    span,
    sum_,
    word,
)
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

HIDDEN_SCORE = -3.0e38

Decode = AttentionDecode | AttentionDecodePaged


class _Cache(ABC):
    """Where position j of sequence s lies; `open` is called once per sequence, with s fixed."""

    def __init__(self, b: Build, memory: Mapping[str, Memory], s: Expr) -> None:
        self.b, self.memory, self.s = b, memory, s

    @abstractmethod
    def most(self) -> Expr:
        """The longest a sequence may be."""

    @abstractmethod
    def open(self, cached: Expr) -> None:
        """Checks everything that will be followed into the cache."""

    @abstractmethod
    def block(self, j: Expr) -> None:
        """Says that positions from j on, a vector of them at most, are read next."""

    @abstractmethod
    def at(self, rows: int | None, j: Expr) -> tuple[Index, ...]:
        """Leading indices of `rows` positions from j on, or of position j alone."""


class _Contiguous(_Cache):
    def most(self) -> Expr:
        return self.b.dim("max_len")

    def open(self, cached: Expr) -> None:
        pass

    def block(self, j: Expr) -> None:
        pass

    def at(self, rows: int | None, j: Expr) -> tuple[Index, ...]:
        return (self.s, j) if rows is None else (self.s, span(j, rows))


class _Paged(_Cache):
    def most(self) -> Expr:
        return self.b.dim("max_pages") * PAGE

    def open(self, cached: Expr) -> None:
        b, table = self.b, self.memory["table"]
        used = b.let("used", (cached + (PAGE - 1)) // PAGE)
        with b.loop("place", 0, used) as place:
            page = b.let("page_no", cast("i64", table[self.s, place]))
            b.check(page >= 0, BAD_PAGE)
            b.check(page < b.dim("pages"), BAD_PAGE)

    def block(self, j: Expr) -> None:
        table = self.memory["table"]
        self.page = self.b.let("page", cast("i64", table[self.s, j // PAGE]))

    def at(self, rows: int | None, j: Expr) -> tuple[Index, ...]:
        row = j % PAGE
        return (self.page, row) if rows is None else (self.page, span(row, rows))


@dataclass(frozen=True)
class _Parts:
    """A program in the making, for one sequence."""

    operator: Decode
    v: int
    b: Build
    memory: Mapping[str, Memory]
    cache: _Cache
    s: Expr
    cached: Expr

    @property
    def group(self) -> int:
        return self.operator.q_heads // self.operator.kv_heads

    def query(self, head: Expr) -> Expr:
        return self.b.let("query", self.memory["q"][self.s, head, span(0, self.operator.head_size)])


def _program(operator: Decode, schedule: Schedule) -> Kernel:
    v = schedule.number("vector")
    b, memory = begin(operator)
    paged = isinstance(operator, AttentionDecodePaged)
    room = (b.dim("max_pages") * PAGE if paged else b.dim("max_len")) + 2 * v
    memory["scores"] = b.buffer("scores", "f32", (operator.q_heads, room), "private")
    memory["inverse"] = b.buffer("inverse", "f32", (operator.q_heads, 1), "private")
    with b.run(), b.parallel("s", 0, "n") as s:
        cache = (_Paged if paged else _Contiguous)(b, memory, s)
        length = b.let("length", memory["lengths"][s])
        b.check(length > 0, BAD_LENGTH)
        b.check(length <= cache.most(), BAD_LENGTH)
        cached = b.let("cached", length - 1)
        cache.open(cached)
        parts = _Parts(operator, v, b, memory, cache, s, cached)
        _scores(parts)
        _softmax(parts)
        _mix(parts, schedule.number("block"))
    return b.kernel()


# ---- keys ---------------------------------------------------------------------------------------


def _scores(p: _Parts) -> None:
    """scores[head, j] for every cached position, the new one, and what hides the rest."""
    b, v = p.b, p.v
    if isinstance(p.operator, AttentionDecode):
        with b.when(p.cache.most() < v), b.loop("j", 0, p.cached) as j:
            _score_one(p, j)
        with b.otherwise(), b.loop("j", 0, p.cached, v) as j:
            _score_block(p, b.let("first", minimum(j, p.cache.most() - v)))
    else:
        with b.loop("j", 0, p.cached, v) as j:
            _score_block(p, j)
    scores, (key, d) = p.memory["scores"], (p.memory["key"], p.operator.head_size)
    with b.loop("h", 0, p.operator.kv_heads) as h, b.loop("r", 0, p.group) as r:
        head = b.let("head", h * p.group + r)
        scores[head, span(p.cached, v)] = fill(HIDDEN_SCORE, "f32", v)
        product = b.let("product", sum_(p.query(head) * key[p.s, h, span(0, d)]))
        scores[head, p.cached] = product * p.operator.scale


def _score_block(p: _Parts, first: Expr) -> None:
    b, v, d = p.b, p.v, p.operator.head_size
    keys, scores = p.memory["key_cache"], p.memory["scores"]
    p.cache.block(first)
    with b.loop("h", 0, p.operator.kv_heads) as h, b.loop("r", 0, p.group) as r:
        head = b.let("head", h * p.group + r)
        q = p.memory["q"]
        query = [b.let(f"query_{c}", q[p.s, head, span(c, v)]) for c in range(0, d, v)]
        at = p.cache.at(v, first)
        part = b.let("part", keys[(*at, h, span(0, v))] * query[0])
        for c, one in enumerate(query[1:], 1):
            b.let("part", fma(keys[(*at, h, span(c * v, v))], one, part))
        sums = b.let("sums", word("row_sums", part))
        scores[head, span(first, v)] = sums * p.operator.scale


def _score_one(p: _Parts, j: Expr) -> None:
    b, d = p.b, p.operator.head_size
    p.cache.block(j)
    with b.loop("h", 0, p.operator.kv_heads) as h, b.loop("r", 0, p.group) as r:
        head = b.let("head", h * p.group + r)
        row = p.memory["key_cache"][(*p.cache.at(None, j), h, span(0, d))]
        product = b.let("product", sum_(p.query(head) * row))
        p.memory["scores"][head, j] = product * p.operator.scale


# ---- weights ------------------------------------------------------------------------------------


def _softmax(p: _Parts) -> None:
    """Weights without their common factor in place of scores; the factor beside them."""
    b, v, scores = p.b, p.v, p.memory["scores"]
    with b.loop("head", 0, p.operator.q_heads) as head:
        tops = b.let("tops", fill(HIDDEN_SCORE, "f32", v))
        with b.loop("j", 0, p.cached + 1, v) as j:
            b.let("tops", maximum(tops, scores[head, span(j, v)]))
        top = b.let("top", max_(tops))
        sums = b.let("weights", fill(0.0, "f32", v))
        with b.loop("j", 0, p.cached + 1, v) as j:
            one = b.let("one", word("exp_below", scores[head, span(j, v)] - top))
            scores[head, span(j, v)] = one
            b.let("weights", sums + one)
        total = b.let("total", sum_(sums))
        p.memory["inverse"][head, 0] = 1.0 / total


# ---- values -------------------------------------------------------------------------------------


def _tiling(p: _Parts) -> tuple[int, int]:
    """Query heads and lanes that are accumulated at once: what registers hold."""
    registers = 24 if p.v == 16 else 10
    vectors = p.operator.head_size // p.v
    rows = p.group
    while rows > registers // 2 or p.group % rows:
        rows -= 1
    while rows * vectors > registers and vectors > 1:
        vectors //= 2
    return rows, vectors * p.v


def _mix(p: _Parts, block: int) -> None:
    """out[head] = sum of weights times values. The new token's value opens the sum; then a block
    of positions at a time for all heads, sums waiting in the output between blocks.
    """
    b, values = p.b, p.memory["value_cache"]
    for heads, columns, h in _tiles(p):
        new = p.memory["value"][p.s, h, columns]
        p.memory["out"][p.s, heads, columns] = _weight(p, heads, p.cached) * new
    with b.loop("j", 0, p.cached, block) as j:
        last = b.let("last", minimum(j + block, p.cached))
        p.cache.block(j)
        for heads, columns, h in _tiles(p):
            mixed = b.let("mixed", p.memory["out"][p.s, heads, columns])
            with b.loop("i", j, last) as i:
                row = values[(*p.cache.at(None, i), h, columns)]
                b.let("mixed", fma(_weight(p, heads, i), row, mixed))
            p.memory["out"][p.s, heads, columns] = mixed
    for heads, columns, _ in _tiles(p):
        whole = p.memory["out"][p.s, heads, columns]
        p.memory["out"][p.s, heads, columns] = whole * p.memory["inverse"][heads, span(0, 1)]


def _weight(p: _Parts, heads: Reach, at: Expr) -> Expr:
    """Weights of position `at`, a column."""
    return p.memory["scores"][heads, span(at, 1)]


def _tiles(p: _Parts) -> Iterator[tuple[Reach, Reach, Expr]]:
    """Query heads, columns and their head of values, once, in loops over all of them."""
    rows, lanes = _tiling(p)
    with (
        p.b.loop("h", 0, p.operator.kv_heads) as h,
        p.b.loop("r", 0, p.group, rows) as r,
        p.b.loop("c", 0, p.operator.head_size, lanes) as c,
    ):
        yield span(h * p.group + r, rows), span(c, lanes), h


def _space(operator: Decode, machine: Machine) -> SearchSpace:
    wide = tuple(v for v in widths(machine) if operator.head_size % v == 0)
    axes: dict[str, tuple[Value, ...]] = {"vector": wide, "block": (4, 8, 16, 32, 64)}
    paged = isinstance(operator, AttentionDecodePaged)

    def rule(choices: Mapping[str, Value]) -> str | None:
        block = choices["block"]
        if paged and isinstance(block, int) and PAGE % block:
            return f"block: got {block}, wanted a part of a page of {PAGE}"
        return None

    start: dict[str, Value] = {"vector": wide[-1], "block": 16}
    return SearchSpace(operator.name, axes, start, rule)


ATTENTION_DECODE = Sketch("attention_decode", _program, _space)
ATTENTION_DECODE_PAGED = Sketch("attention_decode_paged", _program, _space)
