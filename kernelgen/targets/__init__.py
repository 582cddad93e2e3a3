"""The kinds of hardware kernels are written for, and what this machine can do for each: compile,
run, verify, cost, measure.

`hardware` describes them as data, `toolchain` compiles and disassembles, `emulate` runs foreign
code under qemu, `cost` asks a scheduling model, `proof` puts these together, `ability` says what is
possible here and what is missing; `figures` keeps measured, counted and modelled numbers apart.

    >>> from kernelgen.targets import find, prove
    >>> prove(operator, schedule, find("riscv64-rvv"), dims).reason
    'accepted'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelgen.targets.hardware import TARGETS, Target, find

if TYPE_CHECKING:
    from kernelgen.targets.proof import Proof, default_schedule, prove

__all__ = ["TARGETS", "Proof", "Target", "default_schedule", "find", "prove"]


def __getattr__(name: str) -> object:
    # On first use: `kernelgen.machine`, which proofs import, compiles its loops through this room.
    if name not in ("Proof", "default_schedule", "prove"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernelgen.targets import proof

    return getattr(proof, name)
