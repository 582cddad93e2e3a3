"""What every fact is made of: text that prints as it reads, plain numbers, closed records.

In: JSON from whoever owns the data. Out: validated, frozen records.
Never here: what a report states.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, TypeVar
from zoneinfo import available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    StringConstraints,
    ValidationError,
    model_serializer,
)

from reports.canonical import canonical_json, strict_json
from reports.errors import ReportError

R = TypeVar("R", bound="Record")

# Explicit marks that reorder what a person reads; a name may not change how a number looks.
_REORDERING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def _printable(value: str) -> str:
    for character in value:
        if unicodedata.category(character) in {"Cc", "Cs", "Co", "Cn"}:
            raise ValueError(f"holds the unprintable character U+{ord(character):04X}")
        if unicodedata.bidirectional(character) in _REORDERING:
            raise ValueError(f"holds the text-reordering character U+{ord(character):04X}")
    return unicodedata.normalize("NFC", value)


def _utc(value: str) -> str:
    if not value.endswith("Z"):
        raise ValueError("must be RFC 3339 in UTC, ending in Z")
    if datetime.fromisoformat(value).tzinfo != UTC:
        raise ValueError("must be RFC 3339 in UTC, ending in Z")
    return value


def _zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError("must be an IANA time zone name such as Europe/Berlin")
    return value


Text = Annotated[str, StringConstraints(min_length=1, max_length=400), AfterValidator(_printable)]
Sentence = Annotated[
    str, StringConstraints(min_length=1, max_length=1200), AfterValidator(_printable)
]
Number = Annotated[str, StringConstraints(pattern=r"^-?(0|[1-9]\d{0,30})(\.\d{1,18})?$")]
Count = Annotated[str, StringConstraints(pattern=r"^(0|[1-9]\d{0,18})$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Currency = Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
Utc = Annotated[str, StringConstraints(max_length=40), AfterValidator(_utc)]
Date = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Zone = Annotated[str, AfterValidator(_zone)]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Record(BaseModel):
    """Frozen, closed (an unknown field is an error) and strict (no silent conversion)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Grown(Record):
    """A record that gained the fields `later`. They are written only where they are used:
    statements from before hold.
    """

    later: ClassVar[frozenset[str]]

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = dump(self)
        unused = {name for name in self.later if written[name] is None}
        return {name: value for name, value in written.items() if name not in unused}


def validated(cls: type[R], document: Mapping[str, Any] | str | bytes) -> R:
    """A record from a JSON object or its text. Raises ReportError naming each wrong field."""
    value = strict_json(document) if isinstance(document, str | bytes) else document
    try:
        return cls.model_validate_json(canonical_json(value))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or cls.__name__}: {item['msg']}"
            + (f" (got {item['input']!r:.80})" if not isinstance(item["input"], dict) else "")
            for item in error.errors()
        )
        raise ReportError(f"{cls.__name__} is not valid: {wrong}. Correct these fields.") from error
