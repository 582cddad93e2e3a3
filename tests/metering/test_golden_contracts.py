"""Every hand-computed case of tests/golden/contracts.json, through public functions."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering.contract import (
    BaselinePolicy,
    LedgerState,
    Recoupment,
    Tier,
    VerifiedLine,
    effective_baselines,
    fee,
    flat_share,
    release_or_credit,
)
from metering.decimals import to_text
from metering.fields import parse_instant
from metering.ledger import credit_note, dispute
from metering.money import allocate, line_amount, to_minor_units
from metering.plan import Period, anchored_starts
from metering.refusal import Refusal
from metering.savings import (
    combine_standard_errors,
    linear_window,
    lower_bound,
    t_95_one_sided,
    unit_cost_savings,
)
from tests.metering.money_cases import ISSUED, bill, contract, invoice, line, months, verified

CASES = json.loads((Path(__file__).parents[1] / "golden" / "contracts.json").read_text())["cases"]
Given = dict[str, Any]


def share(given: Given) -> Any:
    return contract(currency=given["currency"], tiers=flat_share(given["share"]))


def g1(given: Given) -> Given:
    counterfactual, actual = Decimal(given["counterfactual_cost"]), Decimal(given["actual_cost"])
    assert counterfactual - actual == Decimal(given["savings"])
    savings = line(given["savings"], counterfactual=counterfactual)
    result = fee(share(given), LedgerState(), verified([savings]))
    return {"fee": to_text(result.fee)}


def g2(given: Given) -> Given:
    point = Decimal(given["savings"])
    bound = lower_bound(point, given["standard_error"], given["df"])
    if "t_95_one_sided" in given:
        assert t_95_one_sided(given["df"]) == Decimal(given["t_95_one_sided"])
    row = VerifiedLine("A", "s", point, bound, Decimal(given["counterfactual_cost"]))
    result = fee(share(given), LedgerState(), verified([row]))
    answer = {"fee": to_text(result.fee)}
    if result.fee:
        return answer | {"billable_savings": to_text(result.chargeable.normalize())}
    return answer | {"status": result.status}


def g3(given: Given) -> Given:
    tiers = tuple(Tier(None if u is None else Decimal(u), Decimal(r)) for u, r in given["tiers"])
    terms = contract(tiers=tiers)
    return {"fees": [to_text(bill(terms, savings).fee) for savings in given["savings"]]}


def g4(given: Given) -> Given:
    terms = contract(tiers=flat_share("1"), cap=Decimal(given["cap"]))
    result = bill(terms, given["uncapped_fee"])
    return {"fee": to_text(result.fee), "excess": to_text(result.excess)}


def monthly(given: Given) -> Given:
    savings = given.get("monthly_savings") or given["savings"]
    return {"fees": [to_text(result.fee) for result in months(share(given), savings)]}


def g6(given: Given) -> Given:
    terms = contract(minimum=Decimal(given["minimum"]))
    return {"fees": [to_text(bill(terms, savings).fee) for savings in given["savings"]]}


def g7(given: Given) -> Given:
    terms = contract(holdback=Decimal(given["holdback"]), vat=Decimal(given["vat"]))
    invoiced = bill(terms, given["savings"])
    outcomes = []
    for audited in given["audited_savings"]:
        outcome = release_or_credit(terms, invoiced, bill(terms, audited))
        shown = {name: to_text(getattr(outcome, name)) for name in ("net", "gross", "cumulative")}
        outcomes.append({"document": outcome.document, "vat": to_text(outcome.tax)} | shown)
    names = {"fee": "fee", "holdback": "holdback", "net": "net", "vat": "tax", "payable": "payable"}
    document = {name: to_text(getattr(invoiced, field)) for name, field in names.items()}
    return {"invoice": document, "audit": outcomes}


def g8_pool(given: Given) -> Given:
    pool = Recoupment("pool", Decimal(given["pool"]), share=Decimal(given["recoup_share"]))
    results = months(contract(recoupment=pool), given["savings"])
    assert results[-1].state.recouped <= pool.amount
    return {"fees": [to_text(result.fee) for result in results]}


def g8_amortised(given: Given) -> Given:
    term = Recoupment("amortised", Decimal(given["amortise"]), months=given["months"])
    results = months(contract(recoupment=term), given["savings"])
    return {"fees": [to_text(result.fee) for result in results]}


def g9(given: Given) -> Given:
    savings = unit_cost_savings(
        given["mtok"], given["baseline_per_mtok"], given["optimised_per_mtok"]
    )
    return {"savings": to_text(savings), "fee": to_text(bill(share(given), savings).fee)}


def g9_ratchet(given: Given) -> Given:
    costs = [Decimal(cost) for cost in given["baseline_history"]]
    effective = effective_baselines(BaselinePolicy("ratchet"), costs)
    return {"effective_baseline": [to_text(cost) for cost in effective]}


def g9_glide(given: Given) -> Given:
    policy = BaselinePolicy("glide", Decimal(given["glide"]))
    cost = effective_baselines(policy, [Decimal(given["old"]), Decimal(given["new"])])[-1]
    savings = unit_cost_savings(given["mtok"], cost, given["optimised_per_mtok"])
    answer = {"effective_baseline": to_text(cost.quantize(Decimal("0.01")))}
    return answer | {"fee": to_text(bill(share(given), savings).fee)}


def g9_split(given: Given) -> Given:
    rows = []
    for name in ("before", "after"):
        part = given[name]
        savings = unit_cost_savings(part["mtok"], part["baseline"], given["optimised_per_mtok"])
        rows.append(line(savings, segment=name))
    result = fee(share(given), LedgerState(), verified(rows, given["currency"]))
    return {"fee": to_text(result.fee)}


def g10(given: Given) -> Given:
    rows = [
        line(unit_cost_savings(row["mtok"], row["baseline"], row["optimised"]), model=row["model"])
        for row in given["lines"]
    ]
    result = fee(share(given), LedgerState(), verified(rows, given["currency"]))
    return {"net_savings": to_text(result.net_savings), "fee": to_text(result.fee)}


def g11(given: Given) -> Given:
    allocations = [
        allocate(Decimal(case["amount"]), case["weights"], case["currency"])
        for case in given["cases"]
    ]
    return {"allocations": [[to_text(part) for part in parts] for parts in allocations]}


def g12(given: Given) -> Given:
    return {"fee": to_text(bill(share(given), given["savings"]).fee)}


def g13(given: Given) -> Given:
    return {"fees": [to_text(bill(share(case), case["savings"]).fee) for case in given["cases"]]}


def g14(given: Given) -> Given:
    errors = given["standard_errors"]
    return {
        "independent": to_text(combine_standard_errors(errors, shared_baseline=False)),
        "shared_baseline": to_text(combine_standard_errors(errors, shared_baseline=True)),
    }


def g15(given: Given) -> Given:
    terms = contract(tiers=flat_share("1"))
    document = invoice(terms, bill(terms, *given["lines"]))
    contested = [document.lines[index].line_id for index in given["disputed"]]
    split = dispute(document, contested, on=date(2026, 12, 10))
    assert sum(entry.amount for entry in split.entries) == 0
    return {"collectible": to_text(split.collectible), "disputed": to_text(split.disputed)}


def g16(given: Given) -> Given:
    rows = [line(row["savings"], model=row["model"], gate=row["gate"]) for row in given["lines"]]
    result = fee(share(given), LedgerState(), verified(rows, given["currency"]))
    assert any("accuracy below floor" in reason for reason in result.reasons)
    return {
        "fee": to_text(result.fee),
        "lines": [to_text(row.amount) for row in result.lines],
    }


def b10(given: Given) -> Given:
    event = parse_instant(given["event"])
    return {"period": Period.month_of(event, given["zone"]).label}


def b13(given: Given) -> Given:
    hours = [Period.month(month, given["zone"]).hours for month in given["months"]]
    return {"hours": [int(value) for value in hours if value == int(value)]}


def b15(given: Given) -> Given:
    starts = anchored_starts(date.fromisoformat(given["start"]), given["months"])
    return {"period_starts": [start.isoformat() for start in starts]}


def b22(given: Given) -> Given:
    terms = contract(tiers=flat_share("1"), vat=Decimal(given["vat"]))
    document = invoice(terms, bill(terms, *given["net_lines"]))
    notes: list[Any] = []
    for number, row in enumerate(document.lines, start=1):
        notes.append(
            credit_note(
                document, number=f"CN-{number}", series="CN", issued_at=ISSUED, reason="returned",
                amounts={row.line_id: row.amount}, previous=notes,
            )
        )  # fmt: skip
    credited = -sum((note.payable for note in notes), Decimal(0))
    return {"gross": to_text(document.payable), "sum_of_credit_notes": to_text(credited)}


def b24(given: Given) -> Given:
    amount = line_amount(given["quantity"], given["unit_price"], given["currency"])
    return {"amount": to_text(amount)}


def b31(given: Given) -> Given:
    units = to_minor_units(given["price"], given["currency"])
    with pytest.raises(Refusal, match="float"):
        to_minor_units(float(given["price"]), given["currency"])
    return {"minor_units": units, "float_input": "rejected"}


def b43(given: Given) -> Given:
    windows = [linear_window(given["daily_savings"], days) for days in given["windows_days"]]
    return {"savings": [to_text(savings) for savings in windows]}


SOLVERS: dict[str, Callable[[Given], Given]] = {
    "G1": g1, "G2a": g2, "G2b": g2, "G3": g3, "G4": g4, "G5": monthly, "G6": g6, "G7": g7,
    "G8a": g8_pool, "G8b": g8_pool, "G8c": g8_amortised, "G9a": g9, "G9b": g9,
    "G9c": g9_ratchet, "G9d": g9_glide, "G9e": g9_split, "G10": g10, "G11": g11, "G12": g12,
    "G13": g13, "G14": g14, "G15": g15, "G16": g16, "B10": b10, "B13": b13, "B15": b15,
    "B22": b22, "B24": b24, "B31": b31, "B43": b43,
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_golden(case: Given) -> None:
    answer = SOLVERS[case["id"]](case["given"])
    assert {name: answer[name] for name in case["expect"]} == case["expect"]


def test_every_case_has_its_solver() -> None:
    assert sorted(SOLVERS) == sorted(case["id"] for case in CASES)
