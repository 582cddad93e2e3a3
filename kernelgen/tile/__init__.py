"""The tile IR: programs over small tiles that become C for every CPU, and run in NumPy to be
debugged.

In: sizes and choices. Out: checked programs. Never here: C, clocks, what an operator means.
"""

from __future__ import annotations

from kernelgen.tile.build import Build
from kernelgen.tile.check import check
from kernelgen.tile.interpret import Fault, interpret
from kernelgen.tile.ir import Kernel, TileError
from kernelgen.tile.text import parse, text

__all__ = ["Build", "Fault", "Kernel", "TileError", "check", "interpret", "parse", "text"]
