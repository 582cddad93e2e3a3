"""Every document that the golden cases lead to, built through the public functions.

In: tests/golden/contracts.json.
Out: per case, the invoices, releases and credit notes of its fees. Cases about something else
(periods, allocation, standard errors) have none; `WITHOUT` names them, so that a new case cannot
be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

from metering.contract import (
    BaselinePolicy,
    Contract,
    FeeBreakdown,
    LedgerState,
    Recoupment,
    Tier,
    VerifiedLine,
    effective_baselines,
    fee,
    flat_share,
    release_or_credit,
)
from metering.ledger import Invoice, audit_document, credit_note
from metering.savings import lower_bound, unit_cost_savings
from tests.metering.money_cases import ISSUED, bill, contract, invoice, line, months, verified

Given = dict[str, Any]
LATER = ISSUED + timedelta(days=40)
CASES: dict[str, Given] = {
    case["id"]: case
    for case in json.loads(
        (Path(__file__).parents[1] / "golden" / "contracts.json").read_text(encoding="utf-8")
    )["cases"]
}
WITHOUT = ("B10", "B13", "B15", "B24", "B31", "B43", "G9c", "G11", "G14")
"""Cases without a fee: periods, one amount, windows, baselines, allocation, standard errors."""


def golden_documents() -> dict[str, list[Invoice]]:
    """Documents by case id; every number is used once over all cases."""
    numbers = (f"{10_000 + number}" for number in count())
    return {
        name: list(_BUILDERS[name](case["given"], numbers))
        for name, case in CASES.items()
        if name not in WITHOUT
    }


def _issued(
    terms: Contract, breakdowns: Sequence[FeeBreakdown], numbers: Iterator[str]
) -> list[Invoice]:
    return [invoice(terms, breakdown, f"INV-{next(numbers)}") for breakdown in breakdowns]


def _share(given: Given) -> Contract:
    return contract(currency=given["currency"], tiers=flat_share(given["share"]))


def _billed(given: Given, terms: Contract, lines: Sequence[VerifiedLine]) -> list[FeeBreakdown]:
    return [fee(terms, LedgerState(), verified(lines, given["currency"]))]


def _flat(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    cost = given.get("counterfactual_cost")
    row = line(given["savings"], counterfactual=None if cost is None else Decimal(cost))
    terms = _share(given)
    return _issued(terms, _billed(given, terms, [row]), numbers)


def _bound(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    point = Decimal(given["savings"])
    bound = lower_bound(point, given["standard_error"], given["df"])
    row = VerifiedLine("A", "s", point, bound, Decimal(given["counterfactual_cost"]))
    terms = _share(given)
    return _issued(terms, _billed(given, terms, [row]), numbers)


def _tiers(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    tiers = tuple(Tier(None if u is None else Decimal(u), Decimal(r)) for u, r in given["tiers"])
    terms = contract(tiers=tiers)
    return _issued(terms, [bill(terms, savings) for savings in given["savings"]], numbers)


def _cap(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    terms = contract(tiers=flat_share("1"), cap=Decimal(given["cap"]))
    return _issued(terms, [bill(terms, given["uncapped_fee"])], numbers)


def _monthly(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    savings = given.get("monthly_savings") or given["savings"]
    terms = _share(given)
    return _issued(terms, months(terms, savings), numbers)


def _minimum(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    terms = contract(minimum=Decimal(given["minimum"]))
    return _issued(terms, [bill(terms, savings) for savings in given["savings"]], numbers)


def _audited(given: Given, numbers: Iterator[str]) -> Iterator[Invoice]:
    """One invoice with holdback per audit: released in full, in part, or credited."""
    for moment in ("release", "issue"):
        terms = contract(
            holdback=Decimal(given["holdback"]), vat=Decimal(given["vat"]), holdback_tax=moment
        )
        invoiced = bill(terms, given["savings"])
        for audited in given["audited_savings"]:
            first = invoice(terms, invoiced, f"INV-{next(numbers)}")
            outcome = release_or_credit(terms, invoiced, bill(terms, audited))
            series = "CN" if outcome.document == "credit_note" else "INV"
            yield first
            yield audit_document(
                first, outcome, number=f"{series}-{next(numbers)}", series=series, issued_at=LATER
            )


def _pool(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    pool = Recoupment("pool", Decimal(given["pool"]), share=Decimal(given["recoup_share"]))
    terms = contract(recoupment=pool)
    return _issued(terms, months(terms, given["savings"]), numbers)


def _amortised(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    term = Recoupment("amortised", Decimal(given["amortise"]), months=given["months"])
    terms = contract(recoupment=term)
    return _issued(terms, months(terms, given["savings"]), numbers)


def _unit_costs(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    cost = given.get("baseline_per_mtok")
    if cost is None:
        policy = BaselinePolicy("glide", Decimal(given["glide"]))
        cost = effective_baselines(policy, [Decimal(given["old"]), Decimal(given["new"])])[-1]
    savings = unit_cost_savings(given["mtok"], cost, given["optimised_per_mtok"])
    terms = _share(given)
    return _issued(terms, [bill(terms, savings)], numbers)


def _split(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    rows = [
        line(
            unit_cost_savings(
                given[name]["mtok"], given[name]["baseline"], given["optimised_per_mtok"]
            ),
            segment=name,
        )
        for name in ("before", "after")
    ]
    terms = _share(given)
    return _issued(terms, _billed(given, terms, rows), numbers)


def _mix(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    rows = [
        line(unit_cost_savings(row["mtok"], row["baseline"], row["optimised"]), model=row["model"])
        for row in given["lines"]
    ]
    terms = _share(given)
    return _issued(terms, _billed(given, terms, rows), numbers)


def _currencies(given: Given, numbers: Iterator[str]) -> Iterator[Invoice]:
    for case in given["cases"]:
        yield from _flat(case, numbers)


def _disputed(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    terms = contract(tiers=flat_share("1"))
    return _issued(terms, [bill(terms, *given["lines"])], numbers)


def _gated(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    rows = [line(row["savings"], model=row["model"], gate=row["gate"]) for row in given["lines"]]
    terms = _share(given)
    return _issued(terms, _billed(given, terms, rows), numbers)


def _credited(given: Given, numbers: Iterator[str]) -> list[Invoice]:
    """Four lines, each credited by a note of its own."""
    terms = contract(tiers=flat_share("1"), vat=Decimal(given["vat"]))
    document = invoice(terms, bill(terms, *given["net_lines"]), f"INV-{next(numbers)}")
    notes: list[Invoice] = []
    for row in document.lines:
        notes.append(
            credit_note(
                document, number=f"CN-{next(numbers)}", series="CN", issued_at=LATER,
                reason="returned", amounts={row.line_id: row.amount}, previous=notes,
            )
        )  # fmt: skip
    return [document, *notes]


_BUILDERS: dict[str, Callable[[Given, Iterator[str]], Sequence[Invoice] | Iterator[Invoice]]] = {
    "G1": _flat, "G2a": _bound, "G2b": _bound, "G3": _tiers, "G4": _cap, "G5": _monthly,
    "G6": _minimum, "G7": _audited, "G8a": _pool, "G8b": _pool, "G8c": _amortised,
    "G9a": _unit_costs, "G9b": _unit_costs, "G9d": _unit_costs, "G9e": _split, "G10": _mix,
    "G12": _flat, "G13": _currencies, "G15": _disputed, "G16": _gated, "B22": _credited,
}  # fmt: skip


def in_category(document: Invoice, category: str) -> Invoice:
    """The document of a contract without VAT, in one of the norm's other tax categories."""
    return replace(
        document, tax_category=category, tax_exemption_reason=f"Category {category} by agreement"
    )
