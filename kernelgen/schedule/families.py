"""The axes of every operator family, their default, and what makes a combination illegal.

In: operator and machine. Out: `SearchSpace` records. Never here: measured knowledge about one
machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kernelgen.emit.tiles import ISA, LANES, SIDE
from kernelgen.emit.vectors import GELU
from kernelgen.machine import Machine, vector_floats
from kernelgen.ops import GemmBias, GemmBiasGelu, Operator
from kernelgen.ops.gemm import GemmBiasResidualLayernorm
from kernelgen.schedule.schedule import ScheduleError, Value
from kernelgen.schedule.space import SearchSpace


def space_of(operator: Operator, machine: Machine) -> SearchSpace:
    """The schedules of `operator` on `machine`; raises `ScheduleError` for an unknown family."""
    if isinstance(operator, GemmBias):
        return _gemm(operator, machine)
    if operator.family == "text_encoder":
        return _model(operator, machine)
    raise ScheduleError(f"{operator.name}: no schedule space for family {operator.family!r}")


def widths(machine: Machine) -> tuple[int, ...]:
    """Vector widths in floats that this machine runs at full speed, narrow to wide."""
    widest = vector_floats(machine.isa)
    return tuple(width for width in (8, 16) if width <= max(widest, 8))


def has_tiles(machine: Machine) -> bool:
    """Whether the machine has a matrix unit for bfloat16."""
    return set(ISA) <= set(machine.isa)


def registers(vector: int, machine: Machine) -> int:
    """Vector registers at that width: AVX-512 has 32 (for its narrow forms too), AVX2 16."""
    return 32 if "avx512vl" in machine.isa and vector >= 16 else 16


def _number(choices: Mapping[str, Value], axis: str) -> int:
    return cast("int", choices[axis])


WITHOUT_MATRIX_UNIT = "without the matrix unit"
"""A start of its own: cores may share a unit, and one that others keep busy is no gain."""

_BLOCKS = (24, 48, 64, 96, 128, 192, 256, 384, 768)
_USUAL_BLOCK = 192


def _block(k: int, machine: Machine) -> int:
    """Rows of a block to begin with: on the matrix unit its split (6 bytes a value) takes at most
    half of the second-level cache.
    """
    if not has_tiles(machine):
        return _USUAL_BLOCK
    fits = [rows for rows in _BLOCKS if rows * k * 6 * 2 <= machine.l2_bytes]
    return min(_USUAL_BLOCK, max(fits, default=_BLOCKS[0]))


def _gemm(operator: GemmBias, machine: Machine) -> SearchSpace:
    normed = isinstance(operator, GemmBiasResidualLayernorm)
    wide = widths(machine)[-1]
    squared = operator.k % SIDE == 0 and operator.n % SIDE == 0
    axes: dict[str, tuple[Value, ...]] = {
        "vector": widths(machine),
        "mr": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 20, 24, 28),
        "nr": (1, 2, 3, 4, 6),
        "ku": (1, 2, 4),
        "rows": _BLOCKS,
        "order": ("panel", "rows"),
        # Rows from which the matrix unit takes over; 0 is never.
        "tiles": (0, 9, 17, 25, 33, 49, 65, 97) if has_tiles(machine) else (0,),
        "tail": ("balanced", "last"),
        "prefetch": (0, 256, 512, 1024, 2048, 4096, 8192),
        "fetch": ("l1", "l2"),
    }
    mr, nr = (6, 2) if wide < LANES else (8, 3) if operator.n % (3 * LANES) == 0 else (12, 2)
    start: dict[str, Value] = {
        "vector": wide,
        "mr": mr,
        "nr": nr,
        "ku": 1,
        "rows": _block(operator.k, machine),
        "order": "panel",
        "tiles": LANES + 1 if squared and has_tiles(machine) else 0,
        "tail": "balanced",
        "prefetch": 4096,
        "fetch": "l2",
    }
    if isinstance(operator, GemmBiasGelu):
        axes["gelu"] = tuple(sorted(GELU))
        start["gelu"] = "poly13"

    def rule(choices: Mapping[str, Value]) -> str | None:
        vector, mr, nr = (_number(choices, axis) for axis in ("vector", "mr", "nr"))
        if operator.n % (nr * vector):
            return f"nr: {nr} vectors of {vector} do not divide n={operator.n} evenly"
        if normed and operator.n % vector:
            return f"vector: {vector} does not divide n={operator.n} evenly"
        if choices["tiles"] and not squared:
            return f"tiles: {operator.k} x {operator.n} is not made of squares of {SIDE}"
        if choices["tiles"] and vector != LANES:
            return f"tiles: the matrix unit takes vectors of {LANES}, got vector={vector}"
        if operator.k % _number(choices, "ku"):
            return f"ku: {choices['ku']} does not divide k={operator.k} evenly"
        have = registers(vector, machine)
        need = mr * nr + nr + 1
        if need > have:
            return f"mr, nr: {mr} x {nr} sums need {need} registers, the machine has {have}"
        if mr * nr < 4:
            return f"mr, nr: {mr} x {nr} sums cannot hide the latency of a multiply-add, wanted 4"
        if _number(choices, "rows") < mr:
            return f"rows: {choices['rows']} is less than one tile of mr={mr}"
        return None

    others = {WITHOUT_MATRIX_UNIT: {**start, "tiles": 0, "rows": _USUAL_BLOCK}}
    return SearchSpace(operator.name, axes, start, rule, others)


def _model(operator: Operator, machine: Machine) -> SearchSpace:
    axes: dict[str, tuple[Value, ...]] = {"rows": (48, 72, 96, 128, 160, 192, 256, 320, 384, 512)}
    start: dict[str, Value] = {"rows": 2 * _USUAL_BLOCK if has_tiles(machine) else _USUAL_BLOCK}
    return SearchSpace(operator.name, axes, start, lambda choices: None)
