"""Canonical JSON: the RFC's own vectors; what strict reading refuses (T14, failures 22-24)."""

from __future__ import annotations

import hashlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.canonical import canonical_document, canonical_json, strict_json
from reports.errors import ReportError

# RFC 8785 appendix B: IEEE 754 bits and the one text each has.
NUMBERS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


@pytest.mark.parametrize(("bits", "text"), NUMBERS)
def test_numbers_of_rfc_8785_appendix_b(bits: str, text: str) -> None:
    value = struct.unpack(">d", bytes.fromhex(bits))[0]
    assert canonical_json(value) == text.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, -(2**53), "\ud800"])
def test_values_without_a_canonical_form_are_refused(value: object) -> None:
    with pytest.raises(ReportError, match="8785"):
        canonical_json(value)


def test_example_of_rfc_8785_section_3_2() -> None:
    document = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert (
        canonical_json(document)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


def test_keys_sort_by_utf16_code_units() -> None:
    """RFC 8785 section 3.2.3: an emoji sorts before U+FB33, unlike in Python's own order."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    made = json.loads(canonical_json(dict.fromkeys(keys, 0)))
    assert list(made) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":{"b":1,"b":1}}', "twice"),
        (b"[NaN]", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b'{"a":1', "not valid"),
        (b'{"a":"\xff"}', "not valid"),
        (b"[" * 100_000, "not valid"),
    ],
)
def test_strict_reading_refuses(data: bytes, word: str) -> None:
    with pytest.raises(ReportError, match=word):
        strict_json(data)


def test_a_document_must_arrive_in_canonical_form() -> None:
    assert canonical_document(b'{"a":1,"b":2}') == {"a": 1, "b": 2}
    for other in (b'{"b":2,"a":1}', b'{"a": 1,"b":2}', b'{"a":1,"b":2}\n', b'{"a":1.0,"b":2}'):
        with pytest.raises(ReportError, match="canonical"):
            canonical_document(other)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
        max_leaves=20,
    )
)
def test_canonical_bytes_read_back_and_never_change(value: object) -> None:
    data = canonical_json(value)
    assert canonical_document(data) == value
    assert hashlib.sha256(canonical_json(canonical_document(data))).digest() == (
        hashlib.sha256(data).digest()
    )
