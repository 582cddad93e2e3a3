"""Float32 rows times weights in signed bytes: bound by the stream of weights, so the work on each
byte must be small.

In: a `GemvInt8` and a schedule. Out: its program. Never here: quantisation.

`form` planes: the activations become four planes of bytes (see `kernelgen.sketches.planes`), and
every byte of weights is multiplied where it lies. `form` widened: weights become float32 in a
register, for machines without byte dot products.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.gemv_int8 import GemvInt8
from kernelgen.ops.operator import Operator
from kernelgen.schedule.resources import registers
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemm_int8 import column_sums, pack_bytes
from kernelgen.sketches.planes import (
    PLANES,
    Planes,
    by_columns,
    joined,
    over_tiles,
    planes,
    rounded,
)
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, cast, fill, fma, minimum, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel


def _program(operator: GemvInt8, schedule: Schedule) -> Kernel:
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
    if schedule.word("form") == "planes":
        _by_planes(b, operator, schedule, memory, scale)
    else:
        _widened(b, operator, schedule, memory, scale)
    return b.kernel()


def _by_planes(
    b: Build, operator: GemvInt8, schedule: Schedule, memory: dict[str, Memory], scale: Memory
) -> None:
    v, nr = schedule.number("vector"), schedule.number("nr")
    k, n, lanes, groups = operator.k, operator.n, nr * v, operator.groups
    group, steps = operator.group or k, rounded(k, 4) // 4
    panels = pack_bytes(b, memory["w"], k, n, lanes, by_row=False)
    sums = column_sums(b, memory["w"], k, n, lanes, group, by_row=False)
    made = planes(b, memory["a"], k, v)

    def tile(p: Expr, top: Expr, r: int) -> None:
        total = b.let(f"total{r}", fill(0.0, "f32", r, lanes))
        with b.loop("g", 0, groups) as g:
            accs = [b.let(f"acc{r}_{i}", fill(0, "i32", r, lanes)) for i in range(PLANES)]
            end = steps if groups == 1 else minimum((g + 1) * (group // 4), steps)
            first = g * (group // 4) if groups > 1 else 0
            with b.loop("s", first, end, unroll=schedule.number("ku")) as s:
                at = b.let("at", p * steps + s)
                fetch_ahead(b, panels, at, 4 * lanes, schedule)
                for i in range(PLANES):
                    four = made.four(i, top, r, s * 4)
                    bytes_of_w = panels[at, span(0, 4 * lanes)]
                    accs[i] = b.let(f"acc{r}_{i}", word("dot4", accs[i], four, bytes_of_w))
            row = p * groups + g
            # The highest plane holds 128 too much everywhere.
            high = accs[-1] - sums[row, span(0, lanes)] * 128
            value = joined([*accs[:-1], high])
            total = b.let(f"total{r}", fma(value, scale[row, span(0, lanes)], total))
        store_scaled(b, memory["out"], made, total, (p * lanes, lanes, n), top, r)

    over_tiles(b, -(-n // lanes), schedule.number("mr"), schedule.number("rows"), tile)


def fetch_ahead(b: Build, panels: Memory, at: Expr, width: int, schedule: Schedule) -> None:
    """One prefetch per cache line of a step of k, `prefetch` bytes further on in the stream."""
    distance = schedule.number("prefetch") // width
    if distance:
        for line in range(0, width, 64):
            b.prefetch(panels, (at + distance, line))


def store_scaled(
    b: Build,
    out: Memory,
    made: Planes,
    total: Expr,
    across: tuple[Expr, int, int],
    top: Expr,
    r: int,
) -> None:
    """A finished tile, times what one step of its rows' planes is worth."""
    column, lanes, n = across
    reach = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)
    out[span(top, r), reach] = total * made.unit[span(top, r), span(0, 1)]


def _widened(
    b: Build, operator: GemvInt8, schedule: Schedule, memory: dict[str, Memory], scale: Memory
) -> None:
    k, n, groups = operator.k, operator.n, operator.groups
    lanes, group = schedule.number("nr") * schedule.number("vector"), operator.group or k
    panels = b.buffer("panels", "i8", (-(-n // lanes) * k, lanes), "packed")
    with b.prepare(), b.loop("p", 0, -(-n // lanes)) as p, b.loop("kk", 0, k) as kk:
        w = memory["w"]
        panels[p * k + kk, span(0, lanes)] = w[span(p * lanes, lanes, n - p * lanes), kk]

    def tile(p: Expr, top: Expr, r: int) -> None:
        total = b.let(f"total{r}", fill(0.0, "f32", r, lanes))
        with b.loop("g", 0, groups) as g:
            acc = b.let(f"acc{r}", fill(0.0, "f32", r, lanes))
            end = minimum((g + 1) * group, k)
            with b.loop("kk", g * group, end, unroll=schedule.number("ku")) as kk:
                at = b.let("at", p * k + kk)
                fetch_ahead(b, panels, at, lanes, schedule)
                w = b.let(f"w{r}", cast("f32", panels[at, span(0, lanes)]))
                acc = b.let(f"acc{r}", fma(memory["a"][span(top, r), span(kk, 1)], w, acc))
            total = b.let(f"total{r}", fma(acc, scale[p * groups + g, span(0, lanes)], total))
        column = p * lanes
        across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)
        memory["out"][span(top, r), across] = total

    over_tiles(b, -(-n // lanes), schedule.number("mr"), schedule.number("rows"), tile)


def space_of(operator: Operator, machine: Machine, refusal: str | None = None) -> SearchSpace:
    """Axes of the weight-only products. `refusal`: why the form planes does not do, if so."""
    wide = widths(machine)
    dots = {"avx512_vnni", "avx_vnni", "asimddp", "i8mm"} & set(machine.isa)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "form": ("planes", "widened"),
        "mr": (1, 2, 3, 4, 6, 8),
        "nr": (1, 2, 3, 4),
        "ku": (1, 2, 4),
        "rows": (48, 192, 768),
        "prefetch": (0, 512, 1024, 2048, 4096, 8192),
    }
    room = registers(wide[-1], machine)
    start: dict[str, Value] = {
        "vector": wide[-1],
        "form": "planes" if dots else "widened",
        "mr": (3 if room == 32 else 1) if dots else (6 if room == 32 else 3),
        "nr": 2,
        "ku": 2,
        "rows": 192,
        "prefetch": 2048,
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, mr, nr = (int(choices[axis]) for axis in ("vector", "mr", "nr"))
        free = registers(vector, machine)
        if choices["form"] == "planes" and refusal is not None:
            return refusal
        each = PLANES if choices["form"] == "planes" else 1
        if mr * nr * each + nr + 1 > free:
            return f"mr: {mr} x {nr} x {each} sums and {nr} weights are more than {free} registers"
        return None

    return SearchSpace(operator.name, axes, start, rule)


def _space(operator: GemvInt8, machine: Machine) -> SearchSpace:
    return space_of(operator, machine)


GEMV_INT8 = Sketch("gemv_int8", _program, _space)
