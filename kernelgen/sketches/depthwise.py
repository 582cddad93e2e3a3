"""Depthwise convolution: a few output rows of one channel at once, so that each row of the image
is loaded once for all of them.

In: a `DepthwiseConv2d` and a schedule. Out: its program. Never here: sums over channels.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.conv import DepthwiseConv2d
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.image import STRIDES, Band, over_columns, over_pixels
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Value as Tile
from kernelgen.tile.build import fill, fma, maximum, minimum, span, value
from kernelgen.tile.ir import Kernel


def _program(operator: DepthwiseConv2d, schedule: Schedule) -> Kernel:
    v, vectors, high, rows = (
        schedule.number(axis) for axis in ("vector", "vectors", "high", "rows")
    )
    size, stride, channels = operator.kernel, operator.stride, operator.channels
    b, memory = begin(operator)
    taps = b.buffer("taps", "f32", (channels, size**2), "packed")
    offset = b.buffer("offset", "f32", (channels,), "packed")
    with b.prepare(), b.loop("c", 0, channels) as c:
        offset[c] = memory["bias"][c]
        with b.loop("t", 0, size**2) as t:
            taps[c, t] = memory["weight"][c, 0, t // size, t % size]
    lanes_most = v * max(vectors, 4)
    band = Band.make(b, operator, channels=1, rows=rows, lanes=lanes_most, vector=v)
    sums = b.buffer("sums", "f32", (band.pitch * rows + lanes_most,), "private")
    out, h, w = memory["out"], b.dim("h"), b.dim("w")

    def tile(places: list[Tile], lanes: int) -> list[Tile]:
        """Sums at several places that lie one output row below each other."""
        names = [b.fresh("sum") for _ in places]
        for name in names:
            b.let(name, fill(offset[channel], "f32", lanes))
        for row in range((len(places) - 1) * stride + size):
            for q in range(size):
                seen = b.let(b.fresh("seen"), band.take(0, places[0], row, q, lanes))
                for number, name in enumerate(names):
                    r = row - number * stride
                    if 0 <= r < size:
                        b.let(name, fma(taps[channel, r * size + q], seen, name))
        return [maximum(name, 0.0) if operator.relu else value(name) for name in names]

    def by_rows(down: Tile, several: int, at: Tile, lanes: int) -> None:
        places = [(down + number) * band.pitch + at for number in range(several)]
        for number, last in enumerate(tile(places, lanes)):
            out[i, channel, top + down + number, span(at, lanes, w - at)] = last

    def by_pixels(pixel: Tile, lanes: int) -> None:
        sums[span(pixel, lanes)] = tile([pixel], lanes)[0]

    with b.run(), b.loop("i", 0, "n") as i, b.parallel("top", 0, h, rows) as top:
        band.clear(0)
        count = b.let("count", minimum(h - top, rows))
        with b.loop("channel", 0, channels) as channel:
            band.inside(memory["x"], i, top, channel, 0)
            # Rows much longer than a run: row by row. Short ones: runs go on over row ends.
            with b.when(value(3 * v) < w):
                full = b.let("full", count // high * high)
                with b.loop("down", 0, full, high) as down:
                    over_columns(b, v, vectors, lambda at, lanes: by_rows(down, high, at, lanes))
                rest = b.let("rest", count - full)
                for several in range(1, high):
                    with b.when(rest.equals(several)):

                        def last_rows(at: Tile, lanes: int, several: int = several) -> None:
                            by_rows(full, several, at, lanes)

                        over_columns(b, v, vectors, last_rows)
            with b.otherwise():
                over_pixels(b, count * band.pitch, v, 4, by_pixels)
                with b.loop("back", 0, count) as back, b.loop("x_at", 0, w, v) as at:
                    kept = sums[span(back * band.pitch + at, v, w - at)]
                    out[i, channel, top + back, span(at, v, w - at)] = kept
    return b.kernel()


def _space(operator: DepthwiseConv2d, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "vectors": (1, 2, 3),
        "high": (1, 2, 4, 8),
        "rows": (8, 16, 32),
    }
    start: dict[str, Value] = {"vector": wide[-1], "vectors": 2, "high": 4, "rows": 16}

    def rule(choices: Mapping[str, Value]) -> str | None:
        if operator.stride not in STRIDES:
            return f"stride: {operator.stride} has no program, wanted one of {STRIDES}"
        return None

    return SearchSpace(operator.name, axes, start, rule)


DEPTHWISE_CONV2D = Sketch("depthwise_conv2d", _program, _space)
