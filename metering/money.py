"""Money: exact decimal amounts with their ISO 4217 currency.

In: decimal text, whole numbers or Decimal.
Out: Decimal amounts, quantized to the currency's minor unit, half up, at one named place.
Never here: a float, a currency guessed from a symbol, an amount that is rounded twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Decimal, Inexact, InvalidOperation

from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.refusal import Refusal

__all__ = [
    "CARRIED_PLACES",
    "Money",
    "allocate",
    "apportion",
    "carried",
    "check_currency",
    "exact",
    "floor_to_minor",
    "line_amount",
    "minor_unit",
    "parse_decimal",
    "quantize",
    "to_minor_units",
    "to_text",
]

CARRIED_PLACES = 12
"""Decimal places of an amount on its way to the invoice line (see `carried`)."""

# ISO 4217 minor units that are not 2. Codes withdrawn from circulation are left out.
_MINOR_UNITS = {
    **dict.fromkeys(
        (
            "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI",
            "VND", "VUV", "XAF", "XOF", "XPF",
        ),
        0,
    ),
    **dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3),
    **dict.fromkeys(("CLF", "UYW"), 4),
    **dict.fromkeys(
        (
            "AED", "AFN", "ALL", "AMD", "AOA", "ARS", "AUD", "AWG", "AZN", "BAM", "BBD", "BDT",
            "BMD", "BND", "BOB", "BRL", "BSD", "BTN", "BWP", "BYN", "BZD", "CAD", "CDF", "CHF",
            "CNY", "COP", "CRC", "CUP", "CVE", "CZK", "DKK", "DOP", "DZD", "EGP", "ERN", "ETB",
            "EUR", "FJD", "FKP", "GBP", "GEL", "GHS", "GIP", "GMD", "GTQ", "GYD", "HKD", "HNL",
            "HTG", "HUF", "IDR", "ILS", "INR", "IRR", "JMD", "KES", "KGS", "KHR", "KPW", "KYD",
            "KZT", "LAK", "LBP", "LKR", "LRD", "LSL", "MAD", "MDL", "MGA", "MKD", "MMK", "MNT",
            "MOP", "MRU", "MUR", "MVR", "MWK", "MXN", "MYR", "MZN", "NAD", "NGN", "NIO", "NOK",
            "NPR", "NZD", "PAB", "PEN", "PGK", "PHP", "PKR", "PLN", "QAR", "RON", "RSD", "RUB",
            "SAR", "SBD", "SCR", "SDG", "SEK", "SGD", "SHP", "SLE", "SOS", "SRD", "SSP", "STN",
            "SVC", "SYP", "SZL", "THB", "TJS", "TMT", "TOP", "TRY", "TTD", "TWD", "TZS", "UAH",
            "USD", "UYU", "UZS", "VES", "WST", "XCD", "YER", "ZAR", "ZMW",
        ),
        2,
    ),
}  # fmt: skip


def check_currency(code: object, field: str = "currency") -> str:
    """`code` when it is an ISO 4217 currency in use."""
    if not isinstance(code, str) or code not in _MINOR_UNITS:
        raise Refusal(field, repr(code), "an ISO 4217 code such as EUR", "use the three letters")
    return code


def minor_unit(currency: str) -> int:
    """Decimal places of the currency: EUR 2, JPY 0, KWD 3 (ISO 4217)."""
    return _MINOR_UNITS[check_currency(currency)]


def quantize(amount: Decimal, currency: str) -> Decimal:
    """`amount` at the currency's minor unit, ROUND_HALF_UP (ties away from zero)."""
    return _at_places(amount, minor_unit(currency), ROUND_HALF_UP)


def floor_to_minor(amount: Decimal, currency: str) -> Decimal:
    """Largest amount in whole minor units that is not above `amount`."""
    return _at_places(amount, minor_unit(currency), ROUND_FLOOR)


def carried(amount: Decimal) -> Decimal:
    """`amount` at 12 places: the form in which an unrounded amount is stored and passed on.

    A quotient has no last digit; storing it at a stated length makes a fee computed from a
    stored document equal to the fee computed in memory. It is not the invoice's rounding.
    """
    return _at_places(amount, CARRIED_PLACES, ROUND_HALF_UP)


def to_minor_units(amount: object, currency: str, field: str = "amount") -> int:
    """Whole minor units of an exact amount: '19.99' USD is 1999. Refuses a fraction of one."""
    value = parse_decimal(amount, field)
    with exact():
        units = value.scaleb(minor_unit(currency))
        if units != units.to_integral_value():
            raise Refusal(field, to_text(value), f"whole minor units of {currency}", "round it")
        return int(units)


def line_amount(quantity: object, unit_price: object, currency: str) -> Decimal:
    """Quantity times unit price, rounded once: 55 x 0.067 is 3.685, billed 3.69."""
    with exact():
        product = parse_decimal(quantity, "quantity") * parse_decimal(unit_price, "unit_price")
        return quantize(product, currency)


def allocate(amount: Decimal, weights: Sequence[Decimal | int], currency: str) -> list[Decimal]:
    """Split `amount` over non-negative `weights` by largest remainder; the parts sum exactly.

    Ties go to the earlier part. Sign symmetric: -100 over 1:1:1 mirrors 100 over 1:1:1.
    """
    to_minor_units(amount, currency)
    parsed = [parse_decimal(weight, "weight") for weight in weights]
    if any(weight < 0 for weight in parsed) or sum(parsed, Decimal(0)) == 0:
        raise Refusal("weights", [str(w) for w in parsed], "weights >= 0, one of them above 0")
    with exact():
        total = sum(parsed, Decimal(0))
        return apportion([amount * weight / total for weight in parsed], amount, currency)


def apportion(parts: Sequence[Decimal], total: Decimal, currency: str) -> list[Decimal]:
    """Whole minor units near `parts` (any signs) that sum exactly to `total`.

    Largest remainder: each part is floored, the missing units go to the largest fractions,
    ties to the earlier part. `total` must lie within one minor unit per part of their sum.
    """
    unit = Decimal(1).scaleb(-minor_unit(currency))
    to_minor_units(total, currency)
    with exact():
        if total < 0 or (total == 0 and next((p for p in parts if p), Decimal(0)) < 0):
            mirrored = apportion([-part for part in parts], -total, currency)
            return [-part + Decimal(0) for part in mirrored]
        floors = [floor_to_minor(part, currency) for part in parts]
        missing = int((total - sum(floors, Decimal(0))) / unit)
        if not -len(parts) <= missing <= 2 * len(parts):
            raise Refusal("total", to_text(total), f"about the sum of its {len(parts)} parts")
        order = sorted(range(len(parts)), key=lambda i: (floors[i] - parts[i], i))
        step = unit if missing > 0 else -unit
        if missing < 0:
            order.reverse()
        for turn in range(abs(missing)):
            floors[order[turn % len(order)]] += step
        return floors


def _at_places(amount: Decimal, places: int, rounding: str) -> Decimal:
    if not isinstance(amount, Decimal) or not amount.is_finite():
        raise Refusal("amount", repr(amount), "a finite Decimal", "see parse_decimal")
    with exact() as context:
        context.traps[Inexact] = False
        try:
            rounded = amount.quantize(Decimal(1).scaleb(-places), rounding=rounding)
        except InvalidOperation as error:
            raise Refusal("amount", amount, "an amount of at most 36 digits", "units?") from error
        return abs(rounded) if rounded.is_zero() else rounded


@dataclass(frozen=True, order=False)
class Money:
    """An exact amount in one currency. Adding two currencies is refused, never converted."""

    amount: Decimal
    currency: str

    def __post_init__(self) -> None:
        check_currency(self.currency)
        object.__setattr__(self, "amount", parse_decimal(self.amount))

    @classmethod
    def of(cls, amount: object, currency: str) -> Money:
        """Money of decimal text, int or Decimal."""
        return cls(parse_decimal(amount), currency)

    def rounded(self) -> Money:
        """The same money at its minor unit, half up."""
        return Money(quantize(self.amount, self.currency), self.currency)

    def __add__(self, other: Money) -> Money:
        with exact():
            return Money(self.amount + self._same(other).amount, self.currency)

    def __sub__(self, other: Money) -> Money:
        with exact():
            return Money(self.amount - self._same(other).amount, self.currency)

    def __neg__(self) -> Money:
        with exact():
            return Money(Decimal(0) - self.amount, self.currency)

    def __lt__(self, other: Money) -> bool:
        return self.amount < self._same(other).amount

    def __le__(self, other: Money) -> bool:
        return self.amount <= self._same(other).amount

    def __str__(self) -> str:
        return f"{to_text(self.amount)} {self.currency}"

    def to_json(self) -> dict[str, object]:
        """`{"amount": text, "currency": code}`."""
        return {"amount": to_text(self.amount), "currency": self.currency}

    @classmethod
    def from_json(cls, value: object) -> Money:
        """Inverse of `to_json`."""
        fields = Fields(value, "money")
        money = cls(parse_decimal(fields.text("amount"), "amount"), fields.text("currency"))
        fields.finish()
        return money

    def _same(self, other: Money) -> Money:
        if self.currency != other.currency:
            raise Refusal("currency", other.currency, self.currency, "convert at a stated rate")
        return other
