"""One reason why a folder is refused.

In: a place and a sentence. Out: a record that prints on one line. Nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """``path`` is relative to the checked folder, "." for the folder itself."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"
