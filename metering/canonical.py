"""Canonical JSON: one value, one sequence of bytes, one digest.

In: plain JSON values (dict, list, tuple, text, int, bool, None), or JSON text from outside.
Out: RFC 8785 bytes, their SHA-256, or plain values.
Never here: a float. Amounts and measured rates travel as decimal text, because two programs
may print one float differently and a digest would then depend on who printed it. JSON that
carries a fraction, an exponent or the same key twice is refused, not repaired.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

import rfc8785

from metering.refusal import Refusal

__all__ = ["digest", "digest_bytes", "dumps", "loads", "pretty"]


def dumps(value: object) -> bytes:
    """RFC 8785 bytes of `value`; refuses floats and integers beyond 2**53 - 1."""
    try:
        return rfc8785.dumps(cast("Any", _plain(value, "$")))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as error:
        raise Refusal(
            "$", type(value).__name__, "a value that RFC 8785 can write", str(error)
        ) from error


def loads(text: str | bytes) -> object:
    """Plain value of one JSON text. Refuses fractions, exponents, NaN and duplicate keys."""
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise Refusal("$", "bytes that are not UTF-8", "UTF-8 JSON", str(error)) from error
    try:
        return json.loads(
            decoded,
            object_pairs_hook=_unique_keys,
            parse_float=_no_float,
            parse_constant=_no_float,
        )
    except Refusal:
        raise
    except json.JSONDecodeError as error:
        raise Refusal(
            "$", f"text that stops being JSON at line {error.lineno}", "one JSON value", error.msg
        ) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise Refusal("$", "a number too long to read", "one JSON value", str(error)) from error
    except RecursionError as error:
        raise Refusal("$", "JSON nested too deeply", "a flat document", "flatten it") from error


def digest(value: object) -> str:
    """Lower-case hexadecimal SHA-256 of the canonical bytes of `value`."""
    return digest_bytes(dumps(value))


def digest_bytes(data: bytes) -> str:
    """Lower-case hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def pretty(value: object) -> str:
    """Indented, key-sorted text of the same value for people; ends with a newline."""
    return json.dumps(_plain(value, "$"), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(value: object, where: str) -> object:
    """The same value built from JSON's own types, or a refusal that names the place."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        plain: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise Refusal(where, f"key {key!r}", "text keys", "write the key as text")
            plain[key] = _plain(item, f"{where}.{key}")
        return plain
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise Refusal(
        where,
        f"{type(value).__name__} {value!r}",
        "text, whole number, true, false, null, list or object",
        "write amounts and measured rates as decimal text",
    )


def _unique_keys(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise Refusal(key, "the same key twice", "each key once", "remove one of the two")
        seen[key] = value
    return seen


def _no_float(text: str) -> NoReturn:
    raise Refusal(
        "$", f"number {text}", "whole numbers, or decimal text in quotes", f'write "{text}"'
    )
