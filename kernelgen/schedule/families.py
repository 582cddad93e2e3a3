"""The axes of every operator family, their default, and what makes a combination illegal.

In: operator and machine. Out: `SearchSpace` records. Never here: measured knowledge about one
machine.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops import Operator
from kernelgen.schedule.schedule import ScheduleError, Value
from kernelgen.schedule.space import SearchSpace


def space_of(operator: Operator, machine: Machine) -> SearchSpace:
    """The schedules of `operator` on `machine`; raises `ScheduleError` for an unknown family."""
    if operator.family == "text_encoder":
        return _model(operator, machine)
    raise ScheduleError(f"{operator.name}: no schedule space for family {operator.family!r}")


MATRIX_ISA = ("amx_bf16", "amx_tile")
"""What a machine's instruction set holds when it has a matrix unit for bfloat16."""


def has_tiles(machine: Machine) -> bool:
    """Whether the machine has a matrix unit for bfloat16."""
    return set(MATRIX_ISA) <= set(machine.isa)


def registers(vector: int, machine: Machine) -> int:
    """Vector registers at that width: AVX-512 has 32 (for its narrow forms too), AVX2 16."""
    return 32 if "avx512vl" in machine.isa and vector >= 16 else 16


WITHOUT_MATRIX_UNIT = "without the matrix unit"
"""A start of its own: cores may share a unit, and one that others keep busy is no gain."""

_USUAL_BLOCK = 192


def _model(operator: Operator, machine: Machine) -> SearchSpace:
    axes: dict[str, tuple[Value, ...]] = {"rows": (48, 72, 96, 128, 160, 192, 256, 320, 384, 512)}
    start: dict[str, Value] = {"rows": 2 * _USUAL_BLOCK if has_tiles(machine) else _USUAL_BLOCK}
    return SearchSpace(operator.name, axes, start, lambda choices: None)
