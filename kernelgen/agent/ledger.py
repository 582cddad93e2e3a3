"""What a search cost: every compile, judgement, measurement and proposal second with its price, and
every token of a language model; failed ones too.

In: seconds and tokens as they are spent. Out: `ledger.jsonl`, one line per booking, booked to an
operator, a customer and a model, and the total as exact money.
Never here: rounding (an invoice rounds, once), a decision.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

Work = Literal[
    "compile", "judge", "share", "model_build", "model_gate", "machine", "propose", "tokens"
]

SECONDS_PER_HOUR = Decimal(3600)
TOKENS_PER_PRICE = Decimal(1_000_000)


@dataclass(frozen=True)
class Booking:
    """`outcome` is the judge's reason or "done"; `seconds` are wall seconds on one core. Tokens are
    those of one exchange with a language model: `tokens_in` sent to it, `tokens_out` answered.
    """

    operator: str
    work: Work
    outcome: str
    seconds: float
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True)
class TokenPrice:
    """Money per million tokens, in the ledger's currency."""

    sent: Decimal = Decimal(0)
    answered: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        for name in ("sent", "answered"):
            value: Decimal = getattr(self, name)
            if not value.is_finite() or value < 0:
                raise ValueError(f"price per million tokens {name}: got {value}, wanted 0 or more")

    def cost(self, tokens_in: int, tokens_out: int) -> Decimal:
        return (tokens_in * self.sent + tokens_out * self.answered) / TOKENS_PER_PRICE


class Ledger:
    """Appends bookings to a file as they happen, so a killed search has paid for what it used."""

    def __init__(
        self,
        path: Path,
        price_per_core_hour: Decimal,
        currency: str,
        *,
        customer: str = "",
        model: str = "",
        token_price: TokenPrice | None = None,
    ) -> None:
        if not price_per_core_hour.is_finite() or price_per_core_hour < 0:
            raise ValueError(f"price_per_core_hour: got {price_per_core_hour}, wanted 0 or more")
        self.path = path
        self.price_per_core_hour = price_per_core_hour
        self.currency = currency
        self.customer = customer
        self.model = model
        self.token_price = token_price or TokenPrice()
        self.seconds = Decimal(0)
        self.cost = Decimal(0)
        path.parent.mkdir(parents=True, exist_ok=True)

    def book(self, booking: Booking) -> None:
        """Add to the totals, then write the line. Raises `OSError` when it cannot be written; the
        totals hold it even then.
        """
        seconds = Decimal(f"{booking.seconds:.6f}")
        cost = seconds * self.price_per_core_hour / SECONDS_PER_HOUR
        cost += self.token_price.cost(booking.tokens_in, booking.tokens_out)
        self.seconds += seconds
        self.cost += cost
        line: dict[str, object] = {
            "operator": booking.operator,
            "customer": self.customer,
            "model": self.model,
            "work": booking.work,
            "outcome": booking.outcome,
            "seconds": str(seconds),
            "price_per_core_hour": str(self.price_per_core_hour),
            "currency": self.currency,
            "cost": str(cost),
        }
        if booking.work == "tokens":
            line |= {
                "tokens_in": booking.tokens_in,
                "tokens_out": booking.tokens_out,
                "price_per_mtok_in": str(self.token_price.sent),
                "price_per_mtok_out": str(self.token_price.answered),
            }
        append_line(self.path, line)


def append_line(path: Path, data: dict[str, object]) -> None:
    """One JSON line, on disk before this returns, whole or not at all.

    Safe with other processes that append to the same file: one writes at a time. Raises `OSError`
    (a full disk) and leaves the file as it was.
    """
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released on closing, after a kill too
        end = os.fstat(file.fileno()).st_size
        line = text.encode()
        if end and not _ends_a_line(path):
            line = b"\n" + line  # a run was killed in the middle of its last line
        try:
            while line:
                line = line[os.write(file.fileno(), line) :]
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                os.ftruncate(file.fileno(), end)
            raise


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
