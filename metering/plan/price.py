"""The price book: what one core hour costs, in which currency, since when, by whose word.

In: a contract's or a cloud bill's rate as decimal text.
Out: a frozen, hashed record that savings lines cite.
Never here: looking a price up, converting a currency.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from metering.canonical import digest
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields, instant_text
from metering.money import check_currency
from metering.refusal import Refusal

__all__ = ["PriceBook"]


@dataclass(frozen=True)
class PriceBook:
    """Price of one core for one hour. `source` says where the number comes from."""

    currency: str
    price_per_core_hour: Decimal
    valid_from: datetime
    source: str

    def __post_init__(self) -> None:
        check_currency(self.currency, "pricebook.currency")
        price = parse_decimal(self.price_per_core_hour, "pricebook.price_per_core_hour")
        if price < 0:
            raise Refusal("pricebook.price_per_core_hour", to_text(price), "zero or more")
        object.__setattr__(self, "price_per_core_hour", price)
        instant_text(self.valid_from)
        if not self.source:
            raise Refusal("pricebook.source", "nothing", "where the price comes from")

    @property
    def price_per_core_second(self) -> Decimal:
        """Price of one core for one second, 50 digits."""
        with exact():
            return self.price_per_core_hour / 3600

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, object]:
        """JSON object with the price as text."""
        return {
            "schema": "ignition.pricebook.v1",
            "currency": self.currency,
            "price_per_core_hour": to_text(self.price_per_core_hour),
            "valid_from": instant_text(self.valid_from),
            "source": self.source,
        }

    @classmethod
    def from_json(cls, value: object) -> PriceBook:
        """Inverse of `to_json`."""
        fields = Fields(value, "pricebook")
        fields.text("schema", ["ignition.pricebook.v1"])
        book = cls(
            currency=fields.text("currency"),
            price_per_core_hour=fields.decimal("price_per_core_hour"),
            valid_from=fields.instant("valid_from"),
            source=fields.text("source"),
        )
        fields.finish()
        return book
