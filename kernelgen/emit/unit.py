"""One operator, one schedule, one C file behind the judged interface.

In: operator and schedule. Out: C text and flags. Never here: a compiler call.
"""

from __future__ import annotations

from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule.schedule import Schedule


def source(operator: Operator, schedule: Schedule) -> str:
    """The C translation unit of `operator` under `schedule`; raises `ScheduleError` for an illegal one."""
    raise NotImplementedError


def flags(machine: Machine, schedule: Schedule) -> tuple[str, ...]:
    """Compiler flags: the ISA level that the schedule's vector width needs, and the optimisation level."""
    raise NotImplementedError
