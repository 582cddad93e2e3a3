"""What a search cost: every compile, judgement and measurement second with its price, failed ones
too.

In: seconds as they are spent. Out: `ledger.jsonl`, one line per booking, and the total as exact
money.
Never here: rounding (an invoice rounds, once), a decision.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

Work = Literal["compile", "judge", "share", "model_build", "model_gate", "machine"]

SECONDS_PER_HOUR = Decimal(3600)


@dataclass(frozen=True)
class Booking:
    """`outcome` is the judge's reason or "done"; `seconds` are wall seconds on one core."""

    operator: str
    work: Work
    outcome: str
    seconds: float


class Ledger:
    """Appends bookings to a file as they happen, so a killed search has paid for what it used."""

    def __init__(self, path: Path, price_per_core_hour: Decimal, currency: str) -> None:
        if price_per_core_hour < 0:
            raise ValueError(f"price_per_core_hour: got {price_per_core_hour}, wanted 0 or more")
        self.path = path
        self.price_per_core_hour = price_per_core_hour
        self.currency = currency
        self.seconds = Decimal(0)
        self.cost = Decimal(0)
        path.parent.mkdir(parents=True, exist_ok=True)

    def book(self, booking: Booking) -> None:
        seconds = Decimal(f"{booking.seconds:.6f}")
        cost = seconds * self.price_per_core_hour / SECONDS_PER_HOUR
        self.seconds += seconds
        self.cost += cost
        append_line(
            self.path,
            {
                "operator": booking.operator,
                "work": booking.work,
                "outcome": booking.outcome,
                "seconds": str(seconds),
                "price_per_core_hour": str(self.price_per_core_hour),
                "currency": self.currency,
                "cost": str(cost),
            },
        )


def append_line(path: Path, data: dict[str, object]) -> None:
    """One JSON line, on disk before this returns."""
    line = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
    with path.open("ab") as file:
        if file.tell() and not _ends_a_line(path):
            file.write(b"\n")  # a run was killed in the middle of its last line
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
