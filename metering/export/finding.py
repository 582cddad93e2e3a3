"""What a check found in a file.

In: nothing. Out: records. Never here: a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from metering.refusal import Refusal

__all__ = ["Checked", "Finding"]


@dataclass(frozen=True)
class Finding:
    """What is wrong and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"

    @classmethod
    def of(cls, refusal: Refusal) -> Finding:
        """A refusal as a finding: the field, then the rest of the line."""
        return cls(refusal.field, str(refusal).removeprefix(f"{refusal.field}: "))


@dataclass(frozen=True)
class Checked:
    """One file as read: its format, its rows as the format counts them, what is wrong.

    `invoices` is what the file's own rows make of each document, where rows can tell.
    """

    format: str
    rows: int
    findings: Sequence[Finding]
    invoices: Mapping[str, Decimal] = field(default_factory=dict)
