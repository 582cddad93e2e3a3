"""Schedules become C here: readable text with GCC vector extensions, no intrinsics header.

In: an operator and a schedule. Out: one C translation unit with the judged interface
(`packed_bytes`, `prepare`, `scratch_bytes`, `kernel`) and the compiler flags it needs.
Never here: running a compiler, timing, choosing a schedule.
"""

from kernelgen.emit.model import MODEL, model_source
from kernelgen.emit.part import ERRORS
from kernelgen.emit.unit import flags, source

__all__ = ["ERRORS", "MODEL", "flags", "model_source", "source"]
