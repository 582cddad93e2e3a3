"""One row times a matrix: bound by the stream of weights, so everything serves that stream.

In: a `Gemv` and a schedule. Out: its program. Never here: products of several rows.

Panels lie one after another, k after k. Several of them, far apart, are read side by side: each is
a linear stream of its own that the processor fetches ahead, and more of them hide more of the way
to memory. What the processor's own fetching misses, at page ends, is fetched a fixed distance
ahead.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.gemv import Gemv
from kernelgen.schedule.resources import registers
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemm_plain import LINE, pack
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, fill, fma, span
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

LONG = 4096
"""Results from which on panels are four vectors wide."""


def _program(operator: Gemv, schedule: Schedule) -> Kernel:
    lanes = schedule.number("nr") * schedule.number("vector")
    k, n = operator.k, operator.n
    b, memory = begin(operator)
    panels = pack(b, memory["w"], k, n, lanes)
    count, streams = -(-n // lanes), schedule.number("streams")
    apart = count // streams
    with b.run():
        if apart:
            with b.parallel("p", 0, apart) as p:
                _together(
                    b,
                    operator,
                    schedule,
                    memory,
                    panels,
                    [p + s * apart for s in range(streams)],
                )
        if count % streams:
            with b.parallel("q", streams * apart, count) as q:
                _together(b, operator, schedule, memory, panels, [q])
    return b.kernel()


def _together(
    b: Build,
    operator: Gemv,
    schedule: Schedule,
    memory: Mapping[str, Memory],
    panels: Memory,
    which: list[Expr],
) -> None:
    """The results of the panels `which`, all in one walk over k."""
    lanes = schedule.number("nr") * schedule.number("vector")
    distance = schedule.number("prefetch") // 4
    k, n, x, out = operator.k, operator.n, memory["x"], memory["out"]
    stem = "acc" if len(which) > 1 else "one"
    accs = [b.let(f"{stem}{s}", fill(0.0, "f32", lanes)) for s in range(len(which))]
    starts = [b.let(f"start{s}", p * k) for s, p in enumerate(which)]
    with b.loop("kk", 0, k, unroll=schedule.number("ku")) as kk:
        for s, start in enumerate(starts):
            at = b.let(f"at{s}", start + kk)
            if distance:
                for line in range(0, lanes, LINE):
                    b.prefetch(panels, (at, distance + line))
            accs[s] = b.let(f"{stem}{s}", fma(x[kk], panels[at, span(0, lanes)], accs[s]))
    for p, acc in zip(which, accs, strict=True):
        if n % lanes:
            out[span(p * lanes, lanes, n - p * lanes)] = acc
        else:
            out[span(p * lanes, lanes)] = acc


def _space(operator: Gemv, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "nr": (1, 2, 3, 4, 6, 8, 12),
        "streams": (1, 2, 4, 6, 8),
        "ku": (1, 2, 4, 8),
        "prefetch": (0, 512, 1024, 2048, 4096, 8192, 16384),
    }
    start: dict[str, Value] = {
        "vector": wide[-1],
        # Wide panels only where there are enough of them for every stream to stay long.
        "nr": 4 if operator.n >= LONG else 2,
        "streams": 4,
        "ku": 2,
        "prefetch": 0,
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, nr, streams = (int(choices[axis]) for axis in ("vector", "nr", "streams"))
        free = registers(vector, machine)
        if nr * streams + 2 > free:
            return f"nr: {nr} x {streams} sums need more than {free} registers"
        return None

    return SearchSpace(operator.name, axes, start, rule)


GEMV = Sketch("gemv", _program, _space)
