"""Products of bytes on byte dot products, exact in int32; scales on the last value.

In: a `GemmInt8` and a schedule. Out: its program. Never here: quantisation.

Four inner places of a column lie side by side, so that one `dot4` takes them. The zero point comes
off once per result: zero times the sum of the column. Activations that are signed, or whose rows
are no whole number of four, are copied once; signed ones with 128 added, and so is their zero. From
`tiles` rows on (0: never) the matrix unit takes over, on the same packed weights.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.machine import Machine
from kernelgen.ops.gemm_int8 import GemmInt8
from kernelgen.schedule.resources import registers
from kernelgen.schedule.schedule import Schedule, ScheduleError, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.sketches.gemm_int8_unit import STEP_BYTES, UNIT_ISA, Weights, in_unit
from kernelgen.sketches.planes import STEP, by_columns, each_column, rounded, row_blocks
from kernelgen.sketches.sketch import Sketch, begin, widths
from kernelgen.tile.build import Build, Memory, cast, fill, minimum, span, word
from kernelgen.tile.build import Value as Expr
from kernelgen.tile.ir import Kernel
from kernelgen.tile.matrix import SIDE


def pack_bytes(
    b: Build, w: Memory, k: int, n: int, lanes: int, *, by_row: bool, multiple: int = 4
) -> Memory:
    """Signed weights as i8 (panels x k / 4, 4 lanes): four inner places of every column side by
    side, zero beyond k and n; k is filled up to a `multiple`. `by_row`: the weights come as [k, n],
    else as [n, k].
    """
    steps = rounded(k, multiple) // 4
    panels = -(-n // lanes)
    data = b.buffer("panels", "i8", (panels * steps, 4 * lanes), "packed")
    with each_column(b, n, lanes, steps) as (at, s, o, column):
        inner = span(s * 4, 4, k - s * 4)
        with b.when(column < n):
            data[at, span(o * 4, 4)] = w[inner, column] if by_row else w[column, inner]
        with b.otherwise():
            data[at, span(o * 4, 4)] = fill(0, "i8", 4)
    return data


def column_sums(
    b: Build, w: Memory, k: int, n: int, lanes: int, group: int, *, by_row: bool
) -> Memory:
    """Sums of the columns over every group, i32 (panels x groups, lanes), zero beyond n."""
    panels, groups = -(-n // lanes), -(-k // group)
    memory = b.buffer("column_sums", "i32", (panels * groups, lanes), "packed")
    with each_column(b, n, lanes, groups) as (at, g, o, column):
        total = b.let("total", cast("i32", 0))
        with b.when(column < n):
            end = minimum((g + 1) * group, k)
            with b.loop("kk", g * group, end) as kk:
                one = w[kk, column] if by_row else w[column, kk]
                b.let("total", total + cast("i32", one))
        memory[at, o] = total
    return memory


def _program(operator: GemmInt8, schedule: Schedule) -> Kernel:
    lanes = schedule.number("nr") * schedule.number("vector")
    start = schedule.number("tiles")
    if start and lanes != 2 * SIDE:
        raise ScheduleError(
            f"{operator.name}: tiles: got panels of {lanes} columns, wanted {2 * SIDE}"
        )
    b, memory = begin(operator)
    ahead = schedule.number("prefetch") // (4 * lanes)
    weights = _packed(b, operator, memory, lanes, STEP_BYTES if start else 4, ahead)
    if not start:
        with b.run():
            _on_vectors(b, operator, schedule, memory, weights)
        return b.kernel()
    with b.run():
        with b.when(b.dim("m") >= start):
            in_unit(b, operator, memory, weights, schedule.number("vector"))
        with b.otherwise():
            _on_vectors(b, operator, schedule, memory, weights)
    return b.kernel()


def _packed(
    b: Build, operator: GemmInt8, memory: dict[str, Memory], lanes: int, multiple: int, ahead: int
) -> Weights:
    k, n, w = operator.k, operator.n, memory["w"]
    return Weights(
        pack_bytes(b, w, k, n, lanes, by_row=True, multiple=multiple),
        column_sums(b, w, k, n, lanes, k, by_row=True),
        by_columns(b, "scales", n, lanes, 1, lambda column, group: memory["w_scale"][column]),
        lanes,
        rounded(k, multiple) // 4,
        ahead,
    )


def _on_vectors(
    b: Build,
    operator: GemmInt8,
    schedule: Schedule,
    memory: dict[str, Memory],
    weights: Weights,
) -> None:
    v, mr = schedule.number("vector"), schedule.number("mr")
    k, n, lanes = operator.k, operator.n, weights.lanes
    bytes_of_a = memory["a"]
    if operator.signed or k % 4:
        bytes_of_a = _copied(b, operator, memory["a"], v)

    def tile(p: Expr, top: Expr, r: int) -> None:
        acc = b.let(f"acc{r}", fill(0, "i32", r, lanes))
        with b.loop("s", 0, rounded(k, 4) // 4, unroll=schedule.number("ku")) as s:
            at = b.let("at", p * weights.steps + s)
            if weights.ahead:
                for line in range(0, 4 * lanes, 64):
                    b.prefetch(weights.panels, (at + weights.ahead, line))
            four = bytes_of_a[span(top, r), span(s * 4, 4)]
            acc = b.let(f"acc{r}", word("dot4", acc, four, weights.panels[at, span(0, 4 * lanes)]))
        zero = b.let("zero", cast("i32", memory["a_zero"][0]) + (128 if operator.signed else 0))
        factor = b.let("factor", memory["a_scale"][0])
        exact = acc - weights.sums[p, span(0, lanes)] * zero
        column = p * lanes
        across = span(column, lanes) if n % lanes == 0 else span(column, lanes, n - column)
        by_column = b.let("by_column", weights.scale[p, span(0, lanes)] * factor)
        memory["out"][span(top, r), across] = cast("f32", exact) * by_column

    row_blocks(b, -(-n // lanes), mr, schedule.number("rows"), tile)


def _copied(b: Build, operator: GemmInt8, a: Memory, vector: int) -> Memory:
    """The activations as unsigned bytes in rows of whole vectors."""
    k, m = operator.k, b.dim("m")
    copy = b.buffer("unsigned_a", "u8", (m, rounded(k, STEP)), "local")
    with b.parallel("i", 0, m) as i, b.loop("j", 0, rounded(k, STEP), vector) as j:
        x = a[i, span(j, vector, k - j)]
        copy[i, span(j, vector)] = cast("u8", cast("i32", x) + 128) if operator.signed else x
    return copy


def _space(operator: GemmInt8, machine: Machine) -> SearchSpace:
    wide = widths(machine)
    unit = set(UNIT_ISA) <= set(machine.isa)
    room = registers(wide[-1], machine)
    axes: dict[str, tuple[Value, ...]] = {
        "vector": wide,
        "mr": (1, 2, 3, 4, 6, 8, 10, 12, 14),
        "nr": (1, 2, 3, 4),
        "ku": (1, 2, 4),
        "rows": (48, 96, 192, 384, 768),
        "prefetch": (0, 512, 1024, 2048, 4096),
        "tiles": (0, 1, 4, 8, 16, 32) if unit else (0,),
    }
    start: dict[str, Value] = {
        "vector": wide[-1],
        "mr": 12 if room == 32 else 4,
        "nr": 2,
        "ku": 2,
        "rows": 384,
        "prefetch": 1024,
        "tiles": 16 if unit else 0,
    }

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, mr, nr = (int(choices[axis]) for axis in ("vector", "mr", "nr"))
        free = registers(vector, machine)
        if mr * nr + nr + 1 > free:
            return f"mr: {mr} x {nr} sums and {nr} weights need more than {free} registers"
        if choices["tiles"] and vector * nr != 2 * SIDE:
            return f"tiles: panels of {vector * nr} columns, the matrix unit takes {2 * SIDE}"
        return None

    return SearchSpace(operator.name, axes, start, rule)


GEMM_INT8 = Sketch("gemm_int8", _program, _space)
