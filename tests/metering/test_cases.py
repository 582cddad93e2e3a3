"""Cases: what the file may say, what the steps do to each other, and what they refuse."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from metering import canonical
from metering.cases import Case, play, schema_text
from metering.contract import BaselinePolicy, Recoupment, flat_share
from metering.money import allocate
from metering.refusal import Refusal
from tests.metering.golden_cases import GOLDEN, case_files
from tests.metering.money_cases import contract

Json = dict[str, Any]
VALIDATOR = Draft202012Validator(json.loads(schema_text()))


def case(terms: Json | None = None, **parts: Any) -> Json:
    return {
        "schema": "ignition.fee-case.v2",
        "contracts": [contract(**(terms or {})).to_json()],
        "state": None,
        **parts,
    }


def saving(point: object, period: str = "2026-01", **more: Any) -> Json:
    return {"period": period, "model": "A", "system": "s", "point": str(point), **more}


def cost(of: str, value: str, since: str = "2025-06-01T00:00:00Z", **more: Any) -> Json:
    return {"of": of, "model": "A", "system": "s", "since": since, "cost": value, **more}


def usage(units: str, at: str, **more: Any) -> Json:
    return {"model": "A", "system": "s", "at": at, "units": units, **more}


def answer(value: Json) -> Json:
    VALIDATOR.validate(value)
    return play(Case.from_json(canonical.loads(json.dumps(value)))).to_json()


def fees(told: Json) -> list[str]:
    return [step["breakdown"]["fee"] for step in told["steps"] if step["step"] == "bill"]


# The schema and the reader


def _changed(path: str, value: Any) -> Callable[[Json], None]:
    """A change of one place of a case; `None` for the value removes the field."""

    def change(target: Json) -> None:
        *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
        place: Any = target
        for part in way:
            place = place[part]
        if value is _GONE:
            del place[last]
        else:
            place[last] = value

    return change


_GONE = object()
RICH = case(
    savings=[saving(100, standard_error="5", df=9)],
    costs=[cost("baseline", "2"), cost("optimised", "1")],
    usage=[usage("1", "2026-01-05T00:00:00Z", received=None)],
    gates=[],
    steps=[
        {"step": "bill", "period": "2026-01"},
        {"step": "credit", "document": "CASE-1", "lines": None, "reason": "returned"},
    ],
    allocation={"a": "1"},
)
RICH["usage"][0]["model"] = RICH["costs"][0]["model"] = RICH["costs"][1]["model"] = "B"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", "ignition.fee-case.v1"),
        ("contracts", []),
        ("contracts.0.cap", _GONE),
        ("contracts.0.discount", "1"),
        ("contracts.0.tiers", []),
        ("contracts.0.holdback", "ten"),
        ("contracts.0.bound", "upper_95"),
        ("contracts.0.recoupment", {"kind": "pool", "amount": "1"}),
        ("contracts.0.baseline_policy", {"kind": "glide"}),
        ("contracts.0.provider.country", "Germany"),
        ("state", {"losses": "0"}),
        ("state", _GONE),
        ("periods", ["January"]),
        ("periods", {"start": "2026-01-31", "count": 0}),
        ("savings.0.point", _GONE),
        ("savings.0.point", True),
        ("savings.0.df", _GONE),
        ("savings.0.bound", "5"),
        ("savings.0.discount", "5"),
        ("costs.0.of", "guess"),
        ("costs.0.since", "yesterday"),
        ("usage.0.at", "2026-01-05T00:00:00"),
        ("usage.0.units", _GONE),
        ("cutoff_days", -1),
        ("uncertainty", "none"),
        ("gates", [{"period": "2026-01", "model": "A", "system": "s"}]),
        ("steps.0.step", "pay"),
        ("steps.0.document", "CASE-1"),
        ("steps.1.reason", _GONE),
        ("steps.1.lines", {}),
        ("allocation", {}),
    ],
)  # fmt: skip
def test_the_schema_and_the_reader_refuse_the_same(path: str, value: Any) -> None:
    VALIDATOR.validate(RICH)
    broken = copy.deepcopy(RICH)
    _changed(path, value)(broken)
    assert not VALIDATOR.is_valid(broken)
    with pytest.raises(Refusal):
        play(Case.from_json(broken))


def test_a_case_is_the_same_bytes_in_any_order_of_its_facts() -> None:
    """Digests name the file's own bytes; every amount is the same."""

    def amounts(told: Json) -> list[Json]:
        return [
            {name: step["breakdown"][name] for name in ("fee", "lines", "payable", "state")}
            for step in told["steps"]
        ]

    for golden in GOLDEN:
        for value in case_files(golden):
            turned = copy.deepcopy(value)
            for name in ("savings", "costs", "usage", "gates"):
                turned[name].reverse()
            if value["steps"] is None:
                assert amounts(answer(turned)) == amounts(answer(value)), golden["id"]


@pytest.mark.parametrize("pieces", [1, 2, 5, 16])
def test_usage_in_any_batches_bills_the_same(pieces: int) -> None:
    whole = 10_000
    parts = [whole // pieces] * (pieces - 1) + [whole - whole // pieces * (pieces - 1)]
    told = answer(
        case(
            costs=[cost("baseline", "2.40"), cost("optimised", "1.50")],
            usage=[usage(str(part), "2026-01-05T10:00:00Z") for part in parts],
        )
    )
    assert fees(told) == ["1800.00"]


# Baselines inside a period, late usage


def test_a_reset_splits_the_month_by_use_into_two_lines() -> None:
    told = answer(
        case(
            {"baseline_policy": BaselinePolicy("reset")},
            costs=[
                cost("baseline", "2.40", id="b-1"),
                cost("baseline", "2.00", "2026-01-16T00:00:00Z", id="b-2"),
                cost("optimised", "1.50", id="u-1"),
            ],
            usage=[usage("6000", "2026-01-15T23:59:59Z"), usage("4000", "2026-01-16T00:00:00Z")],
        )
    )
    rows = told["steps"][0]["breakdown"]["lines"]
    assert [(row["baseline_id"], row["amount"], row["counterfactual"]) for row in rows] == [
        ("b-1", "1080.00", "14400.00"),
        ("b-2", "400.00", "8000.00"),
    ]
    assert fees(told) == ["1480.00"]


def test_late_usage_is_a_line_of_the_next_open_period() -> None:
    """openmeterio/openmeter#4179: occurred 20 Jan; stored 2 Feb is in, stored later is not."""
    value = case(
        periods=["2026-01", "2026-02"],
        cutoff_days=3,
        costs=[cost("baseline", "2"), cost("optimised", "1")],
        usage=[
            usage("100", "2026-01-20T00:00:00Z", received="2026-02-02T00:00:00Z"),
            usage("50", "2026-01-20T00:00:00Z", received="2026-02-09T00:00:00Z"),
            usage("7", "2026-01-20T00:00:00Z", received="2026-03-09T00:00:00Z"),
        ],
    )
    told = answer(value)
    assert fees(told) == ["20.00", "10.00"]
    (late,) = told["steps"][1]["breakdown"]["lines"]
    assert (late["segment"], late["corrects"]) == ("late from 2026-01", "2026-01")
    assert "corrects" not in told["steps"][0]["breakdown"]["lines"][0]
    assert [(row["units"], row["reason"]) for row in told["unbilled"]] == [
        ("7", "received after the cutoff of the last period")
    ]


def test_usage_before_the_contract_or_outside_its_periods_is_listed() -> None:
    """polarsource/polar#5345: nothing from before the contract bills, and it is said."""
    told = answer(
        case(
            periods=["2025-01", "2026-01"],
            costs=[cost("baseline", "2", "2024-01-01T00:00:00Z"), cost("optimised", "1")],
            usage=[
                usage("5", "2024-12-31T23:30:00Z"),
                usage("6", "2026-02-01T00:00:00Z"),
                usage("10", "2026-01-31T22:59:59Z"),
            ],
        )
    )
    assert fees(told) == ["0.00", "2.00"]
    assert [row["reason"] for row in told["unbilled"]] == [
        "before the contract's start",
        "outside the periods of the case",
    ]


def test_usage_without_a_cost_stops_the_bill() -> None:
    with pytest.raises(Refusal, match="usage without a cost never bills"):
        answer(case(costs=[cost("baseline", "2")], usage=[usage("1", "2026-01-05T00:00:00Z")]))


# Steps


def test_a_void_gives_back_recouped_cost_and_losses() -> None:
    """killbill/killbill#1464, getlago/lago-api#5653: what a void consumed is there again."""
    terms = {"recoupment": Recoupment("pool", Decimal(1000), share=Decimal("0.40"))}
    state = {
        "losses": "300", "recouped": "100", "instalments": 0, "deferred": "0",
        "settled_through": "2025-12",
    }  # fmt: skip
    steps: list[Json] = [
        {"step": "bill", "period": "2026-01"},
        {"step": "credit", "document": "CASE-1", "lines": None, "reason": "wrong meter"},
        {"step": "bill", "period": "2026-01"},
    ]
    told = answer(case(terms, savings=[saving(1300)]) | {"state": state, "steps": steps})
    assert fees(told) == ["600.00", "600.00"]
    assert told["state"]["recouped"] == "500.00"
    first, note, again = (row["document"] for row in told["documents"])
    assert (note["payable"], again["payable"]) == ("-600.00", first["payable"])
    assert answer(
        case(terms, savings=[saving(1300)]) | {"state": state, "steps": steps[:2]}
    )["state"] == {**state, "losses": "300", "recouped": "100.00"}  # fmt: skip


def test_crediting_the_recoupment_line_refills_the_pool() -> None:
    terms = {"recoupment": Recoupment("pool", Decimal(1000), share=Decimal("0.40"))}
    told = answer(
        case(
            terms,
            savings=[saving(1000)],
            steps=[
                {"step": "bill", "period": "2026-01"},
                {"step": "credit", "document": "CASE-1", "lines": {"2": "150"}, "reason": "price"},
            ],
        )
    )
    assert told["state"]["recouped"] == "250.00"


def test_a_dispute_ends_with_a_credit_and_the_audit_releases_the_rest() -> None:
    """Two lines of 100 at 10 % holdback, one credited, the other confirmed: 100 in the end."""
    told = answer(
        case(
            {"tiers": flat_share("1"), "holdback": Decimal("0.10"), "vat": Decimal("0.19")},
            savings=[saving(100), saving(100, model="B")],
            steps=[
                {"step": "bill", "period": "2026-01"},
                {"step": "dispute", "document": "CASE-1", "lines": ["2"]},
                {"step": "credit", "document": "CASE-1", "lines": {"2": "100"}, "reason": "agreed"},
                {
                    "step": "audit",
                    "document": "CASE-1",
                    "savings": [{"model": "A", "system": "s", "point": "100"}],
                },
            ],
        )
    )
    balances = told["journal"]["balances"]
    assert told["journal"]["total"] == "0.00"
    assert balances["Income:Savings-Share"] == "-100.00"
    assert balances["Liabilities:VAT"] == "-19.00"
    assert balances["Assets:Receivable"] == "119.00"
    assert Decimal(balances["Assets:Contract:Holdback"]) == 0
    assert Decimal(balances["Assets:Receivable:Disputed"]) == 0
    assert told["documents"][-1]["document"]["kind"] == "release"


def test_losses_that_an_audit_finds_count_against_later_months() -> None:
    audit = {
        "step": "audit",
        "document": "CASE-1",
        "savings": [{"model": "A", "system": "s", "point": "-400"}],
    }
    value = case(
        savings=[saving(1000), saving(1000, "2026-02"), saving(1000, "2026-03")],
        steps=[
            {"step": "bill", "period": "2026-01"},
            {"step": "bill", "period": "2026-02"},
            audit,
            {"step": "bill", "period": "2026-03"},
        ],
    )
    told = answer(value)
    assert fees(told) == ["200.00", "200.00", "120.00"]
    assert told["documents"][2]["document"]["payable"] == "-200.00"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([{"step": "resolve", "document": "CASE-1"}], "billed before: none yet"),
        ([{"step": "bill", "period": "2026-03"}], "a period of the case"),
        ([{"step": "bill", "period": "2026-01"}] * 2, "never billed again"),
        (
            [{"step": "bill", "period": "2026-01"}, {"step": "resolve", "document": "CASE-1"}],
            "an open dispute",
        ),
        (
            [
                {"step": "bill", "period": "2026-01"},
                {"step": "credit", "document": "CASE-1", "lines": {"9": "1"}, "reason": "x"},
            ],
            "a line of the invoice",
        ),
        (
            [
                {"step": "bill", "period": "2026-01", "at": "2026-02-09T00:00:00Z"},
                {"step": "dispute", "document": "CASE-1", "lines": ["1"],
                 "at": "2026-02-08T00:00:00Z"},
            ],
            "a time from",
        ),
    ],
)  # fmt: skip
def test_steps_that_contradict_each_other(steps: list[Json], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        answer(case(savings=[saving(100)], steps=steps))


def test_a_gate_needs_savings_to_hold_back() -> None:
    gate = {"period": "2026-01", "model": "Z", "system": "s", "reason": "INVALID run"}
    with pytest.raises(Refusal, match="a model with savings in 2026-01"):
        answer(case(savings=[saving(100)], gates=[gate]))


def test_versions_must_be_of_one_contract() -> None:
    two = [contract().to_json(), contract(version=2, currency="USD").to_json()]
    with pytest.raises(Refusal, match="as in the first"):
        Case.from_json(case() | {"contracts": two})
    with pytest.raises(Refusal, match="each version once"):
        Case.from_json(case() | {"contracts": [contract().to_json()] * 2})


def test_the_version_in_force_at_the_start_of_a_period_bills_it() -> None:
    """killbill/killbill#1376, #2066, through a case file."""
    start = contract().valid_from.replace(year=2026, month=2)
    later = contract(version=2, tiers=flat_share("0.50"), valid_from=start)
    value = case(savings=[saving(100), saving(100, "2026-03")])
    value["contracts"] = [later.to_json(), contract().to_json()]
    assert fees(answer(value)) == ["20.00", "50.00"]


def test_the_allocation_of_every_document_is_exact() -> None:
    told = answer(case(savings=[saving("500.05")], allocation={"a": "3", "b": "3", "c": "1"}))
    parts = [Decimal(part) for part in told["documents"][0]["allocation"].values()]
    assert parts == allocate(Decimal("100.01"), [3, 3, 1], "EUR")
    assert sum(parts) == Decimal("100.01")
