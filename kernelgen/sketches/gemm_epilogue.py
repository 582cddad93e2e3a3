"""What follows a float32 product: bias, residual, GELU or SiLU, LayerNorm of rows that are hot.

In: an operator of a product, its buffers, sums. Out: statements in a program under way. Never here:
how the sums came about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelgen.ops.gemm import GemmBias, GemmBiasGelu, GemmBiasResidualLayernorm
from kernelgen.ops.gemm_plain import Gemm
from kernelgen.sketches.row import Row, filled, fitting, may_hold, reader
from kernelgen.tile.build import (
    Build,
    Index,
    Memory,
    Value,
    fill,
    fma,
    span,
    sum_,
    word,
)

Product = Gemm | GemmBias

SUMS = 4
"""Vectors in which a row of a LayerNorm is added up."""


@dataclass(frozen=True)
class Epilogue:
    """The parts an operator has. `added`: the bias filled up to whole panels; `scale`, `shift`: of
    the LayerNorm.
    """

    curve: str
    epsilon: float | None
    added: Memory | None
    residual: Memory | None
    scale: Memory | None
    shift: Memory | None
    out: Memory
    n: int
    vector: int

    def begin(self, column: Value, rows: int, lanes: int) -> Value:
        """What sums begin with: the bias, or zero."""
        zero = fill(0.0, "f32", rows, lanes) if rows > 1 else fill(0.0, "f32", lanes)
        return zero if self.added is None else zero + self.added[span(column, lanes)]

    def store(self, b: Build, where: tuple[Index, Index], name: str) -> None:
        """The sums held by `name` to their place, the residual added."""
        if self.residual is not None:
            b.let(name, b.dim(name) + self.residual[where])
        self.out[where] = b.dim(name)

    def finish(self, b: Build, where: tuple[Value, Value], sums: Value, lanes: int) -> None:
        """All of it on one row of `lanes` columns, but for the norm, which waits for whole rows."""
        row, column = b.let("onto", where[0]), where[1]
        at = (row, reach(column, lanes, self.n))
        z = b.let("z", sums)
        if self.added is not None:
            z = b.let("z", z + self.added[span(column, lanes)])
        if self.residual is not None:
            z = b.let("z", z + self.residual[at])
        self.out[at] = self._bent(z) if self.curve else z

    def _bent(self, y: Value) -> Value:
        return word("gelu", y) if self.curve == "gelu" else y * word("sigmoid", y)

    def bend(self, b: Build, top: Value, high: Value, column: Value, lanes: int) -> None:
        """The curve on `high` rows of `lanes` columns that have just been stored."""
        if not self.curve:
            return
        with b.loop("e", 0, high) as e:
            across = reach(column, lanes, self.n)
            y = b.let("y", self.out[top + e, across])
            self.out[top + e, across] = self._bent(y)

    def norm(self, b: Build, first: Value, count: Value) -> None:
        """LayerNorm of finished rows: the mean first, then the squares of what is left, so that a
        large mean costs no accuracy.
        """
        if self.epsilon is None or self.scale is None or self.shift is None:
            return
        n, lanes = self.n, fitting(self.n, self.vector, SUMS)
        held = may_hold(n, 1, lanes, self.vector) is None
        with b.parallel("i", 0, count) as i:
            at = b.let("at", first + i)
            row = Row(b, n, lanes, reader(self.out, at), held=held)
            sums = b.let("sums", filled(0.0, 1, lanes))
            for _, x in row.each():
                sums = b.let("sums", sums + x)
            total = b.let("row_sum", sum_(sums))
            mean = b.let("mean", total * (1.0 / n))
            squares = b.let("squares", filled(0.0, 1, lanes))
            for piece, x in row.each():
                away = b.let(b.fresh("away"), piece.only(x - mean, 0.0))
                squares = b.let("squares", fma(away, away, squares))
            total = b.let("sum_of_squares", sum_(squares))
            variance = b.let("variance", total * (1.0 / n))
            factor = b.let("factor", 1.0 / word("sqrt", variance + self.epsilon))
            for piece, x in row.each():
                scale, shift = self.scale[piece.span], self.shift[piece.span]
                normed = b.let(b.fresh("normed"), (x - mean) * factor)
                self.out[at, piece.span] = fma(normed, scale, shift)


def reach(column: Value, lanes: int, n: int) -> Index:
    """`lanes` columns from `column` on, those that exist."""
    return span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)


def epilogue(
    b: Build, operator: Product, memory: Mapping[str, Memory], vector: int, lanes: int
) -> Epilogue:
    """The epilogue of `operator`, its vectors packed for panels of `lanes` columns."""
    n = operator.n
    added = None
    if "bias" in memory:
        # Room for the last panel, and for the last columns that the matrix unit takes.
        added = _packed(b, "added", memory["bias"], n, n + lanes, vector)
    scale = shift = epsilon = None
    if isinstance(operator, GemmBiasResidualLayernorm):
        epsilon = operator.epsilon
        wide = fitting(n, vector, SUMS)
        scale = _packed(b, "scale", memory["gamma"], n, -(-n // wide) * wide, vector)
        shift = _packed(b, "shift", memory["beta"], n, -(-n // wide) * wide, vector)
    curve = "gelu" if isinstance(operator, GemmBiasGelu) else ""
    if isinstance(operator, Gemm):
        curve = operator.epilogue.partition("bias_")[2]
    residual = memory.get("residual")
    return Epilogue(curve, epsilon, added, residual, scale, shift, memory["out"], n, vector)


def _packed(b: Build, name: str, source: Memory, n: int, least: int, lanes: int) -> Memory:
    """A copy of a vector of n, filled up with zeros to `least` places or a few more."""
    size = -(-least // lanes) * lanes
    made = b.buffer(name, "f32", (size,), "packed")
    with b.prepare(), b.loop("j", 0, size, lanes) as j:
        made[span(j, lanes)] = source[span(j, lanes, n - j)]
    return made
