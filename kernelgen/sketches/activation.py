"""GELU, SiLU and SwiGLU: one pass, no division.

In: a `Gelu`, `Silu` or `Swiglu` and a schedule. Out: its program. Never here: what an activation
means; a product before or after it.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelgen.machine import Machine
from kernelgen.ops.activation import Gelu, Silu, Swiglu
from kernelgen.schedule.schedule import Schedule
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.row import fitting, walk
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Value, fma, select, span, word
from kernelgen.tile.ir import Kernel

START = (70.0 / 33.0, -16.0 / 11.0, 32.0 / 99.0)
"""1 / d on 1 <= d <= 2, rising powers of d: 1 - d p(d) = T3(2 d - 3) / T3(-3), at most 1 / 99, T3
being Chebyshev's polynomial. Two of Newton's steps square that twice, to 1e-8."""


def silu(b: Build, x: Value) -> Value:
    """x / (1 + exp(-x)), NaN for NaN. With t = exp(-|x|), 1 / (1 + t) comes by Newton's steps, for
    a division takes longer than all the rest; the negative side is t times that.
    """
    t = b.let(b.fresh("t"), word("exp_below", -word("abs", x)))
    d = b.let(b.fresh("d"), t + 1.0)
    r = b.let(b.fresh("r"), fma(d, fma(d, START[2], START[1]), START[0]))
    for _ in range(2):
        r = b.let(b.fresh("r"), fma(r, fma(-d, r, 1.0), r))
    return x * r * select(x < 0.0, t, 1.0)


def gelu(b: Build, x: Value) -> Value:
    return word("gelu", x)


def _rows(operator: Gelu, schedule: Schedule, function: Callable[[Build, Value], Value]) -> Kernel:
    n = operator.n
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    x, out = memory["x"], memory["out"]
    with b.run(), b.parallel("i", 0, "m") as i:
        for piece in walk(b, "j", n, lanes):
            v = b.let(b.fresh("x"), x[i, piece.span])
            out[i, piece.span] = function(b, v)
    return b.kernel()


def _swiglu(operator: Swiglu, schedule: Schedule) -> Kernel:
    n = operator.n
    lanes = fitting(n, schedule.number("vector"), schedule.number("sums"))
    b, memory = begin(operator)
    both, out = memory["gate_up"], memory["out"]
    with b.run(), b.parallel("i", 0, "m") as i:
        for piece in walk(b, "j", n, lanes):
            gate = b.let(b.fresh("gate"), both[i, piece.span])
            up = both[i, span(piece.start + n, lanes, piece.left)]
            out[i, piece.span] = silu(b, gate) * up
    return b.kernel()


def _space(operator: Gelu | Swiglu, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    axes = {"vector": wide, "sums": (1, 2, 4)}
    return SearchSpace(operator.name, axes, {"vector": wide[-1], "sums": 4}, lambda choices: None)


def _gelu(operator: Gelu, schedule: Schedule) -> Kernel:
    return _rows(operator, schedule, gelu)


def _silu(operator: Silu, schedule: Schedule) -> Kernel:
    return _rows(operator, schedule, silu)


GELU = Sketch("gelu", _gelu, _space)
SILU = Sketch("silu", _silu, _space)
SWIGLU = Sketch("swiglu", _swiglu, _space)
