"""Turns stored values into short honest text for people.

In: numbers, Decimals, number text, instants. Out: text. Pages never round what they calculate with;
exports never pass through here, they carry the raw value.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

ABSENT = "not yet"


def as_decimal(value: Any) -> Decimal | None:
    """A finite Decimal of any number or number text; None for what is absent or not a number."""
    if value is None or isinstance(value, bool) or value == "":
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def number(value: Any, digits: int = 4) -> str:
    """`digits` significant digits, grouped thousands, never an exponent; whole numbers in full.

    >>> number("1234.5678"), number(0.00012345), number(70000), number(None)
    ('1,235', '0.0001234', '70,000', 'not yet')
    """
    decimal = as_decimal(value)
    if decimal is None:
        return ABSENT
    if decimal == decimal.to_integral_value():
        return f"{decimal.to_integral_value():,f}"
    places = max(digits - 1 - decimal.adjusted(), 0)
    rounded = decimal.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
    return f"{rounded:,f}"


def fixed(value: Any, places: int = 2) -> str:
    """A fixed number of decimal places, grouped thousands."""
    decimal = as_decimal(value)
    if decimal is None:
        return ABSENT
    return f"{decimal.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN):,f}"


def percent(ratio: Any, places: int = 1) -> str:
    """A ratio as a per cent figure without sign for positives: 0.123 -> '12.3 %'."""
    decimal = as_decimal(ratio)
    return ABSENT if decimal is None else f"{fixed(decimal * 100, places)} %"


def signed_percent(ratio: Any, places: int = 1) -> str:
    """A change as a per cent figure, its sign always written: 0.123 -> '+12.3 %'."""
    decimal = as_decimal(ratio)
    if decimal is None:
        return ABSENT
    return f"{decimal * 100:+,.{places}f} %"


def interval(low: Any, high: Any, places: int = 1) -> str:
    """A two-sided interval of changes: '+3.0 % to +5.2 %'."""
    return f"{signed_percent(low, places)} to {signed_percent(high, places)}"


def money(amount: Any, currency: str) -> str:
    """Every stored digit of an amount with its ISO 4217 code; money is never shortened here."""
    decimal = as_decimal(amount)
    return ABSENT if decimal is None else f"{decimal:,f} {currency}".strip()


def instant(value: datetime | str | None) -> str:
    """An instant in UTC to the second, with its Z."""
    if value is None or value == "":
        return ABSENT
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def duration(seconds: Any) -> str:
    """A length of time: '0.42 s', '37 s', '2 min 05 s', '1 h 02 min'."""
    decimal = as_decimal(seconds)
    if decimal is None:
        return ABSENT
    if decimal < 10:
        return f"{number(decimal, 3)} s"
    whole = int(decimal)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def byte_size(count: Any) -> str:
    """A size in binary units: '48.0 KiB'."""
    decimal = as_decimal(count)
    if decimal is None:
        return ABSENT
    size = float(decimal)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit always returns")


def short_digest(digest: str, length: int = 12) -> str:
    """The first characters of a digest or key id, an ellipsis when cut."""
    return digest if len(digest) <= length else f"{digest[:length]}…"


def joined(items: Sequence[Any]) -> str:
    """A list in words: 'a, b and c'."""
    words = [str(item) for item in items]
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


# What a stored state means to a reader: sign class and words. An unknown state is shown as itself
# with the neutral sign, so a new state can never look like a pass.
MARKS: dict[str, str] = {
    **dict.fromkeys(
        ("valid", "passed", "approved", "accepted", "kept", "done", "issued", "signed", "verified",
         "frozen", "chosen", "measured", "released", "credited", "savings computed", "settled",
         "closed", "agrees", "may bill", "decided"),
        "good",
    ),
    **dict.fromkeys(
        ("invalid", "failed", "rejected", "refused", "error", "crashed", "hung", "silent",
         "not kept", "not verified", "conflict", "malformed", "negative", "unmatched", "differs",
         "not sufficient", "blocks"),
        "bad",
    ),
    **dict.fromkeys(
        ("duplicate", "late", "early", "later", "future", "short run", "cancelled",
         "superseded", "missing", "disputed", "left open",
         "overridden", "flagged", "overruled"),
        "warn",
    ),
    **dict.fromkeys(
        ("running",), "busy"
    ),
}  # fmt: skip


def mark_class(state: str) -> str:
    """The CSS class of a state; empty for a neutral or unknown one."""
    return MARKS.get(state.strip().lower().replace("_", " "), "")
