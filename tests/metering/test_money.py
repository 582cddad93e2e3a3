"""Exact money: parsing, minor units, rounding, allocation, canonical JSON."""

from __future__ import annotations

import random
from decimal import ROUND_DOWN, Decimal, getcontext, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.decimals import parse_decimal, to_text
from metering.money import (
    Money,
    allocate,
    apportion,
    carried,
    floor_to_minor,
    line_amount,
    minor_unit,
    quantize,
    to_minor_units,
)
from metering.refusal import Refusal
from tests.metering.money_cases import UNHURRIED

AMOUNTS = st.decimals(min_value=-(10**9), max_value=10**9, places=2, allow_nan=False)


@pytest.mark.parametrize(
    ("currency", "places"),
    [("EUR", 2), ("USD", 2), ("JPY", 0), ("CLP", 0), ("KRW", 0), ("KWD", 3), ("BHD", 3)],
)
def test_minor_units_follow_iso_4217(currency: str, places: int) -> None:
    assert minor_unit(currency) == places


@pytest.mark.parametrize(
    ("report", "got", "wanted"),
    [
        ("killbill/killbill#1124", line_amount("55", "0.067", "EUR"), "3.69"),
        ("killbill/killbill#161", quantize(Decimal("-85.4588"), "USD"), "-85.46"),
        ("BasedHardware/omi#10158", Decimal(to_minor_units("19.99", "USD")), "1999"),
        ("Paymenter/Paymenter#1258 yen", line_amount("1", "80", "JPY"), "80"),
        ("InvoicePlane/InvoicePlane#1677 dinar", line_amount("1", "1.234", "KWD"), "1.234"),
        ("killbill/killbill#1082", line_amount("123457", "0.20", "CLP"), "24691"),
        ("influxdata/influxdb#6642", line_amount("70", "0.4", "EUR"), "28.00"),
        (
            "PrestaShop/PrestaShop#33912",
            quantize(line_amount("4", "15.59", "EUR") * Decimal("0.09"), "EUR"),
            "5.61",
        ),
        (
            "getlago/lago-api#818",
            allocate(Decimal("60.00"), [21, 7], "EUR")[0],
            "45.00",
        ),
        ("half up, not half even", quantize(Decimal("0.005"), "EUR"), "0.01"),
        ("half up away from zero", quantize(Decimal("-0.005"), "EUR"), "-0.01"),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value else None,
)
def test_public_reports(report: str, got: Decimal, wanted: str) -> None:
    assert to_text(got) == wanted, report


def test_every_price_in_cents_survives() -> None:
    """BasedHardware/omi#10158: int(price * 100) loses 573 of the first 10,000 prices."""
    wrong = sum(int(float(f"{c // 100}.{c % 100:02d}") * 100) != c for c in range(10_000))
    assert wrong == 573
    assert all(
        to_minor_units(f"{cents // 100}.{cents % 100:02d}", "USD") == cents
        for cents in range(10_000)
    )


@pytest.mark.parametrize(
    "value",
    [
        19.99, True, None, "", " 1", "1 ", "1,5", "0x10", "NaN", "Infinity", "-Infinity", "1e999",
        "1_000", "\u0661", "1.", ".5", "--1", Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"),
        Decimal("1e-50"), Decimal("1e31"), 10**31, "9" * 100, [], {},
    ],
    ids=str,
)  # fmt: skip
def test_values_that_are_no_amounts_are_refused(value: object) -> None:
    with pytest.raises(Refusal, match="wanted"):
        parse_decimal(value, "price")


@pytest.mark.parametrize("text", ["0", "-0", "1.10", "1e3", "1.5E-05", "+2", "000.1"])
def test_decimal_text_is_read_exactly(text: str) -> None:
    assert parse_decimal(text) == Decimal(text)


def test_text_is_plain_and_minus_zero_is_zero() -> None:
    assert to_text(Decimal("1E+3")) == "1000"
    assert to_text(Decimal("-0.00")) == "0.00"
    assert to_text(Decimal("1E-7")) == "0.0000001"


def test_the_callers_decimal_context_changes_nothing() -> None:
    expected = (quantize(Decimal("2.675"), "EUR"), allocate(Decimal("10.00"), [1, 2], "EUR"))
    with localcontext() as context:
        context.prec, context.rounding = 3, ROUND_DOWN
        got = (quantize(Decimal("2.675"), "EUR"), allocate(Decimal("10.00"), [1, 2], "EUR"))
        assert getcontext().prec == 3
    assert got == expected == (Decimal("2.68"), [Decimal("3.33"), Decimal("6.67")])


@UNHURRIED
@given(AMOUNTS, st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any))
def test_allocation_sums_exactly_and_mirrors(amount: Decimal, weights: list[int]) -> None:
    parts = allocate(amount, weights, "EUR")
    assert sum(parts) == amount
    assert allocate(-amount, weights, "EUR") == [-part for part in parts]
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - amount * weight / total) < Decimal("0.01")


@UNHURRIED
@given(st.lists(st.decimals(min_value=-500, max_value=500, places=6), min_size=1, max_size=9))
def test_parts_of_any_sign_sum_to_the_rounded_total(parts: list[Decimal]) -> None:
    total = quantize(sum(parts, Decimal(0)), "EUR")
    amounts = apportion(parts, total, "EUR")
    assert sum(amounts) == total
    assert all(abs(a - p) <= Decimal("0.02") for a, p in zip(amounts, parts, strict=True))


def test_a_total_far_from_its_parts_is_refused() -> None:
    with pytest.raises(Refusal, match="sum of its 2 parts"):
        apportion([Decimal(1), Decimal(1)], Decimal("5.00"), "EUR")


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1]])
def test_weights_that_split_nothing_are_refused(weights: list[int]) -> None:
    with pytest.raises(Refusal, match="weights"):
        allocate(Decimal("1.00"), weights, "EUR")


def test_a_fraction_of_a_cent_cannot_be_allocated() -> None:
    with pytest.raises(Refusal, match="whole minor units of EUR"):
        allocate(Decimal("1.001"), [1, 1], "EUR")


def test_floor_never_exceeds_the_amount() -> None:
    assert floor_to_minor(Decimal("0.019"), "EUR") == Decimal("0.01")
    assert floor_to_minor(Decimal("-0.011"), "EUR") == Decimal("-0.02")
    assert carried(Decimal(1) / Decimal(3)) == Decimal("0.333333333333")


def test_money_keeps_its_currency() -> None:
    assert Money.of("1.005", "EUR").rounded() + Money.of("2", "EUR") == Money.of("3.01", "EUR")
    assert str(-Money.of("2.50", "EUR")) == "-2.50 EUR"
    assert Money.of("1", "EUR") - Money.of("3", "EUR") < Money.of("0", "EUR")
    assert Money.from_json(Money.of("1.10", "JPY").to_json()) == Money.of("1.10", "JPY")
    with pytest.raises(Refusal, match="convert"):
        Money.of("1", "EUR") + Money.of("1", "USD")
    with pytest.raises(Refusal, match="ISO 4217"):
        Money.of("1", "BTC")


# Canonical JSON


def test_key_order_and_spacing_never_change_the_digest() -> None:
    one = canonical.loads('{"b": [1, "x"], "a": {"d": null, "c": true}}')
    other = canonical.loads('{"a":{"c":true,"d":null},"b":[1,"x"]}')
    assert canonical.digest(one) == canonical.digest(other)
    assert canonical.dumps(one) == b'{"a":{"c":true,"d":null},"b":[1,"x"]}'


@pytest.mark.parametrize(
    "text",
    [
        "1.5", '{"a": 1e3}', '{"a": NaN}', '{"a": Infinity}', '{"a": 1, "a": 1}', "{", "",
        '{"a": {"b": 1, "b": 2}}', "[" * 100_000, "1" * 10_000, b"\xff\xfe",
    ],
    ids=range(11),
)  # fmt: skip
def test_json_that_has_two_readings_is_refused(text: str | bytes) -> None:
    with pytest.raises(Refusal):
        canonical.loads(text)


@pytest.mark.parametrize(
    "value", [1.5, {"a": float("nan")}, {1: 2}, b"x", Decimal(1), 2**60, "\ud800"]
)
def test_values_with_two_spellings_are_refused(value: object) -> None:
    with pytest.raises(Refusal):
        canonical.dumps(value)


def test_pretty_holds_the_same_value() -> None:
    value = {"z": ["é", 1], "a": None}
    assert canonical.loads(canonical.pretty(value)) == value


def test_shuffled_objects_have_one_digest() -> None:
    rng = random.Random(7)
    keys = [f"k{number}" for number in range(30)]
    digests = set()
    for _ in range(5):
        rng.shuffle(keys)
        digests.add(canonical.digest({key: len(key) for key in keys}))
    assert len(digests) == 1
