"""Float32 rows times weights of four bits: half a byte per weight, so the work on each must be
smaller still.

In: a `GemvInt4` and a schedule. Out: its program. Never here: quantisation.

`form` planes: the activations become four planes of bytes (see `kernelgen.sketches.planes`). A byte
holds two weights of one column, four inner places apart: its low halves meet one quad of the
planes, its high halves the next, and zero points come off each group in whole numbers.
`form` widened: weights become float32 in a register, for machines without byte dot products; a
byte holds two neighbours.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.gemv_int4 import GemvInt4
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemv_int8 import fetch_ahead, space_of, store_scaled
from kernelgen.sketches.planes import (
    PLANES,
    by_columns,
    each_column,
    over_tiles,
    planes,
    rounded,
)
from kernelgen.sketches.sketch import Sketch, begin
from kernelgen.tile.build import Build, Memory, cast, fill, fma, minimum, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

PLACES = 8
"""Inner places of one step: four in the low halves, four in the high ones."""


EXACT_GROUP = 128
"""Halves of 16 bits, times 255, summed over a group of this size stay inside int32."""


def _half(b: Build, w: Memory, column: Expr, place: Expr, odd: bool, k: int) -> Expr:
    """The weight at an inner place known to be odd or even, 0 at and beyond k: u8."""
    half = b.let("half", cast("u8", 0))
    with b.when(place < k):
        byte = w[column, place // 2]
        b.let("half", byte >> 4 if odd else byte & 15)
    return half


def _pack(b: Build, operator: GemvInt4, w: Memory, lanes: int) -> Memory:
    """u8 (panels x k / 8, 4 lanes)."""
    k, n = operator.k, operator.n
    steps, panels = rounded(k, PLACES) // PLACES, -(-n // lanes)
    data = b.buffer("panels", "u8", (panels * steps, 4 * lanes), "packed")
    with each_column(b, n, lanes, steps) as (at, s, o, column):
        for i in range(4):
            both = b.let(f"both{i}", cast("u8", 0))
            with b.when(column < n):
                low = b.let("low", _half(b, w, column, s * PLACES + i, i % 2 == 1, k))
                high = _half(b, w, column, s * PLACES + (4 + i), i % 2 == 1, k)
                b.let(f"both{i}", low | high << 4)
            data[at, o * 4 + i] = both
    return data


def _zeros(b: Build, operator: GemvInt4, zero: Memory, lanes: int) -> Memory:
    """Zero points as u8 (panels x groups, lanes), 0 beyond n."""
    n, groups = operator.n, operator.groups
    panels = -(-n // lanes)
    memory = b.buffer("zeros", "u8", (panels * groups, lanes), "packed")
    with b.prepare(), b.loop("p", 0, panels) as p, b.loop("g", 0, groups) as g:
        column = p * lanes
        found = zero[span(column, lanes, n - column), g]
        memory[p * groups + g, span(0, lanes)] = found
    return memory


def _program(operator: GemvInt4, schedule: Schedule) -> Kernel:
    lanes = schedule.number("nr") * schedule.number("vector")
    b, memory = begin(operator)
    scale = by_columns(
        b,
        "scales",
        operator.n,
        lanes,
        operator.groups,
        lambda column, group: memory["scale"][column, group],
    )
    zeros = _zeros(b, operator, memory["zero"], lanes)
    form = _by_planes if schedule.word("form") == "planes" else _widened
    form(b, operator, schedule, memory, (scale, zeros))
    return b.kernel()


def _by_planes(
    b: Build,
    operator: GemvInt4,
    schedule: Schedule,
    memory: dict[str, Memory],
    beside: tuple[Memory, Memory],
) -> None:
    v, nr = schedule.number("vector"), schedule.number("nr")
    k, n, lanes = operator.k, operator.n, nr * v
    group, groups, steps = operator.group, operator.groups, rounded(k, PLACES) // PLACES
    scale, zeros = beside
    panels = _pack(b, operator, memory["w"], lanes)
    made = planes(b, memory["a"], k, v, group)
    plane_sums = made.sums
    assert plane_sums is not None  # noqa: S101 - asked for with the group above

    def tile(p: Expr, top: Expr, r: int) -> None:
        total = b.let(f"total{r}", fill(0.0, "f32", r, lanes))
        with b.loop("g", 0, groups) as g:
            accs = [b.let(f"acc{r}_{i}", fill(0, "i32", r, lanes)) for i in range(PLANES)]
            end = minimum((g + 1) * (group // PLACES), steps)
            with b.loop("s", g * (group // PLACES), end, unroll=schedule.number("ku")) as s:
                at = b.let("at", p * steps + s)
                fetch_ahead(b, panels, at, 4 * lanes, schedule)
                both = panels[at, span(0, 4 * lanes)]
                for i in range(PLANES):
                    for half, place in (("dot4_low", s * PLACES), ("dot4_high", s * PLACES + 4)):
                        four = made.four(i, top, r, place)
                        accs[i] = b.let(f"acc{r}_{i}", word(half, accs[i], four, both))
            at_group = p * groups + g
            zero = b.let(f"zero{r}", cast("i32", zeros[at_group, span(0, lanes)]))
            halves = []
            for i in (0, 1):
                summed = plane_sums[g * 2 + i, span(top, r), span(0, 1)]
                exact = accs[2 * i] + (accs[2 * i + 1] << 8) - zero * summed
                halves.append(b.let(f"half{r}_{i}", exact))
            value = fma(cast("f32", halves[1]), 65536.0, cast("f32", halves[0]))
            total = b.let(f"total{r}", fma(value, scale[at_group, span(0, lanes)], total))
        store_scaled(b, memory["out"], made, total, (p * lanes, lanes, n), top, r)

    over_tiles(b, -(-n // lanes), schedule.number("mr"), schedule.number("rows"), tile)


def _widened(
    b: Build,
    operator: GemvInt4,
    schedule: Schedule,
    memory: dict[str, Memory],
    beside: tuple[Memory, Memory],
) -> None:
    k, n, group, groups = operator.k, operator.n, operator.group, operator.groups
    lanes, steps = schedule.number("nr") * schedule.number("vector"), (k + 1) // 2
    scale, zeros = beside
    a = memory["a"]
    panels = b.buffer("panels", "u8", (-(-n // lanes) * steps, lanes), "packed")
    with b.prepare(), b.loop("p", 0, -(-n // lanes)) as p, b.loop("s", 0, steps) as s:
        w = memory["w"]
        panels[p * steps + s, span(0, lanes)] = w[span(p * lanes, lanes, n - p * lanes), s]

    def tile(p: Expr, top: Expr, r: int) -> None:
        def step(s: Expr, halves: tuple[str, ...], acc: Expr) -> Expr:
            at = b.let("at", p * steps + s)
            fetch_ahead(b, panels, at, lanes, schedule)
            both = b.let(f"both{r}", cast("i32", panels[at, span(0, lanes)]))
            for i, half in enumerate(halves):
                q = both >> 4 if half == "high" else both & 15
                w = b.let(f"w{r}", cast("f32", q - b.dim(f"zero{r}")))
                acc = b.let(f"acc{r}", fma(a[span(top, r), span(s * 2 + i, 1)], w, acc))
            return acc

        total = b.let(f"total{r}", fill(0.0, "f32", r, lanes))
        with b.loop("g", 0, groups) as g:
            acc = b.let(f"acc{r}", fill(0.0, "f32", r, lanes))
            b.let(f"zero{r}", cast("i32", zeros[p * groups + g, span(0, lanes)]))
            end = minimum((g + 1) * (group // 2), k // 2)
            with b.loop("s", g * (group // 2), end, unroll=schedule.number("ku")) as s:
                acc = step(s, ("low", "high"), acc)
            if k % 2:
                with b.when(g.equals(groups - 1)):
                    acc = step(b.let("last", k // 2), ("low",), acc)
            total = b.let(f"total{r}", fma(acc, scale[p * groups + g, span(0, lanes)], total))
        column = p * lanes
        across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)
        memory["out"][span(top, r), across] = total

    over_tiles(b, -(-n // lanes), schedule.number("mr"), schedule.number("rows"), tile)


def _space(operator: GemvInt4, machine: Machine) -> SearchSpace:
    refusal = None
    if operator.group > EXACT_GROUP:
        refusal = f"form: planes take groups of up to {EXACT_GROUP}, this one is {operator.group}"
    return space_of(operator, machine, refusal)


GEMV_INT4 = Sketch("gemv_int4", _program, _space)
