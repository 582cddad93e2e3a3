"""Option C as an alarm, adjustments, sufficiency: what stands beside option B and what it says."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from metering.cases import Case, play, schema_text
from metering.refusal import Refusal
from metering.savings import (
    FSU_METHODS,
    Disqualification,
    Evidence,
    NonRoutine,
    Override,
    adjusted,
    compare,
    examine,
    fractional_savings_uncertainty,
    normalised_savings,
    option_gate,
    settle,
)
from tests.metering.money_cases import contract, line

# Option C


def test_fsu_of_the_hand_value() -> None:
    """P 365, Q 365, M 12, CV 0.10, rho 0.3, F 0.20 at 90 %: 0.0823146 by hand."""
    got = fractional_savings_uncertainty(
        spans=365, reporting_spans=365, months=12, cv=0.10, autocorrelation=0.3, fraction=0.20
    )
    assert got == pytest.approx(0.0823146, abs=5e-8)


def test_months_are_those_of_the_reporting_period() -> None:
    """nmecr#30: twelve months where six were meant makes the uncertainty 15 % too high."""
    common: dict[str, Any] = {
        "spans": 12, "reporting_spans": 6, "cv": 0.1, "autocorrelation": 0.0, "fraction": 0.2,
        "interval": "billing",
    }  # fmt: skip
    six, twelve = (fractional_savings_uncertainty(months=m, **common) for m in (6, 12))
    assert six is not None
    assert twelve is not None
    assert twelve / six == pytest.approx(1.30558 / 1.13098, rel=1e-5)


@pytest.mark.parametrize("fraction", [0.0, -0.1])
def test_fsu_without_savings_is_not_defined(fraction: float) -> None:
    assert (
        fractional_savings_uncertainty(
            spans=60, reporting_spans=30, months=1, cv=0.1, autocorrelation=0.0, fraction=fraction
        )
        is None
    )


def _series(uplift: float, seed: int = 7) -> dict[str, Any]:
    """A bill of 50 + 2 per unit, by days; the reporting bills are lower by `uplift`."""
    random = np.random.default_rng(seed)

    def texts(values: Any) -> list[Decimal]:
        return [Decimal(f"{value:.4f}") for value in values]

    volumes, reporting = random.uniform(80, 120, 60), random.uniform(80, 120, 30)
    noise, after = random.normal(0, 2, 60), random.normal(0, 2, 30)
    return {
        "bills": texts(50 + 2 * volumes + noise),
        "volumes": texts(volumes),
        "reporting_bills": texts((50 + 2 * reporting) * (1 - uplift) + after),
        "reporting_volumes": texts(reporting),
        "months": 1,
    }


@pytest.mark.parametrize("method", FSU_METHODS)
def test_the_alarm_is_quiet_when_the_bill_says_the_same(method: str) -> None:
    series = _series(0.10)
    true = sum((50 + 2 * float(v)) * 0.10 for v in series["reporting_volumes"])
    found = compare(**series, option_b=Decimal(f"{true:.2f}"), method=method)
    assert found.agrees, found.reasons
    assert found.method == method
    assert abs(float(found.savings) - true) < float(found.uncertainty)
    assert found.fsu is not None
    assert float(found.fsu) == pytest.approx(float(found.uncertainty) / float(found.savings))


def test_the_alarm_rings_when_the_bill_says_otherwise() -> None:
    found = compare(**_series(0.0), option_b=Decimal(700), method=FSU_METHODS[0])
    assert not found.agrees
    assert "ALARM" in found.reasons[0]


def test_two_readings_of_one_formula_differ_and_one_is_pinned() -> None:
    """impactlab/eemeter#122: same data, other version, other savings uncertainty."""
    one, two = (
        compare(**_series(0.10), option_b=Decimal(700), method=method) for method in FSU_METHODS
    )
    assert one.savings == two.savings
    assert one.uncertainty != two.uncertainty
    with pytest.raises(Refusal, match="method"):
        compare(**_series(0.10), option_b=Decimal(700), method="latest")


def test_a_bill_below_zero_is_an_incident() -> None:
    """opencost/opencost#3387, #3574."""
    series = _series(0.10)
    series["reporting_bills"][3] = Decimal(-5)
    with pytest.raises(Refusal, match="incident"):
        compare(**series, option_b=Decimal(0), method=FSU_METHODS[0])


def test_only_option_b_bills() -> None:
    assert option_gate("B") is None
    for option in "ACD":
        assert option_gate(option)
    with pytest.raises(Refusal):
        option_gate("E")


# Adjustments

SIGNED = ("provider", "customer", "auditor")


def event(amount: str, **changes: Any) -> NonRoutine:
    values: dict[str, Any] = {
        "period": "2026-01", "model": "A", "system": "s", "amount": Decimal(amount),
        "reason": "driver 550 to 570", "evidence": "a" * 64, "signed_by": SIGNED,
    }  # fmt: skip
    return NonRoutine(**(values | changes))


def test_adjustments_go_both_ways_by_the_same_amount() -> None:
    (up,) = adjusted([line(100)], [event("25.5")], "2026-01")
    (down,) = adjusted([line(100)], [event("-25.5")], "2026-01")
    assert (up.point, down.point) == (Decimal("125.5"), Decimal("74.5"))
    assert adjusted([line(100)], [event("25.5")], "2026-02") == [line(100)]


@pytest.mark.parametrize(
    "changes",
    [
        {"signed_by": ("provider", "customer")},
        {"signed_by": ("provider", "provider", "auditor")},
        {"evidence": "see mail"},
        {"reason": ""},
    ],
)
def test_an_adjustment_needs_three_signatures_and_evidence(changes: Any) -> None:
    with pytest.raises(Refusal):
        event("1", **changes)


def test_an_adjustment_needs_its_line() -> None:
    with pytest.raises(Refusal, match="a line of 2026-01"):
        adjusted([line(100)], [event("1", model="Z")], "2026-01")


def test_an_adjustment_bills_through_a_case() -> None:
    case = {
        "schema": "ignition.fee-case.v2",
        "contracts": [contract().to_json()],
        "state": None,
        "savings": [{"period": "2026-01", "model": "A", "system": "s", "point": "1000"}],
        "adjustments": [
            {"period": "2026-01", "model": "A", "system": "s", "amount": "-100",
             "reason": "driver", "evidence": "a" * 64, "signed_by": list(SIGNED)},
        ],
    }  # fmt: skip
    answer = play(Case.from_json(json.loads(json.dumps(case))))
    assert str(answer.documents[0].fee) == "180.00"


def test_normalised_savings_use_the_agreed_mix() -> None:
    costs = {("A", "s"): (Decimal("2.4"), Decimal("1.5")), ("B", "s"): (Decimal(1), Decimal(2))}
    mix = {("A", "s"): Decimal(10), ("B", "s"): Decimal(4)}
    assert normalised_savings(mix, costs) == 5
    with pytest.raises(Refusal, match="both costs"):
        normalised_savings({("C", "s"): Decimal(1)}, costs)


# Sufficiency


def evidence(**changes: Any) -> Evidence:
    values: dict[str, Any] = {
        "run_days": tuple(date(2026, 1, day) for day in (1, 1, 2, 3, 3)),
        "period_hours": Decimal(744),
        "metered_hours": Decimal(744),
    }
    return Evidence(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"run_days": (date(2026, 1, 1), date(2026, 1, 2), date(2026, 1, 3))}, "baseline.runs"),
        ({"run_days": (date(2026, 1, 1),) * 9}, "baseline.days"),
        ({"metered_hours": Decimal(669)}, "usage.hours"),
        ({"volumes": (Decimal(1), Decimal(-1))}, "volume.negative"),
        ({"conflicts": 1}, "usage.conflict"),
        ({"zones": ("Europe/Berlin", "UTC")}, "zone.mismatch"),
        ({"partial_period": True}, "period.partial"),
    ],
)
def test_each_rule_blocks_and_is_named(changes: Any, name: str) -> None:
    assert examine(evidence()) == ()
    (found,) = examine(evidence(**changes))
    assert found.name.endswith(name)
    assert settle([found]).gate == f"{found.name}: {found.description}"


def test_ninety_percent_of_the_hours_are_enough() -> None:
    assert examine(evidence(period_hours=Decimal(740), metered_hours=Decimal(666))) == ()


def test_an_outlier_is_flagged_and_still_counts() -> None:
    (found,) = examine(evidence(volumes=tuple(map(Decimal, (10, 11, 12, 13, 14, 900)))))
    assert (found.name, found.blocks) == ("data.volume.extreme", False)
    verdict = settle([found])
    assert verdict.gate is None
    assert verdict.printed


def test_an_override_is_named_printed_and_fits_a_rule() -> None:
    found = examine(evidence(metered_hours=Decimal(600), conflicts=2))
    one = Override("sufficiency.usage.hours", "A. Auditor", "meter replaced, both logs seen")
    verdict = settle(found, [one])
    assert verdict.gate is not None
    assert "usage.conflict" in verdict.gate
    assert "usage.hours" not in verdict.gate
    assert any("overridden by A. Auditor: meter replaced" in text for text in verdict.printed)
    with pytest.raises(Refusal, match="a disqualification of this line"):
        settle([], [one])
    with pytest.raises(Refusal, match="named auditor"):
        Override("sufficiency.usage.hours", " ", "because")
    assert settle([Disqualification("a.b", "c", blocks=False)]).gate is None


def test_evidence_gates_a_line_of_a_case_until_an_auditor_overrides_it_by_name() -> None:
    """700 of 743 hours of March are enough, 600 are not; the override is on the document."""

    def fee_of(hours: str, *overrides: dict[str, str]) -> tuple[str, tuple[str, ...]]:
        case = {
            "schema": "ignition.fee-case.v2",
            "contracts": [contract().to_json()],
            "state": None,
            "savings": [{"period": "2026-03", "model": "A", "system": "s", "point": "1000"}],
            "evidence": [
                {"period": "2026-03", "model": "A", "system": "s", "metered_hours": hours,
                 "run_days": [f"2026-03-0{day}" for day in (1, 1, 2, 3, 4)],
                 "zone": "Europe/Berlin", "overrides": list(overrides)},
            ],
        }  # fmt: skip
        Draft202012Validator(json.loads(schema_text())).validate(case)
        document = play(Case.from_json(case)).documents[0]
        return str(document.fee), (*document.reasons, *document.notes)

    assert fee_of("700")[0] == "200.00"
    fee, said = fee_of("600")
    assert fee == "0.00"
    assert any("bills zero: sufficiency.usage.hours: 600 of 743 hours" in text for text in said)
    named = {"name": "sufficiency.usage.hours", "auditor": "A. Auditor", "reason": "logs seen"}
    fee, said = fee_of("600", named)
    assert fee == "200.00"
    assert any("overridden by A. Auditor: logs seen" in text for text in said)
