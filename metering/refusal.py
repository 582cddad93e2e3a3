"""Refusals: how this room says no.

In: the field, what it held, what it must hold, what to do next.
Out: one exception type that every reader and every pure function of the money half raises.
Never here: a default that hides a bad value.
"""

from __future__ import annotations

__all__ = ["Refusal"]


class Refusal(ValueError):
    """A value that cannot be used. `str()` is one line fit for a person."""

    def __init__(self, field: str, got: object, wanted: str, next_step: str = "") -> None:
        self.field = field
        self.got = str(got)
        self.wanted = wanted
        self.next_step = next_step
        line = f"{field}: got {_short(self.got)}; wanted {wanted}"
        super().__init__(f"{line}; {next_step}" if next_step else line)

    def inside(self, parent: str) -> Refusal:
        """The same refusal seen from the object that holds the field."""
        return Refusal(f"{parent}.{self.field}", self.got, self.wanted, self.next_step)


def _short(text: str) -> str:
    """At most 120 characters on one line: input must not flood a terminal or a log."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."
