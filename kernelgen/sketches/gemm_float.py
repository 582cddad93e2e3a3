"""Float32 products: row blocks, panels, tiles, and what follows while rows are hot.

In: a product's operator and a schedule. Out: its program. Never here: the arithmetic of a tile, the
meaning of an epilogue.

Few rows are one tile, so that the weights pass once, in address order. More rows are cut into row
blocks of `rows`; within a block every panel is read once and used by all its tiles (`order=panel`),
or every tile walks all panels (`order=rows`). Tiles are nearly equal in height: no tile is so thin
that its few sums wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kernelgen.machine import Machine
from kernelgen.schedule.resources import WITHOUT_MATRIX_UNIT, has_tiles, registers
from kernelgen.schedule.schedule import Schedule, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemm_epilogue import Epilogue, Product, epilogue
from kernelgen.sketches.gemm_matrix import STEP, Unit
from kernelgen.sketches.gemm_plain import Ahead, Panels, pack
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, minimum
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel

FROM = 17
"""Rows from which the matrix unit takes over to begin with: one more than the tallest lone tile."""

DEEP = 8 * STEP
"""Shorter sums do not repay the splitting of their rows, unless a search finds that they do."""

SPLIT_BYTES = 6
"""Bytes of a float32 split into three bfloat16."""

_BLOCKS = (24, 48, 96, 128, 192, 256, 384)


def _program(operator: Product, schedule: Schedule) -> Kernel:
    v, nr = schedule.number("vector"), schedule.number("nr")
    k, n, lanes = operator.k, operator.n, nr * v
    b, memory = begin(operator)
    start = schedule.number("tiles")
    deep = -(-k // STEP) * STEP if start else k
    weights = pack(b, memory["w"], k, n, lanes, deep)
    after = epilogue(b, operator, memory, v, max(lanes, STEP))
    distance = schedule.number("prefetch") // 4
    cache = 1 if schedule.word("fetch") == "l1" else 2
    unroll = schedule.number("ku")
    own = Panels(b, memory["a"], weights, k, deep, lanes, v, unroll, distance, cache)
    if not start:
        with b.run():
            _blocks(b, own, after, schedule)
        return b.kernel()
    unit = Unit.of(b, own, after, schedule.number("rows"))
    with b.run():
        with b.when(b.dim("m") >= start):
            unit.blocks()
        with b.otherwise():
            _blocks(b, own, after, schedule)
    return b.kernel()


def _blocks(b: Build, own: Panels, after: Epilogue, schedule: Schedule) -> None:
    block = schedule.number("rows")
    with b.loop("first", 0, b.dim("m"), block) as first:
        count = b.let("count", minimum(b.dim("m") - first, block))
        _tiles(b, own, after, schedule, first, count)
        after.norm(b, first, count)


@contextmanager
def _panels(b: Build, own: Panels, n: int) -> Iterator[None]:
    with b.parallel("p", 0, -(-n // own.lanes)) as p:
        b.let("panel", p * own.deep)
        b.let("column", p * own.lanes)
        yield


def _tiles(
    b: Build, own: Panels, after: Epilogue, schedule: Schedule, first: Expr, count: Expr
) -> None:
    mr = schedule.number("mr")
    tiles = b.let("tiles", (count + (mr - 1)) // mr)

    def rows(t: Expr) -> tuple[Expr, Expr]:
        if schedule.word("tail") == "balanced":
            top = b.let("top", first + t * count // tiles)
            return top, b.let("high", first + (t + 1) * count // tiles - top)
        top = b.let("top", first + t * mr)
        return top, b.let("high", minimum(first + count - top, mr))

    def one(top: Expr, high: Expr, ahead: Ahead | None) -> None:
        for r in range(1, mr + 1):
            with b.when(high.equals(r)):
                own.tile(top, r, after, ahead)
        after.bend(b, top, high, b.dim("column"), own.lanes)

    if schedule.word("order") == "panel":
        with _panels(b, own, after.n), b.loop("t", 0, tiles) as t:
            top, high = rows(t)
            one(top, high, own.ahead(tiles, t))
    else:
        with b.parallel("t", 0, tiles) as t:
            top, high = rows(t)
            with _panels(b, own, after.n):
                one(top, high, own.ahead(None, t))


def _space(operator: Product, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    unit = has_tiles(machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "mr": (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16),
        "nr": (1, 2, 3, 4, 6),
        "ku": (1, 2, 4, 8),
        "rows": (24, 48, 96, 128, 192, 256, 384, 768),
        "order": ("panel", "rows"),
        # Rows from which the matrix unit takes over; 0 is never.
        "tiles": (0, 9, 17, 25, 33, 49, 65, 97) if unit else (0,),
        "tail": ("balanced", "last"),
        "prefetch": (0, 512, 1024, 2048, 4096, 8192),
        "fetch": ("l1", "l2"),
    }
    # A tile of 8 x 3, 12 x 2 or 6 x 2 fills 32 or 16 registers and leaves room for weights.
    narrow = registers(wide[-1], machine) == 16
    mr, nr = (6, 2) if narrow else (8, 3) if operator.n % (3 * wide[-1]) == 0 else (12, 2)
    plain: dict[str, Value] = {
        "vector": wide[-1],
        "mr": mr,
        "nr": nr,
        "ku": 1,
        "rows": _block(4 * operator.k, machine.l2_bytes // 2),
        "order": "panel",
        "tiles": 0,
        "tail": "balanced",
        "prefetch": 4096,
        "fetch": "l2",
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, mr, nr = (int(choices[axis]) for axis in ("vector", "mr", "nr"))
        free = registers(vector, machine)
        if mr * nr + nr + 1 > free:
            return f"mr: {mr} x {nr} sums and {nr} weights need more than {free} registers"
        if choices["tiles"] and vector != STEP // 2:
            return f"tiles: the matrix unit takes vectors of {STEP // 2}, got vector={vector}"
        return None

    if not unit or wide[-1] != STEP // 2 or operator.k < DEEP or operator.n < STEP:
        return SearchSpace(operator.name, axes, plain, rule)
    # A second pass over the weights splits them again: take a little more of L2 to save one.
    rows = _block(SPLIT_BYTES * operator.k, machine.l2_bytes * 3 // 5)
    # What is left to multiply-adds is one tall tile of a single strip: it streams weights best.
    start = {**plain, "mr": FROM - 1, "nr": 1, "tiles": FROM, "rows": rows, "fetch": "l1"}
    return SearchSpace(operator.name, axes, start, rule, {WITHOUT_MATRIX_UNIT: plain})


def _block(row_bytes: int, room: int) -> int:
    """The most rows of activations that fit into `room` bytes of cache."""
    return max((rows for rows in _BLOCKS if rows * row_bytes <= room), default=_BLOCKS[0])


GEMM = Sketch("gemm", _program, _space)
GEMM_BIAS = Sketch("gemm_bias", _program, _space)
GEMM_BIAS_GELU = Sketch("gemm_bias_gelu", _program, _space)
GEMM_BIAS_RESIDUAL_LAYERNORM = Sketch("gemm_bias_residual_layernorm", _program, _space)
