"""Products of bytes in the matrix unit: four sums of 16 x 16 from two tiles of rows and two of
weights.

In: a program under way, packed weights. Out: the statements of one call. Never here: fewer rows
than one tile has; where rows are left over, the last tile takes some of those before it once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.sketches.planes import rounded
from kernelgen.tile.build import Build, Memory, cast, fill, minimum, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.matrix import SIDE

UNIT_ISA = ("amx_int8", "amx_tile")
STEP_BYTES = 4 * SIDE
"""Inner places of one word: 16 times four."""


@dataclass(frozen=True)
class Weights:
    """`panels`: i8 (panels x steps, 4 lanes), four inner places of `lanes` columns side by side;
    `sums`: i32 (panels, lanes), of every column; `scale`: f32 (panels, lanes).
    """

    panels: Memory
    sums: Memory
    scale: Memory
    lanes: int
    steps: int


def in_unit(
    b: Build, operator: GemmInt8, memory: dict[str, Memory], weights: Weights, vector: int
) -> None:
    """The whole call, for 16 rows or more; panels of 32 columns."""
    m, lanes, n = b.dim("m"), weights.lanes, operator.n
    a = memory["a"]
    if operator.k % STEP_BYTES:
        a = _filled_up(b, operator, a, vector)
    kept = b.buffer("tile_sums", "i32", (2 * SIDE, lanes), "private")
    zero = b.let("zero", cast("i32", memory["a_zero"][0]))
    factor = b.let("factor", memory["a_scale"][0])

    with b.parallel("p", 0, -(-n // lanes)) as p:
        less = b.let("less", weights.sums[p, span(0, lanes)] * zero)
        by_column = b.let("by_column", weights.scale[p, span(0, lanes)] * factor)
        column = p * lanes
        across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)

        def tile(top: Expr, high: int) -> None:
            sums = _sums(b, weights, a, p, top, high)
            for i, row in enumerate(sums):
                for j, one in enumerate(row):
                    kept[span(i * SIDE, SIDE), span(j * SIDE, SIDE)] = one
            with b.loop("r", 0, high * SIDE, unroll=2) as r:
                exact = kept[r, span(0, lanes)] - less
                memory["out"][top + r, across] = cast("f32", exact) * by_column

        pairs = b.let("pairs", m // (2 * SIDE))
        with b.loop("t", 0, pairs) as t:
            tile(b.let("top", t * (2 * SIDE)), 2)
        with b.loop("rest", pairs * (2 * SIDE), m, SIDE) as rest:
            tile(b.let("top", minimum(rest, m - SIDE)), 1)


def _sums(b: Build, weights: Weights, a: Memory, p: Expr, top: Expr, high: int) -> list[list[Expr]]:
    wide = weights.lanes // SIDE
    names = [[f"sum{i}{j}" for j in range(wide)] for i in range(high)]
    for row in names:
        for name in row:
            b.let(name, fill(0, "i32", SIDE, SIDE))
    with b.loop("s", 0, weights.steps // SIDE, unroll=2) as s:
        at = b.let("step", p * weights.steps + s * SIDE)
        columns = [
            b.let(f"weights{j}", weights.panels[span(at, SIDE), span(j * STEP_BYTES, STEP_BYTES)])
            for j in range(wide)
        ]
        for i, row in enumerate(names):
            rows = b.let(
                f"rows{i}", a[span(top + i * SIDE, SIDE), span(s * STEP_BYTES, STEP_BYTES)]
            )
            for name, column in zip(row, columns, strict=True):
                b.let(name, word("dot_i8", name, rows, column))
    return [[b.dim(name) for name in row] for row in names]


def _filled_up(b: Build, operator: GemmInt8, a: Memory, vector: int) -> Memory:
    """The activations in rows of whole steps, zero beyond k."""
    k, m = operator.k, b.dim("m")
    whole = rounded(k, STEP_BYTES)
    copy = b.buffer("filled_a", "i8" if operator.signed else "u8", (m, whole), "local")
    with b.parallel("i", 0, m) as i, b.loop("j", 0, whole, vector) as j:
        copy[i, span(j, vector)] = a[i, span(j, vector, k - j)]
    return copy
