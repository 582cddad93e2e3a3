"""Products of weights in bytes on byte dot products: float32 activations become four planes of
bytes.

In: a program under way, an operator's buffers, sizes. Out: packed weights, planes, sums. Never
here: any one operator.

A row of activations is written as a 32-bit fixed-point number each, q = a 2^s with one power of
two per row, cut to whole numbers: what is cut off is below 2^-30 of the row's largest magnitude,
less than float32 itself rounds there. The four bytes of q go to four planes, the highest with 128
added so that all are unsigned; every plane meets the weights in `dot4`, exactly, and the four sums
are put together in float32. Rows that hold an infinity or a NaN give NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelgen.tile.build import (
    Build,
    Memory,
    Value,
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

PLANES = 4
STEP = 16
"""Planes are filled up to whole multiples of it."""

_EXPONENTS = 256
_LOWEST = 31
_EDGE = 2147483520.0
"""The largest float32 below 2^31."""


def rounded(k: int, step: int) -> int:
    return -(-k // step) * step


@dataclass(frozen=True)
class Planes:
    """`data`: u8 (4, m, k filled up); `unit`: f32 (m, 1), what one step of q is worth, NaN for a
    row that is not finite; `sums`: i32 (4 groups, m, 1), sums of each plane over each group.
    """

    data: Memory
    unit: Memory
    sums: Memory | None
    groups: int


def tables(b: Build) -> tuple[Memory, Memory]:
    """Powers of two by the exponent bits of a row's largest magnitude: the factor that lifts it to
    2^30 or more, and the factor back. Powers that float32 does not hold stop at its ends.
    """
    lift = b.buffer("lift", "f32", (_EXPONENTS,), "packed")
    back = b.buffer("back", "f32", (_EXPONENTS,), "packed")
    with b.prepare():
        up = b.let("up", fill(2.0**126, "f32", 1))
        down = b.let("down", fill(2.0**-126, "f32", 1))
        with b.loop("e", 0, _EXPONENTS) as e:
            lift[span(e, 1)] = up
            back[span(e, 1)] = down
            with b.when(e >= _LOWEST):
                b.let("up", up * 0.5)
                b.let("down", down * 2.0)
    return lift, back


def planes(b: Build, a: Memory, k: int, vector: int, group: int = 0) -> Planes:
    """Fills the planes of all rows at the beginning of `run`. `group`: sum planes over groups."""
    m = b.dim("m")
    lift, back = tables(b)
    data = b.buffer("plane", "u8", (PLANES, m, rounded(k, STEP)), "local")
    unit = b.buffer("unit", "f32", (m, 1), "local")
    groups = -(-k // group) if group else 0
    sums = b.buffer("plane_sums", "i32", (PLANES * groups, m, 1), "local") if group else None
    with b.run(), b.parallel("i", 0, m) as i:
        most = b.let("most", fill(0.0, "f32", vector))
        odd = b.let("odd", fill(0.0, "f32", vector))
        with b.loop("j", 0, k, vector) as j:
            x = b.let("x", a[i, span(j, vector, k - j)])
            b.let("most", maximum(word("abs", x), most))
            b.let("odd", fma(x, 0.0, odd))
        top = b.let("top", max_(most))
        spoilt = b.let("spoilt", sum_(odd))
        e = b.let("exponent", cast("i64", word("bits", top) >> 23))
        factor = b.let("factor", lift[e])
        unit[i, 0] = back[e] + spoilt
        with b.loop("j", 0, rounded(k, STEP), vector) as j:
            x = b.let("x", a[i, span(j, vector, k - j)])
            q = b.let("q", cast("i32", minimum(maximum(x * factor, -_EDGE), _EDGE)))
            for plane in range(PLANES - 1):
                data[plane, i, span(j, vector)] = cast("u8", (q >> (8 * plane)) & 255)
            data[PLANES - 1, i, span(j, vector)] = cast("u8", (q >> 24) + 128)
        if sums is not None:
            _sum_planes(b, data, sums, i, (group, groups, k))
    return Planes(data, unit, sums, groups)


def _sum_planes(
    b: Build, data: Memory, sums: Memory, i: Value, sizes: tuple[int, int, int]
) -> None:
    group, groups, k = sizes
    last = rounded(k, STEP)
    for plane in range(PLANES):
        with b.loop("g", 0, groups) as g:
            total = b.let("total", fill(0, "i32", STEP))
            end = minimum((g + 1) * group, last)
            with b.loop("j", g * group, end, STEP) as j:
                b.let("total", total + cast("i32", data[plane, i, span(j, STEP)]))
            sums[g * PLANES + plane, i, 0] = b.let("whole_group", sum_(total))


def joined(accs: list[Value]) -> Value:
    """The sums of the planes, lowest first, as one float32 number in steps of the lowest plane."""
    total = cast("f32", accs[-1])
    for acc in reversed(accs[:-1]):
        total = fma(total, 256.0, cast("f32", acc))
    return total


Body = Callable[[Value, Value, int], None]
"""(panel, first row, rows): what one tile does."""


def over_tiles(b: Build, panels: int, mr: int, rows: int, body: Body) -> None:
    """In `run`: row blocks of `rows`, every panel once per block, tiles of nearly equal height."""
    m = b.dim("m")
    with b.run(), b.loop("first", 0, m, rows) as first:
        count = b.let("count", minimum(m - first, rows))
        tiles = b.let("tiles", (count + (mr - 1)) // mr)
        with b.parallel("p", 0, panels) as p, b.loop("t", 0, tiles) as t:
            top = b.let("top", first + t * count // tiles)
            high = b.let("high", first + (t + 1) * count // tiles - top)
            for r in range(1, mr + 1):
                with b.when(high.equals(r)):
                    body(p, top, r)


@contextmanager
def each_column(
    b: Build, n: int, lanes: int, parts: int
) -> Iterator[tuple[Value, Value, Value, Value]]:
    """In `prepare`, for every panel, part of k and lane: the row of a packed buffer (panels x
    parts, ...), the part, the lane, and the column, which may lie beyond n.
    """
    panels = -(-n // lanes)
    with (
        b.prepare(),
        b.loop("p", 0, panels) as p,
        b.loop("part", 0, parts) as part,
        b.loop("o", 0, lanes) as o,
    ):
        yield b.let("at", p * parts + part), part, o, b.let("column", p * lanes + o)


def by_columns(
    b: Build, name: str, n: int, lanes: int, groups: int, source: Callable[[Value, Value], Value]
) -> Memory:
    """f32 (panels x groups, lanes) of `source(column, group)`, zero beyond n."""
    memory = b.buffer(name, "f32", (-(-n // lanes) * groups, lanes), "packed")
    with each_column(b, n, lanes, groups) as (at, group, o, column):
        with b.when(column < n):
            memory[at, o] = source(column, group)
        with b.otherwise():
            memory[at, o] = 0.0
    return memory
