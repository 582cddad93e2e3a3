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
from kernelgen.sketches.image import STRIDES, Band, over_columns
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Value as Tile
from kernelgen.tile.build import fill, fma, maximum, minimum, span
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
    band = Band.make(b, operator, channels=1, rows=rows, lanes=v * vectors, vector=v)
    out, h, w = memory["out"], b.dim("h"), b.dim("w")

    with (
        b.run(),
        b.loop("i", 0, "n") as i,
        b.loop("channel", 0, channels) as channel,
        b.parallel("top", 0, h, rows) as top,
    ):
        band.load(memory["x"], i, top, channel, 0)
        count = b.let("count", minimum(h - top, rows))

        def tile(down: Tile, several: int, at: Tile, lanes: int) -> None:
            sums = [b.fresh("sum") for _ in range(several)]
            for name in sums:
                b.let(name, fill(offset[channel], "f32", lanes))
            for row in range((several - 1) * stride + size):
                for q in range(size):
                    seen = b.let(b.fresh("seen"), band.take(0, down * stride + row, q, at, lanes))
                    for number, name in enumerate(sums):
                        r = row - number * stride
                        if 0 <= r < size:
                            b.let(name, fma(taps[channel, r * size + q], seen, name))
            for number, name in enumerate(sums):
                last = maximum(name, 0.0) if operator.relu else name
                out[i, channel, top + down + number, span(at, lanes, w - at)] = last

        full = b.let("full", count // high * high)
        with b.loop("down", 0, full, high) as down:
            over_columns(b, v, vectors, lambda at, lanes: tile(down, high, at, lanes))
        if high > 1:
            with b.loop("down_one", full, count) as one:
                over_columns(b, v, vectors, lambda at, lanes: tile(one, 1, at, lanes))
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
