"""Products of weights in bytes on byte dot products: float32 activations become four planes of
bytes.

In: a program under way, an operator's buffers, sizes. Out: packed weights, planes, sums. Never
here: any one operator.

A row of activations is written as a 32-bit fixed-point number each, q = a 2^s with one power of
two per row, cut to whole numbers: what is cut off is below 2^-30 of the row's largest magnitude,
less than float32 itself rounds there. The four bytes of q go to four planes; every plane meets the
weights in `dot4`, exactly, and the four sums are put together in float32. Rows that hold an
infinity or a NaN give NaN.
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
    """`low`: u8 (3, m, k filled up), the lower bytes of q; `top`: (m, k filled up), the highest:
    u8 with 128 added, or i8 as it is. `unit`: f32 (m, 1), what one step of q is worth, NaN for a
    row that is not finite. `sums`: i32 (2 groups, m, 1), for every group the sum of the lower
    halves of q and that of the higher halves.
    """

    low: Memory
    top: Memory
    unit: Memory
    sums: Memory | None

    def four(self, plane: int, top: Value, r: int, place: Value) -> Value:
        """The bytes of four places from `place` on, of r rows: (r, 4)."""
        rows, places = span(top, r), span(place, 4)
        if plane == PLANES - 1:
            return self.top[rows, places]
        return self.low[plane, rows, places]


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
    """Fills the planes of all rows at the beginning of `run`. With a `group` the top plane is
    signed, and the halves of q are summed over every group.
    """
    m, whole = b.dim("m"), rounded(k, STEP)
    lift, back = tables(b)
    groups = -(-k // group) if group else 1
    made = Planes(
        b.buffer("low_planes", "u8", (PLANES - 1, m, whole), "local"),
        b.buffer("top_plane", "i8" if group else "u8", (m, whole), "local"),
        b.buffer("unit", "f32", (m, 1), "local"),
        b.buffer("plane_sums", "i32", (2 * groups, m, 1), "local") if group else None,
    )
    with b.run(), b.parallel("i", 0, m) as i:
        most = b.let("most", fill(0.0, "f32", vector))
        odd = b.let("odd", fill(0.0, "f32", vector))
        with b.loop("j", 0, k, vector) as j:
            x = b.let("x", a[i, span(j, vector, k - j)])
            b.let("most", maximum(word("abs", x), most))
            b.let("odd", fma(x, 0.0, odd))
        largest = b.let("largest", max_(most))
        spoilt = b.let("spoilt", sum_(odd))
        e = b.let("exponent", cast("i64", word("bits", largest) >> 23))
        factor = b.let("factor", lift[e])
        made.unit[i, 0] = back[e] + spoilt
        with b.loop("g", 0, groups) as g:
            names = ("lower", "higher") if group else ()
            halves = [b.let(name, fill(0, "i32", vector)) for name in names]
            end = minimum((g + 1) * group, whole) if group else whole
            with b.loop("j", g * group if group else 0, end, vector) as j:
                x = b.let("x", a[i, span(j, vector, k - j)])
                q = b.let("q", cast("i32", minimum(maximum(x * factor, -_EDGE), _EDGE)))
                _store_bytes(made, q, i, j, vector)
                if made.sums is not None:
                    b.let("lower", halves[0] + (q & 65535))
                    b.let("higher", halves[1] + (q >> 16))
            if made.sums is not None:
                made.sums[g * 2, i, 0] = b.let("lower_sum", sum_(halves[0]))
                made.sums[g * 2 + 1, i, 0] = b.let("higher_sum", sum_(halves[1]))
    return made


def _store_bytes(made: Planes, q: Value, i: Value, j: Value, vector: int) -> None:
    for plane in range(PLANES - 1):
        made.low[plane, i, span(j, vector)] = cast("u8", (q >> (8 * plane)) & 255)
    high = q >> 24
    top = cast("u8", high + 128) if made.sums is None else cast("i8", high)
    made.top[i, span(j, vector)] = top


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
    with b.run():
        row_blocks(b, panels, mr, rows, body)


def row_blocks(b: Build, panels: int, mr: int, rows: int, body: Body) -> None:
    """As `over_tiles`, in the block that is open."""
    m = b.dim("m")
    with b.loop("first", 0, m, rows) as first:
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
