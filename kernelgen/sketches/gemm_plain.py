"""A float32 product: weights in panels, a register tile of sums, the epilogue on the last value.

In: a `Gemm` and a schedule. Out: its program. Never here: what an epilogue means.

Weights lie panel after panel, k after k, so that one pass streams them in address order; the last
panel is filled up with zeros. A panel serves every tile of a row block while it is near. A lone
tile fetches a fixed distance ahead in the stream; several tiles share out the fetching of the next
panel. Tiles are nearly equal in height: no tile is so thin that its few sums wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kernelgen.machine import Machine
from kernelgen.ops.gemm_plain import Gemm
from kernelgen.schedule.families import registers
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Index, Memory, fill, fma, minimum, select, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

LINE = 16
"""Floats of a cache line."""

SUMS = 8
"""Vectors of sums that hide the latency of adding: thin tiles take several turns of k apart."""


def pack(b: Build, w: Memory, k: int, n: int, lanes: int) -> Memory:
    """Weights [k, n] as panels [n / lanes][k][lanes], written in `prepare`."""
    panels = b.buffer("panels", "f32", (-(-n // lanes) * k * lanes,), "packed")
    with b.prepare(), b.loop("p", 0, -(-n // lanes)) as p, b.loop("kk", 0, k) as kk:
        panels[span((p * k + kk) * lanes, lanes)] = w[kk, span(p * lanes, lanes, n - p * lanes)]
    return panels


def _program(operator: Gemm, schedule: Schedule) -> Kernel:
    v, mr, nr = (schedule.number(axis) for axis in ("vector", "mr", "nr"))
    k, n, lanes = operator.k, operator.n, nr * v
    b, memory = begin(operator)
    panels = pack(b, memory["w"], k, n, lanes)
    if operator.has_bias:
        memory["added"] = b.buffer("added", "f32", (-(-n // lanes) * lanes,), "packed")
        with b.prepare(), b.loop("j", 0, n, lanes) as j:
            memory["added"][span(j, lanes)] = memory["bias"][span(j, lanes, n - j)]
    m, block = b.dim("m"), schedule.number("rows")
    with b.run(), b.loop("first", 0, m, block) as first:
        count = b.let("count", minimum(m - first, block))
        tiles = b.let("tiles", (count + (mr - 1)) // mr)
        with b.parallel("p", 0, -(-n // lanes)) as p:
            b.let("panel", p * (k * lanes))
            with b.loop("t", 0, tiles) as t:
                top = b.let("top", first + t * count // tiles)
                high = b.let("high", first + (t + 1) * count // tiles - top)
                fetch = partial(_fetch, b, panels, schedule, lanes, _ahead(b, schedule, k, lanes))
                for r in range(1, mr + 1):
                    where = _place(top, r, p * lanes, lanes, n)
                    with b.when(high.equals(r)):
                        begun = _begun(operator, memory, where, r, (p * lanes, lanes))
                        work = _Tile(top, r, k, lanes, nr)
                        sums = _sums(b, memory["a"], panels, schedule, work, begun, fetch)
                        memory["out"][where] = sums
                if operator.epilogue in ("bias_gelu", "bias_silu"):
                    with b.loop("e", 0, high) as e:
                        where = _place(top + e, 1, p * lanes, lanes, n)
                        y = b.let("y", memory["out"][where])
                        gelu = operator.epilogue == "bias_gelu"
                        memory["out"][where] = word("gelu", y) if gelu else y * word("sigmoid", y)
    return b.kernel()


@dataclass(frozen=True)
class _Tile:
    """Rows from `top` on, `high` of them, against one panel of `lanes` = `nr` vectors."""

    top: Expr
    high: int
    k: int
    lanes: int
    nr: int


def _place(top: Expr, high: int, column: Expr, lanes: int, n: int) -> tuple[Index, Index]:
    across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)
    return (span(top, high), across) if high > 1 else (top, across)


def _begun(
    operator: Gemm,
    memory: Mapping[str, Memory],
    where: tuple[Index, Index],
    high: int,
    across: tuple[Expr, int],
) -> Expr:
    """What the sums begin with: zero, the bias, or the residual."""
    column, lanes = across
    if operator.epilogue == "residual":
        return memory["residual"][where]
    zero = fill(0.0, "f32", high, lanes) if high > 1 else fill(0.0, "f32", lanes)
    return zero + memory["added"][span(column, lanes)] if operator.has_bias else zero


def _ahead(b: Build, schedule: Schedule, k: int, lanes: int) -> tuple[Expr, Expr]:
    """Where this tile's fetching begins, and how many floats further it goes with every k."""
    panel, t, tiles = b.dim("panel"), b.dim("t"), b.dim("tiles")
    if not schedule.number("prefetch"):
        return panel, tiles
    pace = b.let("pace", (tiles + (lanes - 1)) // tiles)
    near = panel + schedule.number("prefetch") // 4
    return b.let("ahead", select(tiles.equals(1), near, panel + k * (lanes + t * pace))), pace


def _fetch(
    b: Build, panels: Memory, schedule: Schedule, lanes: int, ahead: tuple[Expr, Expr], kk: Expr
) -> None:
    if schedule.number("prefetch"):
        start, pace = ahead
        lines = max(1, lanes // LINE)
        for i in range(lines):
            b.prefetch(panels, start + kk * pace + pace * i // lines)


def _sums(
    b: Build,
    a: Memory,
    panels: Memory,
    schedule: Schedule,
    tile: _Tile,
    begun: Expr,
    fetch: partial[None],
) -> Expr:
    """`begun` plus the product of the tile's rows and one panel."""
    r, k, lanes = tile.high, tile.k, tile.lanes
    panel = b.dim("panel")
    apart = max(1, min(SUMS // (r * tile.nr), k))
    empty = fill(0.0, "f32", *((r, lanes) if r > 1 else (lanes,)))
    accs = [b.let(f"acc{r}_{u}", empty if u else begun) for u in range(apart)]

    def step(u: int, kk: Expr) -> None:
        w = b.let(f"w{r}_{u}", panels[span(panel + kk * lanes, lanes)])
        x = a[span(tile.top, r), span(kk, 1)] if r > 1 else a[tile.top, kk]
        accs[u] = b.let(f"acc{r}_{u}", fma(x, w, accs[u]))

    unroll = max(1, schedule.number("ku") // apart)
    with b.loop("kk", 0, k // apart * apart, apart, unroll=unroll) as kk:
        for u in range(apart):
            fetch(kk + u)
            step(u, kk + u)
    for u in range(k % apart):
        step(u, b.let(f"rest{r}_{u}", k // apart * apart + u))
    total = accs[0]
    for one in accs[1:]:
        total = total + one
    return total


def _space(operator: Gemm, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    room = registers(wide[-1], machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "mr": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14),
        "nr": (1, 2, 3, 4, 6),
        "ku": (1, 2, 4, 8),
        "rows": (24, 48, 96, 128, 192, 256, 384, 768),
        "prefetch": (0, 512, 1024, 2048, 4096, 8192),
    }
    # A tile of 12 x 2 or 6 x 2 fills 32 or 16 registers and leaves room for weights.
    start: dict[str, Value] = {
        "vector": wide[-1],
        "mr": 12 if room == 32 else 6,
        "nr": 2,
        "ku": 2,
        "rows": _block(operator.k, machine),
        "prefetch": 2048,
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, mr, nr = (int(choices[axis]) for axis in ("vector", "mr", "nr"))
        free = registers(vector, machine)
        if mr * nr + nr + 1 > free:
            return f"mr: {mr} x {nr} sums and {nr} weights need more than {free} registers"
        return None

    return SearchSpace(operator.name, axes, start, rule)


def _block(k: int, machine: Machine) -> int:
    """The most rows whose activations take half of L2."""
    fitting = [
        rows for rows in (24, 48, 96, 128, 192, 256, 384) if 8 * rows * k <= machine.l2_bytes
    ]
    return max(fitting, default=24)


GEMM = Sketch("gemm", _program, _space)
