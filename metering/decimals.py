"""Decimals: reading and writing exact numbers as text.

In: decimal text, whole numbers or Decimal.
Out: Decimal, or plain text without exponent.
Never here: a float, NaN, infinity, or a number too long to be a real amount.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

from metering.refusal import Refusal

__all__ = ["exact", "parse_decimal", "to_text"]

PRECISION = 50
_MAX_PLACES = 40
_MAX_WHOLE_DIGITS = 30
_DECIMAL_TEXT = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")


@contextmanager
def exact() -> Iterator[Context]:
    """A local decimal context: 50 digits, half up, whatever the caller's context says."""
    with localcontext(Context(prec=PRECISION, rounding=ROUND_HALF_UP)) as context:
        yield context


def parse_decimal(value: object, field: str = "amount") -> Decimal:
    """Decimal of decimal text, int or Decimal.

    Refuses floats (19.99 is not 19.99 in binary), bool, NaN, infinities, digits that are not
    ASCII, and numbers of more than 30 digits before or 40 after the point.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise Refusal(
            field, f"{type(value).__name__} {value!r}", "decimal text such as '19.99'",
            "quote the number: a float has already lost the exact amount",
        )  # fmt: skip
    if isinstance(value, str):
        if len(value) > 80 or not _DECIMAL_TEXT.fullmatch(value):
            raise Refusal(field, repr(value), "decimal text such as '19.99'", "fix the text")
        value = Decimal(value)
    elif isinstance(value, int):
        if abs(value) >= 10**_MAX_WHOLE_DIGITS:
            raise Refusal(field, f"{value.bit_length()} bits", "at most 30 digits", "check units")
        value = Decimal(value)
    if not value.is_finite():
        raise Refusal(field, str(value), "a finite number", "fix the measurement")
    exponent = value.as_tuple().exponent
    if (
        not isinstance(exponent, int)
        or exponent < -_MAX_PLACES
        or value.adjusted() >= _MAX_WHOLE_DIGITS
    ):
        raise Refusal(
            field, str(value), "at most 30 digits before and 40 after the point", "check the units"
        )
    return value


def to_text(value: Decimal) -> str:
    """Plain decimal text without exponent; minus zero is zero. Keeps trailing zeros."""
    return format(abs(value) if value.is_zero() else value, "f")
