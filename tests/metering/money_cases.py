"""Builders the money tests share: one contract, one plan, one set of savings."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, settings

from metering.contract import (
    Contract,
    FeeBreakdown,
    LedgerState,
    Party,
    VerifiedLine,
    VerifiedSavings,
    fee,
    flat_share,
)
from metering.ledger import Invoice, build_invoice
from metering.plan import MeasurementPlan, Period, Seeds, short_run_plan

ZONE = "Europe/Berlin"
PROVIDER = Party(
    "ignition", "Ignition GmbH", "DE", tax_id="DE123456789", street="Werkstr. 1", city="Berlin",
    postal_code="10115", endpoint="123456789", endpoint_scheme="0204",
)  # fmt: skip
CUSTOMER = Party(
    "c-001", "Example Inference AG", "DE", tax_id="DE987654321", city="Hamburg",
    postal_code="20095", endpoint="987654321", endpoint_scheme="0204",
)  # fmt: skip
START = datetime(2025, 1, 1, tzinfo=UTC)
ISSUED = datetime(2026, 12, 1, 9, tzinfo=UTC)


# Other work may share the cores: a slow example is no failure. The same examples on every run.
UNHURRIED = settings(
    deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=100
)


def contract(**changes: Any) -> Contract:
    """A contract with a flat share of 20 % and nothing else, changed by keyword."""
    terms: dict[str, Any] = {
        "contract_id": "C-1",
        "version": 1,
        "provider": PROVIDER,
        "customer": CUSTOMER,
        "auditor": "Independent Audit e.K.",
        "currency": "EUR",
        "zone": ZONE,
        "valid_from": START,
        "tiers": flat_share("0.20"),
    }
    return Contract(**(terms | changes))


def line(savings: object, **changes: Any) -> VerifiedLine:
    """Savings known exactly: point and bound are the same."""
    amount = Decimal(str(savings))
    values: dict[str, Any] = {"model": "A", "system": "s", "point": amount, "bound": amount}
    return VerifiedLine(**(values | changes))


def verified(
    lines: Sequence[VerifiedLine], currency: str = "EUR", month: str = "2026-11"
) -> VerifiedSavings:
    """Approved savings of one month."""
    return VerifiedSavings(Period.month(month, ZONE), currency, tuple(lines), "e" * 64)


def bill(terms: Contract, *savings: object, state: LedgerState | None = None) -> FeeBreakdown:
    """Fee of one month with one line per amount."""
    lines = [line(amount, model=f"M{index}") for index, amount in enumerate(savings)]
    return fee(terms, state or LedgerState(), verified(lines, terms.currency))


def months(terms: Contract, savings: Sequence[object]) -> list[FeeBreakdown]:
    """Fees of following months, each with the state of the one before."""
    state, results = LedgerState(), []
    for number, amount in enumerate(savings, start=1):
        result = fee(terms, state, verified([line(amount)], terms.currency, f"2026-{number:02d}"))
        state = result.state
        results.append(result)
    return results


def plan() -> MeasurementPlan:
    """A short-run plan on two cores."""
    return short_run_plan("P-1", cores=[0, 1], zone=ZONE, seeds=Seeds(1, 2, 3, 2**64 - 1))


def invoice(terms: Contract, breakdown: FeeBreakdown, number: str = "INV-2026-0001") -> Invoice:
    """The issued document of a breakdown."""
    return build_invoice(
        breakdown, contract=terms, plan=plan(), number=number, series="INV", issued_at=ISSUED
    )
