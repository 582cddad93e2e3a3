"""Dense convolution, direct: filters by pixels of one output row, one pass over channels and
window. A convolution of single pixels needs no window, no copy, and takes the image as one row.

In: a `Conv2d` and a schedule. Out: its program. Never here: im2col.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernelgen.machine import Machine
from kernelgen.ops.conv import Conv2d
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.image import STRIDES, Band, over_columns, over_pixels
from kernelgen.sketches.sketch import Sketch, begin, room, widths
from kernelgen.tile.build import Build, Memory, fill, fma, maximum, minimum, span, value
from kernelgen.tile.build import Value as Tile
from kernelgen.tile.ir import Kernel


def _pack(
    b: Build, memory: dict[str, Memory], operator: Conv2d, block: int
) -> tuple[Memory, Memory]:
    """Weights [blocks, taps, block, 1] and bias [blocks, block, 1]; missing filters weigh zero."""
    taps, size = operator.taps, operator.kernel**2
    blocks = -(-operator.filters // block)
    packed = b.buffer("packed", "f32", (blocks, taps, block, 1), "packed")
    offset = b.buffer("offset", "f32", (blocks, block, 1), "packed")
    weight, bias = memory["weight"], memory["bias"]
    with b.prepare(), b.loop("f", 0, blocks * block) as f:
        with b.when(f < operator.filters):
            offset[f // block, f % block, 0] = bias[f]
            with b.loop("c", 0, operator.channels) as c, b.loop("t", 0, size) as t:
                side = operator.kernel
                packed[f // block, c * size + t, f % block, 0] = weight[f, c, t // side, t % side]
        with b.otherwise():
            offset[f // block, f % block, 0] = 0.0
            with b.loop("c", 0, taps) as c:
                packed[f // block, c, f % block, 0] = 0.0
    return packed, offset


def _over_filters(b: Build, filters: int, block: int, tile: Callable[[Tile, int], None]) -> None:
    """`tile(block number, filters in it)`."""
    whole, rest = divmod(filters, block)
    if whole:
        with b.loop(b.fresh("f"), 0, whole) as f:
            tile(f, block)
    if rest:
        tile(b.let(b.fresh("f"), whole), rest)


def _windowed(operator: Conv2d, schedule: Schedule) -> Kernel:
    v, vectors, block = (schedule.number(axis) for axis in ("vector", "vectors", "filters"))
    rows, size, lanes = schedule.number("rows"), operator.kernel, v * vectors
    b, memory = begin(operator)
    packed, offset = _pack(b, memory, operator, block)
    band = Band.make(b, operator, channels=operator.channels, rows=rows, lanes=lanes, vector=v)
    out, h, w = memory["out"], b.dim("h"), b.dim("w")
    sums = b.buffer("sums", "f32", (block, band.pitch * rows + lanes), "private")

    def tile(f: Tile, count: int, pixel: Tile, wide: int) -> Tile:
        acc = b.fresh("acc")
        start = offset[f, span(0, count), span(0, 1)]
        b.let(acc, fill(0.0, "f32", count, wide) + start)
        with b.loop(b.fresh("c"), 0, operator.channels) as c:
            for r in range(size):
                for q in range(size):
                    seen = b.let(b.fresh("seen"), band.take(c, pixel, r, q, wide))
                    tap = c * size**2 + (r * size + q)
                    b.let(acc, fma(packed[f, tap, span(0, count), span(0, 1)], seen, acc))
        return maximum(acc, 0.0) if operator.relu else value(acc)

    with b.run(), b.loop("i", 0, "n") as i, b.parallel("top", 0, h, rows) as top:
        with b.loop("channel", 0, operator.channels) as channel:
            band.load(memory["x"], i, top, channel, channel)
        here = b.let("here", minimum(h - top, rows))

        def by_rows(f: Tile, count: int) -> None:
            with b.loop(b.fresh("down"), 0, here) as down:

                def run(at: Tile, wide: int) -> None:
                    last = tile(f, count, down * band.pitch + at, wide)
                    out[i, span(f * block, count), top + down, span(at, wide, w - at)] = last

                over_columns(b, v, vectors, run)

        def by_pixels(f: Tile, count: int) -> None:
            def run(pixel: Tile, wide: int) -> None:
                sums[span(0, count), span(pixel, wide)] = tile(f, count, pixel, wide)

            over_pixels(b, here * band.pitch, v, vectors, run)
            with (
                b.loop(b.fresh("one"), 0, count) as one,
                b.loop(b.fresh("down"), 0, here) as down,
                b.loop(b.fresh("at"), 0, w, v) as at,
            ):
                kept = sums[one, span(down * band.pitch + at, v, w - at)]
                out[i, f * block + one, top + down, span(at, v, w - at)] = kept

        # Rows much longer than a run: row by row. Short ones: runs go on over row ends.
        with b.when(value(2 * lanes) < w):
            _over_filters(b, operator.filters, block, by_rows)
        with b.otherwise():
            _over_filters(b, operator.filters, block, by_pixels)
    return b.kernel()


def _pointwise(operator: Conv2d, schedule: Schedule) -> Kernel:
    v, vectors, block = (schedule.number(axis) for axis in ("vector", "vectors", "filters"))
    b, memory = begin(
        operator, flat={"x": ("n", operator.channels, "h*w"), "out": ("n", operator.filters, "h*w")}
    )
    packed, offset = _pack(b, memory, operator, block)
    x, out, lanes = memory["x"], memory["out"], v * vectors
    with b.run(), b.loop("i", 0, "n") as i:
        pixels = b.let("pixels", b.dim("h") * b.dim("w"))
        full = b.let("full", pixels // lanes * lanes)

        def tile(f: Tile, count: int, at: Tile, wide: int, *, cut: bool) -> None:
            acc = b.let(
                b.fresh("acc"),
                fill(0.0, "f32", count, wide) + offset[f, span(0, count), span(0, 1)],
            )
            name = acc.expr.name  # type: ignore[union-attr]
            left = pixels - at if cut else None
            with b.loop(b.fresh("c"), 0, operator.channels) as c:
                seen = b.let(b.fresh("seen"), x[i, c, span(at, wide, left)])
                b.let(name, fma(packed[f, c, span(0, count), span(0, 1)], seen, acc))
            last = maximum(acc, 0.0) if operator.relu else acc
            out[i, span(f * block, count), span(at, wide, left)] = last

        with b.parallel("at", 0, full, lanes) as at:
            _over_filters(
                b, operator.filters, block, lambda f, count: tile(f, count, at, lanes, cut=False)
            )
        with b.parallel("end", full, pixels, v) as end:
            _over_filters(
                b, operator.filters, block, lambda f, count: tile(f, count, end, v, cut=True)
            )
    return b.kernel()


def _program(operator: Conv2d, schedule: Schedule) -> Kernel:
    if (operator.kernel, operator.stride, operator.padding) == (1, 1, 0):
        return _pointwise(operator, schedule)
    return _windowed(operator, schedule)


def _space(operator: Conv2d, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    registers = 32 if wide[-1] == 16 else 16
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "vectors": (1, 2, 3, 4),
        "filters": (2, 3, 4, 5, 6, 8, 12),
        "rows": (1, 2, 4, 8, 16),
    }
    filters = 8 if registers == 32 else 4
    # A tall band has fewer ends of runs, which single vectors cover; it must stay in L2.
    rows = 16 if machine.l2_bytes >= 2**20 else 4
    start: dict[str, Value] = {
        "vector": wide[-1],
        "vectors": 3,
        "filters": min(filters, max(2, operator.filters)),
        "rows": rows,
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        if operator.stride not in STRIDES:
            return f"stride: {operator.stride} has no program, wanted one of {STRIDES}"
        need = room(choices, "filters", "vectors")
        have = 32 if choices["vector"] == 16 else 16
        if need > have:
            return f"filters, vectors: {need} registers wanted, the machine has {have}"
        return None

    return SearchSpace(operator.name, axes, start, rule)


CONV2D = Sketch("conv2d", _program, _space)
