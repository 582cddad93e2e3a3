"""Contract records: what is refused, by field name, and what survives JSON."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from metering import canonical
from metering.contract import (
    BaselinePolicy,
    Contract,
    FeeBreakdown,
    FeeLine,
    LedgerState,
    Party,
    Recoupment,
    Tier,
    VerifiedSavings,
    fee,
)
from metering.refusal import Refusal
from tests.metering.money_cases import (
    CUSTOMER,
    PROVIDER,
    START,
    contract,
    line,
    verified,
)

COST = Decimal(120)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"currency": "EURO"}, "contract.currency"),
        ({"zone": "CET+1"}, "contract.zone"),
        ({"contract_id": ""}, "contract.contract_id"),
        ({"version": -1}, "contract.version"),
        ({"tiers": ()}, "contract.tiers"),
        ({"tiers": (Tier(Decimal(5), Decimal("0.1")),)}, "contract.tiers"),
        ({"tiers": (Tier(None, Decimal("1.1")),)}, "contract.tiers[0].rate"),
        (
            {"tiers": (Tier(COST, COST - COST), Tier(COST, COST - COST), Tier(None, Decimal(0)))},
            "contract.tiers[1].upper",
        ),
        ({"bound": "upper_95"}, "contract.bound"),
        ({"cap": Decimal("0.001")}, "contract.cap"),
        ({"cap": Decimal(-1)}, "contract.cap"),
        ({"minimum": Decimal(5), "cap": Decimal(4)}, "contract.minimum"),
        ({"holdback": 0.1}, "contract.holdback"),
        ({"holdback": Decimal(10)}, "contract.holdback"),
        ({"vat": Decimal(19)}, "contract.vat"),
        ({"vat": Decimal("0.19"), "tax_category": "Z"}, "contract.tax_category"),
        ({"tax_category": "E"}, "contract.tax_exemption_reason"),
        (
            {"recoupment": Recoupment("pool", Decimal(1), share=Decimal("0.81"))},
            "contract.recoupment.share",
        ),
        ({"rounding": "ROUND_HALF_EVEN"}, "contract.rounding"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_bad_terms_are_refused_by_name(change: Any, field: str) -> None:
    with pytest.raises(Refusal) as refused:
        contract(**change)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "build",
    [
        lambda: Recoupment("gift", Decimal(1)),
        lambda: Recoupment("pool", Decimal(1)),
        lambda: Recoupment("pool", Decimal(-1), share=Decimal("0.1")),
        lambda: Recoupment("amortised", Decimal(1)),
        lambda: Recoupment("amortised", Decimal(1), months=0),
        lambda: BaselinePolicy("annual"),
        lambda: BaselinePolicy("glide"),
        lambda: BaselinePolicy("fixed", Decimal("0.5")),
        lambda: Party("x", "X", "Germany"),
        lambda: Party("", "X", "DE"),
        lambda: Party("x", "X", "DE", endpoint="1"),
        lambda: LedgerState(losses=Decimal(-1)),
        lambda: LedgerState(instalments=-1),
        lambda: line(1, bound=Decimal(2)),
        lambda: line(1, model=""),
        lambda: line(1, counterfactual=Decimal(-1)),
        lambda: VerifiedSavings(verified([]).period, "EUR", (), ""),
    ],
)
def test_records_that_contradict_themselves_are_refused(build: Any) -> None:
    with pytest.raises(Refusal):
        build()


def test_inputs_that_do_not_fit_together_stop_the_invoice() -> None:
    """killbill/killbill#640: a contract that cannot be read must bill nothing, not guess."""
    with pytest.raises(Refusal, match="contract's currency"):
        fee(contract(currency="USD"), LedgerState(), verified([line(1)]))
    with pytest.raises(Refusal, match="cut the period"):
        fee(contract(zone="UTC"), LedgerState(), verified([line(1)]))
    with pytest.raises(Refusal, match="contract's start"):
        fee(contract(), LedgerState(), verified([line(1)], month="2024-12"))


@pytest.mark.parametrize("name", sorted(contract().to_json()))
def test_no_field_of_a_contract_may_be_missing(name: str) -> None:
    """A cap that is left out is not the same as no cap."""
    terms = contract(
        cap=Decimal(1), tax_category="E", tax_exemption_reason="export", recoupment=None
    ).to_json()
    del terms[name]
    with pytest.raises(Refusal):
        Contract.from_json(terms)


def test_state_savings_and_lines_survive_json() -> None:
    state = LedgerState(Decimal("1.5"), Decimal("2.00"), 3, Decimal(4), "2026-10")
    assert LedgerState.from_json(canonical.loads(canonical.dumps(state.to_json()))) == state
    savings = verified([line("1.5", volume=7, segment="after"), line(-2, model="B", gate="x")])
    assert VerifiedSavings.from_json(canonical.loads(canonical.dumps(savings.to_json()))) == savings
    result = fee(contract(), LedgerState(), savings)
    assert FeeBreakdown.from_json(canonical.loads(canonical.dumps(result.to_json()))) == result
    for row in result.lines:
        assert FeeLine.from_json(canonical.loads(canonical.dumps(row.to_json()))) == row
    for party in (PROVIDER, CUSTOMER, Party("x", "X", "AT")):
        assert Party.from_json(party.to_json()) == party


def test_foreign_fields_are_refused() -> None:
    for value, read in (
        ({**contract().to_json(), "discount": "1"}, Contract.from_json),
        ({**LedgerState().to_json(), "gift": "1"}, LedgerState.from_json),
        (
            {**verified([]).to_json(), "lines": [{**line(1).to_json(), "x": 1}]},
            VerifiedSavings.from_json,
        ),
    ):
        with pytest.raises(Refusal, match="does not know"):
            read(value)


def test_terms_are_frozen_and_named_in_the_digest() -> None:
    assert replace(contract(), payment_days=14).digest != contract().digest
    assert contract().valid_from == START
