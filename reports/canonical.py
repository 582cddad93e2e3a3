"""Bytes that are the same everywhere: canonical JSON (RFC 8785), strict reading, digests.

In: JSON values and files. Out: bytes, values, SHA-256 in hex. Reading refuses what two parsers
may read differently: duplicate keys, NaN, floats beyond the safe range, bytes that are not UTF-8.
Never sign a value that came back from a parser: sign and verify stored bytes only.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import rfc8785

from reports.errors import ReportError

CHUNK_BYTES = 1 << 20


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def canonical_json(value: Any) -> bytes:
    """RFC 8785 bytes of a JSON value. Raises ReportError for NaN, huge integers, surrogates."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise ReportError(f"value has no canonical JSON form (RFC 8785): {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ReportError(f"JSON object names {', '.join(twice)} twice; each key may appear once")
    return value


def _no_constant(name: str) -> Any:
    raise ReportError(f"JSON holds {name}; only finite numbers are allowed")


def strict_json(data: bytes | str) -> Any:
    """Read JSON; duplicate keys, NaN and text that is not UTF-8 raise ReportError."""
    try:
        text = data.decode("utf-8") if isinstance(data, bytes) else data
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ReportError(f"not valid JSON: {error}") from error


def canonical_document(data: bytes) -> Any:
    """Read JSON that must already be in canonical form, byte for byte."""
    value = strict_json(data)
    if canonical_json(value) != data:
        raise ReportError("JSON is not in canonical form (RFC 8785); its bytes were changed")
    return value
