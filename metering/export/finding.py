"""What a check found in a file.

In: nothing. Out: records. Never here: a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

__all__ = ["Checked", "Finding"]


@dataclass(frozen=True)
class Finding:
    """What is wrong and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Checked:
    """One file as read: its format, its rows as the format counts them, what is wrong.

    `invoices` is what the file's own rows make of each document, where rows can tell.
    """

    format: str
    rows: int
    findings: Sequence[Finding]
    invoices: Mapping[str, Decimal] = field(default_factory=dict)
