"""What a machine offers to a schedule: vector registers, a matrix unit.

In: a machine. Out: numbers and names. Never here: a choice; measured knowledge about one machine.
"""

from __future__ import annotations

from kernelgen.machine import Machine

MATRIX_ISA = ("amx_bf16", "amx_tile")
"""What a machine's instruction set holds when it has a matrix unit for bfloat16."""

WITHOUT_MATRIX_UNIT = "without the matrix unit"
"""A start of its own: cores may share a unit, and one that others keep busy is no gain."""


def has_tiles(machine: Machine) -> bool:
    """Whether the machine has a matrix unit for bfloat16."""
    return set(MATRIX_ISA) <= set(machine.isa)


def registers(vector: int, machine: Machine) -> int:
    """Vector registers at that width: AVX-512 has 32 (for its narrow forms too), AVX2 16."""
    return 32 if "avx512vl" in machine.isa and vector >= 16 else 16
