"""Whatever the contract and the facts: what must hold of every case that is played."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from metering.cases import Case, play
from metering.contract import Contract
from metering.money import quantize
from tests.metering.money_cases import UNHURRIED, contract
from tests.metering.test_cases import cost, usage
from tests.metering.test_contract import contracts

FEW = settings(parent=UNHURRIED, max_examples=40)
MONTHS = ("2026-01", "2026-02", "2026-03")
POINTS = st.decimals(min_value=-(10**5), max_value=10**6, places=3)
UNITS = st.integers(0, 10**5)


@st.composite
def stated(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Up to four lines a month, some without a counterfactual, some uncertain."""
    rows = []
    for month in MONTHS:
        for number in range(draw(st.integers(0, 4))):
            point = draw(POINTS)
            more: dict[str, Any] = draw(
                st.sampled_from(
                    [{}, {"standard_error": "750.5", "df": 11, "baseline_id": "b"},
                     {"counterfactual": "400000"}]
                )
            )  # fmt: skip
            rows.append(
                {"period": month, "model": f"M{number}", "system": "s", "point": str(point), **more}
            )
    return rows


def played(terms: Contract, **parts: Any) -> Any:
    return play(
        Case.from_json(
            {
                "schema": "ignition.fee-case.v2",
                "contracts": [terms.to_json()],
                "state": None,
                "periods": list(MONTHS),
                **parts,
            }
        )
    )


@FEW
@given(contracts(), stated(), st.sampled_from(["each", "joint"]))
def test_lines_sum_and_fees_stay_below_savings_below_counterfactual(
    terms: Contract, rows: list[dict[str, Any]], uncertainty: str
) -> None:
    answer = played(terms, savings=rows, uncertainty=uncertainty)
    assert sum((entry.amount for entry in answer.entries), Decimal(0)) == 0
    for done, document in zip(answer.steps, answer.documents, strict=True):
        bill = done.breakdown
        assert sum((line.amount for line in document.lines), Decimal(0)) == document.fee
        assert 0 <= bill.fee <= bill.chargeable or bill.fee == 0
        for line in bill.lines:
            if line.counterfactual is not None:
                assert line.billed_savings <= line.counterfactual
        if bill.counterfactual is not None:
            assert bill.chargeable <= bill.counterfactual


@FEW
@given(contracts(), stated(), st.integers(0, 3))
def test_crediting_everything_leaves_nothing(
    terms: Contract, rows: list[dict[str, Any]], part: int
) -> None:
    """In one note, or first a part of line 1 and then all that is left."""
    steps: list[dict[str, Any]] = [{"step": "bill", "period": month} for month in MONTHS]
    bare = played(terms, savings=rows, steps=steps)
    for number, document in enumerate(bare.documents, start=1):
        name = f"CASE-{number}"
        piece = quantize(document.lines[0].amount * part / 3, terms.currency)
        if piece:
            steps.append(
                {"step": "credit", "document": name, "lines": {"1": str(piece)}, "reason": "a part"}
            )
        steps.append({"step": "credit", "document": name, "lines": None, "reason": "the rest"})
    answer = played(terms, savings=rows, steps=steps)
    for amount in ("fee", "holdback", "net", "tax", "payable"):
        assert sum((getattr(row, amount) for row in answer.documents), Decimal(0)) == 0
    sums: dict[str, Decimal] = {}
    for entry in answer.entries:
        sums[entry.account] = sums.get(entry.account, Decimal(0)) + entry.amount
    assert not any(sums.values())
    assert answer.state.recouped == 0


@FEW
@given(st.lists(st.tuples(UNITS, st.integers(1, 28)), min_size=1, max_size=12), st.randoms())
def test_order_and_batching_of_usage_never_change_an_amount(
    volumes: list[tuple[int, int]], shuffled: random.Random
) -> None:
    rows = [usage(str(units), f"2026-01-{day:02d}T08:00:00Z") for units, day in volumes]
    halves = [
        {**row, "units": str(piece)}
        for row, (units, _) in zip(rows, volumes, strict=True)
        for piece in (units // 2, units - units // 2)
    ]
    shuffled.shuffle(halves)
    costs = [
        cost("baseline", "2.40"),
        cost("baseline", "2.00", "2026-01-10T00:00:00Z"),
        cost("optimised", "1.37"),
    ]
    one, two = (played(contract(), costs=costs, usage=given) for given in (rows, halves))
    assert [document.fee for document in one.documents] == [d.fee for d in two.documents]
    assert [line.to_json() for line in one.steps[0].breakdown.lines] == [
        line.to_json() for line in two.steps[0].breakdown.lines
    ]


@FEW
@given(st.integers(1, 10**6), st.integers(1, 31))
def test_a_window_of_days_saves_so_many_times_one_day(units: int, days: int) -> None:
    """kubecost/kubectl-cost#96: a monthly figure was multiplied by days once more."""
    costs = [cost("baseline", "2.40"), cost("optimised", "1.50")]
    day = [usage(str(units), "2026-01-01T08:00:00Z")]
    window = [usage(str(units), f"2026-01-{n:02d}T08:00:00Z") for n in range(1, days + 1)]
    one, many = (played(contract(), costs=costs, usage=given) for given in (day, window))
    assert many.steps[0].breakdown.net_savings == days * one.steps[0].breakdown.net_savings
