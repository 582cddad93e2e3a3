"""Sequences of unequal length laid end to end, as the programs over them begin.

In: a program under way, its `offsets`. Out: checks, first row and length of a sequence. Never here:
any one operator.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelgen.emit.part import BAD_OFFSETS
from kernelgen.tile.build import Build, Memory, Value


def check_offsets(b: Build, offsets: Memory) -> None:
    """Ends the run unless offsets begin at 0, rise and end at the token count."""
    n = b.dim("n")
    b.check(n >= 1, BAD_OFFSETS)
    b.check(offsets[0].equals(0), BAD_OFFSETS)
    b.check(offsets[n].equals(b.dim("tokens")), BAD_OFFSETS)
    with b.loop("i", 0, n) as i:
        b.check(offsets[i] < offsets[i + 1], BAD_OFFSETS)


def sequences(b: Build, offsets: Memory) -> Iterator[tuple[Value, Value, Value]]:
    """Number, first row and length of every sequence; they are independent of each other."""
    with b.parallel("s", 0, b.dim("n")) as s:
        first = b.let("first", offsets[s])
        yield s, first, b.let("length", offsets[s + 1] - first)
