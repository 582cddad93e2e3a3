"""LoadGen's detail log, read strictly. The summary is for people and is never parsed for figures.

In: the bytes of ``mlperf_log_detail.txt``. Out: first value per key, and every error line. A line
that is not LoadGen's, a value that is said twice in two ways, or a torn last line is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_MARK = ":::MLLOG "
# Said more than once by design; everything else may be repeated only with the same value.
_REPEATING = ("generic_message", "warning_", "error_", "loaded_qsl_set", "logger_")
# Settings without an effective_* line; the token bounds decide a verdict all the same.
_REQUESTED_ONLY = (
    "requested_server_coalesce_queries",
    "requested_server_num_issue_query_threads",
    "requested_use_token_latencies",
    "requested_server_ttft_latency",
    "requested_server_tpot_latency",
)
_MOST_DIGITS = 40
"""Before or after the point; a float64 has up to 17 that mean anything."""


class DetailLogError(ValueError):
    """The log is not one that LoadGen finished writing."""


@dataclass(frozen=True)
class DetailLog:
    """Numbers with a fraction are Decimal, so that a figure is printed as LoadGen wrote it."""

    values: Mapping[str, Any]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    def text(self, key: str) -> str:
        return str(self.values[key])

    def effective(self) -> dict[str, str]:
        """Every ``effective_*`` setting as text, and those that are repeated as requested only."""
        return {
            key: str(value)
            for key, value in self.values.items()
            if key.startswith("effective_") or key in _REQUESTED_ONLY
        }


def parse(data: bytes) -> DetailLog:
    """Parse a complete detail log. Raises DetailLogError naming the first bad line."""
    if not data.endswith(b"\n"):
        raise DetailLogError("detail log: empty or torn, wanted whole lines")
    values: dict[str, Any] = {}
    errors: list[str] = []
    warnings: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
        entry = _entry(line, number)
        key, value, metadata = entry["key"], entry["value"], entry["metadata"]
        if metadata.get("is_error"):
            errors.append(f"{key}: {value}")
        elif metadata.get("is_warning"):
            warnings.append(f"{key}: {value}")
        if key in values and values[key] != value and not key.startswith(_REPEATING):
            raise DetailLogError(f"detail log: line {number} says {key} a second time, differently")
        values.setdefault(key, value)
    return DetailLog(values=values, errors=tuple(errors), warnings=tuple(warnings))


def _number(text: str) -> Decimal:
    """A number of a size that something can have: whole digits of 1e999999 would fill the memory.

    Infinities and NaN, which JSON does not have but Python's reader takes, are refused too.
    """
    number = Decimal(text)
    if not number.is_finite() or abs(number.adjusted()) > _MOST_DIGITS:
        raise ValueError(f"{text[:40]} is not a number that LoadGen prints")
    return number


def _entry(line: str, number: int) -> dict[str, Any]:
    if not line.startswith(_MARK):
        raise DetailLogError(f"detail log: line {number} does not start with {_MARK.strip()}")
    try:
        entry = json.loads(line[len(_MARK) :], parse_float=_number, parse_constant=_number)
    except (ValueError, RecursionError) as error:
        raise DetailLogError(f"detail log: line {number} is not JSON: {error}") from error
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("key"), str)
        or "value" not in entry
        or not isinstance(entry.get("metadata"), dict)
    ):
        raise DetailLogError(f"detail log: line {number} lacks key, value or metadata")
    return entry
