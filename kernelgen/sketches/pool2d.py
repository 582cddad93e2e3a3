"""Pooling over windows of an image, row by row, whole runs of output columns at once.

In: a pooling operator and a schedule. Out: its program. Never here: a window that misses the
image.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.pool2d import AvgPool, GlobalAvgPool, MaxPool
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.image import STRIDES, Band, over_columns
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, fill, lane, maximum, minimum, span, sum_
from kernelgen.tile.build import Value as Tile
from kernelgen.tile.build import cast as to
from kernelgen.tile.ir import Kernel


def _program(operator: MaxPool, schedule: Schedule) -> Kernel:
    v, vectors, rows = (schedule.number(axis) for axis in ("vector", "vectors", "rows"))
    mean = isinstance(operator, AvgPool)
    b, memory = begin(operator)
    band = Band.make(b, operator, channels=1, rows=rows, lanes=v * vectors, vector=v)
    out, w = memory["out"], b.dim("w")
    with (
        b.run(),
        b.loop("i", 0, "n") as i,
        b.loop("channel", 0, operator.channels) as channel,
        b.parallel("top", 0, "h", rows) as top,
    ):
        band.load(memory["x"], i, top, channel, 0, edge=not mean)
        with b.loop("down", 0, minimum(b.dim("h") - top, rows)) as down:

            def tile(at: Tile, lanes: int) -> None:
                name = b.fresh("best")
                pixel = down * band.pitch + at
                best = b.let(name, band.take(0, pixel, 0, 0, lanes))
                for place in range(1, operator.kernel**2):
                    r, q = divmod(place, operator.kernel)
                    seen = band.take(0, pixel, r, q, lanes)
                    b.let(name, best + seen if mean else maximum(seen, best))
                if mean:
                    best = best / _inside(b, operator, band.extra, top + down, at, lanes)
                out[i, channel, top + down, span(at, lanes, w - at)] = best

            over_columns(b, v, vectors, tile)
    return b.kernel()


def _inside(b: Build, operator: MaxPool, extra: int, y: Tile, at: Tile, lanes: int) -> Tile:
    """How many pixels of each window lie inside the image: f32 (lanes,)."""
    stride, size, padding = operator.stride, operator.kernel, operator.padding

    def clipped(first: Tile, edge: Tile, zero: Tile | int) -> Tile:
        """Pixels of a window that begins at `first - padding`, all counted with the padding."""
        return minimum(first + size, edge + padding) - maximum(first, zero)

    tall, wide = b.dim("h") * stride + extra, b.dim("w") * stride + extra
    down = b.let(b.fresh("down"), to("i32", clipped(y * stride, tall, padding)))
    # Lanes past the last column are cut off when stored; one pixel keeps the division sane.
    place = b.let(b.fresh("place"), (lane(lanes) + to("i32", at)) * stride)
    across = maximum(clipped(place, to("i32", wide), padding), 1)
    return to("f32", across * down)


def _space(operator: MaxPool, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "vectors": (1, 2, 4),
        "rows": (4, 8, 16, 32),
    }
    start: dict[str, Value] = {"vector": wide[-1], "vectors": 2, "rows": 16}

    def rule(choices: Mapping[str, Value]) -> str | None:
        if operator.stride not in STRIDES:
            return f"stride: {operator.stride} has no program, wanted one of {STRIDES}"
        return None

    return SearchSpace(operator.name, axes, start, rule)


def _global(operator: GlobalAvgPool, schedule: Schedule) -> Kernel:
    v, sums = schedule.number("vector"), schedule.number("sums")
    lanes = v * sums
    b, memory = begin(operator, flat={"x": ("n", operator.channels, "h*w")})
    x, out = memory["x"], memory["out"]
    with b.run(), b.parallel("i", 0, "n") as i:
        pixels = b.let("pixels", b.dim("h") * b.dim("w"))
        full = b.let("full", pixels // lanes * lanes)
        share = b.let("share", 1.0 / to("f32", pixels))
        with b.loop("channel", 0, operator.channels) as channel:
            total = b.let("total", fill(0.0, "f32", lanes))
            with b.loop("at", 0, full, lanes) as at:
                b.let("total", total + x[i, channel, span(at, lanes)])
            with b.when(full < pixels):
                b.let("total", total + x[i, channel, span(full, lanes, pixels - full)])
            out[i, channel] = b.let("one", sum_(total)) * share
    return b.kernel()


def _global_space(operator: GlobalAvgPool, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes: dict[str, tuple[Value, ...]] = {"vector": wide, "sums": (1, 2, 4, 8)}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "sums": 4}, lambda choices: None)


MAX_POOL = Sketch("max_pool", _program, _space)
AVG_POOL = Sketch("avg_pool", _program, _space)
GLOBAL_AVG_POOL = Sketch("global_avg_pool", _global, _global_space)
