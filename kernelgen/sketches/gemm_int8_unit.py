"""Products of bytes in the matrix unit: four sums of 16 x 16 from two tiles of rows and two of
weights.

In: a program under way, packed weights. Out: the statements of one call. Never here: a choice.

Tiles of rows come outside, panels inside: results are then written to few rows at a time, and where
they are many, writing them is what takes longest. Where rows are left over, the last tile takes
some of those before it once more; fewer rows than a tile has are copied among rows of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.sketches.planes import rounded
from kernelgen.tile.build import Arg, Build, Memory, cast, fill, minimum, span, value, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Dtype
from kernelgen.tile.matrix import SIDE

UNIT_ISA = ("amx_int8", "amx_tile")
STEP_BYTES = 4 * SIDE
"""Inner places of one word: 16 times four."""


@dataclass(frozen=True)
class Weights:
    """`panels`: i8 (panels x steps, 4 lanes), four inner places of `lanes` columns side by side;
    `sums`: i32 (panels, lanes), of every column; `scale`: f32 (panels, lanes). `ahead`: how many
    rows of `panels` ahead of their use they are fetched, 0 for not at all.
    """

    panels: Memory
    sums: Memory
    scale: Memory
    lanes: int
    steps: int
    ahead: int


def in_unit(
    b: Build, operator: GemmInt8, memory: dict[str, Memory], weights: Weights, vector: int
) -> None:
    """The whole call, for any number of rows; panels of 32 columns."""
    m, a = b.dim("m"), memory["a"]
    kept = b.buffer("tile_sums", "i32", (2 * SIDE, weights.lanes), "private")
    few = b.buffer("few_rows", _dtype(operator), (SIDE, _whole(operator)), "local")
    with b.when(m < SIDE):
        with b.loop("i", 0, SIDE) as i:
            with b.when(i < m):
                _filled_up(b, operator, few, a, i, vector)
            with b.otherwise(), b.loop("j", 0, _whole(operator), vector) as j:
                few[i, span(j, vector)] = fill(0, _dtype(operator), vector)
        with _panels(b, operator, memory, weights, kept) as (p, finish):
            _one_tile(b, weights, few, p, b.let("top", cast("i64", 0)), kept)
            finish(b.dim("top"), m, 2)
    with b.otherwise():
        if operator.k % STEP_BYTES:
            a = b.buffer("filled_rows", _dtype(operator), (m, _whole(operator)), "local")
            with b.parallel("i", 0, m) as i:
                _filled_up(b, operator, a, memory["a"], i, vector)
        pairs = b.let("pairs", m // (2 * SIDE))
        over = _panels(b, operator, memory, weights, kept)
        with b.loop("t", 0, pairs) as t, over as (p, finish):
            top = b.let("top", t * (2 * SIDE))
            _two_tiles(b, weights, a, p, top, kept)
            finish(top, 2 * SIDE, 1)
        over = _panels(b, operator, memory, weights, kept)
        with b.loop("rest", pairs * (2 * SIDE), m, SIDE) as rest, over as (p, finish):
            top = b.let("top", minimum(rest, m - SIDE))
            _one_tile(b, weights, a, p, top, kept)
            finish(top, SIDE, 2)


Finish = Callable[[Expr, Arg, int], None]
"""(first row, rows, parts that each sum came in): what becomes of the sums of a tile."""


@contextmanager
def _panels(
    b: Build, operator: GemmInt8, memory: dict[str, Memory], weights: Weights, kept: Memory
) -> Iterator[tuple[Expr, Finish]]:
    """One panel after the other, with what finishes its sums."""
    lanes, n = weights.lanes, operator.n
    zero = b.let("zero", cast("i32", memory["a_zero"][0]))
    factor = b.let("factor", memory["a_scale"][0])
    with b.parallel("p", 0, -(-n // lanes)) as p:
        less = b.let("less", weights.sums[p, span(0, lanes)] * zero)
        by_column = b.let("by_column", weights.scale[p, span(0, lanes)] * factor)
        column = p * lanes
        across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)

        def finish(top: Expr, rows: Arg, parts: int) -> None:
            with b.loop("r", 0, rows, unroll=2) as r:
                exact = kept[r, span(0, lanes)]
                if parts == 2:
                    exact = exact + kept[r + SIDE, span(0, lanes)]
                memory["out"][top + r, across] = cast("f32", exact - less) * by_column

        yield p, finish


def _two_tiles(b: Build, weights: Weights, a: Memory, p: Expr, top: Expr, kept: Memory) -> None:
    """32 rows: four sums at a time, which hide how long one takes."""
    _clear(b)
    with b.loop("s", 0, weights.steps // SIDE, unroll=2) as s:
        _weights(b, weights, p, s)
        for i in range(2):
            _dots(b, i, a, top + i * SIDE, s)
    _keep(b, kept)


def _one_tile(b: Build, weights: Weights, a: Memory, p: Expr, top: Expr, kept: Memory) -> None:
    """16 rows: sums of even and of odd steps apart, so that there are four again."""
    steps = weights.steps // SIDE
    _clear(b)
    with b.loop("s", 0, steps // 2) as s:
        for i in range(2):
            _weights(b, weights, p, s * 2 + i)
            _dots(b, i, a, top, s * 2 + i)
    if steps % 2:
        _weights(b, weights, p, value(steps - 1))
        _dots(b, 0, a, top, value(steps - 1))
    _keep(b, kept)


_SUMS = (("sum00", "sum01"), ("sum10", "sum11"))


def _clear(b: Build) -> None:
    for row in _SUMS:
        for name in row:
            b.let(name, fill(0, "i32", SIDE, SIDE))


def _weights(b: Build, weights: Weights, p: Expr, s: Expr) -> None:
    at = b.let("step", p * weights.steps + s * SIDE)
    for line in range(2 * SIDE if weights.ahead else 0):
        place = at + (weights.ahead + line // 2), line % 2 * STEP_BYTES
        b.prefetch(weights.panels, place)
    for j in range(2):
        b.let(f"weights{j}", weights.panels[span(at, SIDE), span(j * STEP_BYTES, STEP_BYTES)])


def _dots(b: Build, i: int, a: Memory, top: Expr, s: Expr) -> None:
    rows = b.let(f"rows{i}", a[span(top, SIDE), span(s * STEP_BYTES, STEP_BYTES)])
    for j, name in enumerate(_SUMS[i]):
        b.let(name, word("dot_i8", name, rows, f"weights{j}"))


def _keep(b: Build, kept: Memory) -> None:
    for i, row in enumerate(_SUMS):
        for j, name in enumerate(row):
            kept[span(i * SIDE, SIDE), span(j * SIDE, SIDE)] = b.dim(name)


def _dtype(operator: GemmInt8) -> Dtype:
    return "i8" if operator.signed else "u8"


def _whole(operator: GemmInt8) -> int:
    return rounded(operator.k, STEP_BYTES)


def _filled_up(b: Build, operator: GemmInt8, to: Memory, a: Memory, i: Expr, vector: int) -> None:
    """Row i of the activations in whole steps, zero beyond k."""
    with b.loop("j", 0, _whole(operator), vector) as j:
        to[i, span(j, vector)] = a[i, span(j, vector, operator.k - j)]
