"""One row times a matrix: bound by the stream of weights, so everything serves that stream.

In: a `Gemv` and a schedule. Out: its program. Never here: products of several rows.

Panels as wide as the sums that registers hold lie one after another, k after k: one linear pass,
fetched a fixed distance ahead, across the page ends where the processor's own fetching stops.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.gemv import Gemv
from kernelgen.schedule.families import registers
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemm_plain import LINE, pack
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import fill, fma, span
from kernelgen.tile.ir import Kernel


def _program(operator: Gemv, schedule: Schedule) -> Kernel:
    lanes = schedule.number("nr") * schedule.number("vector")
    distance = schedule.number("prefetch") // 4
    k, n = operator.k, operator.n
    b, memory = begin(operator)
    x, out = memory["x"], memory["out"]
    panels = pack(b, memory["w"], k, n, lanes)
    with b.run(), b.parallel("p", 0, -(-n // lanes)) as p:
        acc = b.let("acc", fill(0.0, "f32", lanes))
        panel = b.let("panel", p * (k * lanes))
        with b.loop("kk", 0, k, unroll=schedule.number("ku")) as kk:
            at = b.let("at", panel + kk * lanes)
            if distance:
                for line in range(0, lanes, LINE):
                    b.prefetch(panels, at + (distance + line))
            acc = b.let("acc", fma(x[kk], panels[span(at, lanes)], acc))
        if n % lanes:
            out[span(p * lanes, lanes, n - p * lanes)] = acc
        else:
            out[span(p * lanes, lanes)] = acc
    return b.kernel()


def _space(operator: Gemv, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "nr": (1, 2, 3, 4, 6, 8, 12),
        "ku": (1, 2, 4, 8),
        "prefetch": (0, 512, 1024, 2048, 4096, 8192, 16384),
    }
    start: dict[str, Value] = {"vector": wide[-1], "nr": 4, "ku": 2, "prefetch": 4096}

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, nr = int(choices["vector"]), int(choices["nr"])
        if nr + 2 > registers(vector, machine):
            return f"nr: {nr} sums need more than {registers(vector, machine)} registers"
        return None

    return SearchSpace(operator.name, axes, start, rule)


GEMV = Sketch("gemv", _program, _space)
