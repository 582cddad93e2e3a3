"""Our own small programs, compiled once per version of their source and compiler.

In: `harness.c` and `matrix.c` next to this file. Out: executables in the user's cache.
Never here: candidate code.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kernelgen.targets import guard
from kernelgen.targets.compiler import compiler, own_program

SOURCE = Path(__file__).with_name("harness.c")
MATRIX = Path(__file__).with_name("matrix.c")
PLAIN = ("-O2", "-Wall")
SANITIZED = ("-O1", "-g", "-DSANITIZE", "-fsanitize=address,undefined")
LIBRARIES = ("-ldl", "-Wl,--no-as-needed", "-lm")
"""The harness brings the mathematics library along, whether it uses it or not: kernels may."""


@cache
def harness(*, sanitize: bool = False) -> Path:
    """Path of the harness. Raises `OSError` with the compiler's words if it cannot be built."""
    flags = SANITIZED if sanitize else PLAIN
    return own_program(SOURCE, (compiler(), *flags), LIBRARIES)


_MATRIX_SEEN: list[float] = []


def matrix_unit_gflops(*, again: bool = False) -> float:
    """Measured bfloat16 GFLOP/s of this core's matrix unit, the best of all measurements so far; 0
    where there is none to use. `again` measures once more: a neighbour may have been on the unit.
    """
    if again or not _MATRIX_SEEN:
        program = own_program(MATRIX, (compiler(), *PLAIN), LIBRARIES)
        done = guard.run([str(program)], limit_s=30)
        _MATRIX_SEEN.append(float(done.stdout) if done.returncode == 0 else 0.0)
    return max(_MATRIX_SEEN)
