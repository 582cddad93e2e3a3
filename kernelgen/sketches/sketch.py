"""What a sketch is, and the check that its program has the operator's arguments.

In: an operator, a schedule. Out: a kernel that takes and gives what the operator says. Never here:
any one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from kernelgen.machine import Machine, vector_floats
from kernelgen.ops.operator import Operator, Role, symbol
from kernelgen.schedule.schedule import Schedule, ScheduleError, Value
from kernelgen.schedule.space import SearchSpace
from kernelgen.tile.build import Build, Memory
from kernelgen.tile.ir import Dtype, Kernel

DTYPE: dict[str, Dtype] = {
    "float32": "f32",
    "int64": "i64",
    "int32": "i32",
    "int8": "i8",
    "uint8": "u8",
}


@dataclass(frozen=True)
class Sketch:
    """`program(operator, schedule)` is the tile program, `space(operator, machine)` the schedules
    it takes. Every space has the axis `vector`, the lanes of float32 in one register.
    """

    family: str
    program: Callable[[Any, Schedule], Kernel]
    space: Callable[[Any, Machine], SearchSpace]


def fitted(sketch: Sketch, operator: Operator, schedule: Schedule) -> Kernel:
    """The program of `operator` under `schedule`. Raises `ScheduleError` when its arguments are
    not the operator's, in number, order, name or dtype.
    """
    kernel = sketch.program(operator, schedule)
    roles: tuple[Role, ...] = ("input", "weight", "output")
    for role in roles:
        got = [(buffer.name, buffer.dtype) for buffer in kernel.by_role(role)]
        want = [(tensor.name, DTYPE[tensor.dtype]) for tensor in operator.by_role(role)]
        if got != want:
            raise ScheduleError(f"{operator.name}: {role}s of its sketch: got {got}, wanted {want}")
    if kernel.dims != operator.dims:
        raise ScheduleError(f"{operator.name}: dims: got {kernel.dims}, wanted {operator.dims}")
    return kernel


def begin(
    operator: Operator, *, flat: Mapping[str, Sequence[str | int]] | None = None
) -> tuple[Build, dict[str, Memory]]:
    """A program with the operator's dims and arguments, and its buffers by name.

    `flat` gives arguments another shape of the same elements, such as ("n", 8, "h*w").
    """
    build = Build(operator.name, operator.dims)
    memory: dict[str, Memory] = {}
    for tensor in operator.tensors:
        shape = (flat or {}).get(tensor.name, tensor.shape)
        sizes = [_size(build, size) for size in shape]
        memory[tensor.name] = build.buffer(tensor.name, DTYPE[tensor.dtype], sizes, tensor.role)
    return build, memory


def _size(build: Build, size: str | int) -> Any:
    if isinstance(size, int):
        return size
    left, star, right = size.partition("*")
    if star and not left.isdigit():
        return build.dim(left) * build.dim(right)
    factor, name, extra = symbol(size)
    return build.dim(name) * factor + extra


def room(choices: Mapping[str, Value], rows: str, vectors: str) -> int:
    """Vector registers that a tile of sums takes, with one row of operands and one to spare."""
    high, wide = cast("int", choices[rows]), cast("int", choices[vectors])
    return high * wide + wide + 1


def widths(machine: Machine) -> tuple[int, ...]:
    """Vector widths in floats that the machine runs, narrow to wide; 4 everywhere."""
    return tuple(width for width in (4, 8, 16) if width <= max(4, vector_floats(machine.isa)))
