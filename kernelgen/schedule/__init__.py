"""The choices that leave an operator's meaning alone, as data that can be printed, replayed,
mutated and refused.

In: an operator and a machine. Out: `Schedule` records and the `SearchSpace` they come from.
Never here: C text, timing, knowledge of which schedule is fast on which machine beyond a sane
default.
"""

from kernelgen.schedule.schedule import Schedule, ScheduleError
from kernelgen.schedule.space import SearchSpace, space

__all__ = ["Schedule", "ScheduleError", "SearchSpace", "space"]
