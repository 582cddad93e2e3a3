"""Strict reading of JSON objects: every field is asked for by name, no field is left over.

In: one decoded JSON object.
Out: typed values, or a refusal that names the field.
Never here: a default for a field that decides money; a field that is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from metering.decimals import parse_decimal
from metering.refusal import Refusal

__all__ = ["Fields", "check_zone", "instant_text", "parse_instant"]

_INSTANT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)


class Fields:
    """Reads one JSON object field by field; `finish` refuses whatever was not asked for."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise Refusal(where, f"{type(value).__name__}", "a JSON object", "see docs/contracts")
        self.where = where
        self._values = cast("Mapping[str, object]", value)
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        self._asked.add(name)
        return self._values.get(name) is not None

    def any(self, name: str) -> object:
        """The field as it came; refused when absent."""
        self._asked.add(name)
        if name not in self._values:
            raise Refusal(f"{self.where}.{name}", "nothing", "this field", "add it")
        return self._values[name]

    def text(self, name: str, choices: Sequence[str] | None = None) -> str:
        """Non-empty text, one of `choices` when given."""
        value = self.any(name)
        if not isinstance(value, str) or not value:
            raise Refusal(f"{self.where}.{name}", repr(value), "text that is not empty", "fill it")
        if choices is not None and value not in choices:
            raise Refusal(f"{self.where}.{name}", repr(value), "one of " + ", ".join(choices))
        return value

    def optional_text(self, name: str) -> str | None:
        """Text, or None when absent or null."""
        return self.text(name) if self.has(name) else None

    def integer(self, name: str) -> int:
        """A JSON whole number (true and false are not numbers)."""
        value = self.any(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refusal(f"{self.where}.{name}", repr(value), "a whole number", "no quotes")
        return value

    def boolean(self, name: str) -> bool:
        """true or false."""
        value = self.any(name)
        if not isinstance(value, bool):
            raise Refusal(f"{self.where}.{name}", repr(value), "true or false", "no quotes")
        return value

    def decimal(self, name: str) -> Decimal:
        """Decimal text or a whole number."""
        return parse_decimal(self.any(name), f"{self.where}.{name}")

    def optional_decimal(self, name: str) -> Decimal | None:
        """Decimal text, or None when absent or null."""
        return self.decimal(name) if self.has(name) else None

    def instant(self, name: str) -> datetime:
        """RFC 3339 time with an offset, as aware UTC."""
        return parse_instant(self.any(name), f"{self.where}.{name}")

    def day(self, name: str) -> date:
        """A calendar date such as 2026-12-30."""
        text = self.text(name)
        try:
            return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
        except ValueError as error:
            raise Refusal(f"{self.where}.{name}", repr(text), "a date as YYYY-MM-DD") from error

    def items(self, name: str) -> Sequence[object]:
        """A JSON list."""
        value = self.any(name)
        if not isinstance(value, list | tuple):
            raise Refusal(f"{self.where}.{name}", type(value).__name__, "a list")
        return cast("Sequence[object]", value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of non-empty text."""
        values = self.items(name)
        for value in values:
            if not isinstance(value, str) or not value:
                raise Refusal(f"{self.where}.{name}", repr(value), "a list of text")
        return tuple(cast("Sequence[str]", values))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        values = self.items(name)
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int):
                raise Refusal(f"{self.where}.{name}", repr(value), "a list of whole numbers")
        return tuple(cast("Sequence[int]", values))

    def finish(self) -> None:
        """Refuse fields nobody asked for: a misspelt cap must not be a missing cap."""
        left = sorted(set(self._values) - self._asked)
        if left:
            raise Refusal(
                f"{self.where}.{left[0]}", "a field this version does not know",
                "only " + ", ".join(sorted(self._asked)), "remove or rename it",
            )  # fmt: skip


def parse_instant(value: object, field: str = "time") -> datetime:
    """Aware UTC of RFC 3339 text. Refuses a time without an offset; keeps microseconds."""
    match = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Refusal(field, repr(value), "RFC 3339 time such as 2026-11-30T23:50:00Z", "add Z")
    date, clock, fraction, offset = match.groups()
    text = f"{date}T{clock}{(fraction or '')[:7]}{'+00:00' if offset in 'Zz' else offset}"
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise Refusal(field, repr(value), "a date and time that exist", str(error)) from error


def instant_text(value: datetime) -> str:
    """RFC 3339 with Z; fractions only when there are any. Refuses a naive time."""
    if value.tzinfo is None or value.utcoffset() is None:
        raise Refusal("time", value.isoformat(), "a time with an offset", "use aware UTC")
    utc = value.astimezone(UTC)
    return utc.replace(tzinfo=None).isoformat() + "Z"


def check_zone(name: object, field: str = "zone") -> ZoneInfo:
    """The IANA zone; a fixed offset such as +01:00 is refused because it forgets DST."""
    wanted = "an IANA zone such as Europe/Berlin"
    if not isinstance(name, str) or not name or name.startswith(("/", ".", "+", "-")):
        raise Refusal(field, repr(name), wanted, "name the zone")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise Refusal(field, repr(name), wanted, "name a zone of the tz database") from error
