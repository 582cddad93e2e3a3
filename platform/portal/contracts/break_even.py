"""Break-even before a search: what it will cost, the gain it needs, when it has paid for itself.

In: a contract version, what the work costs a month today, earlier searches. Out: a frozen outlook
with every input named, and what searches of the contract really cost. Nothing is computed here:
`metering.contract.break_even` does, through `fee` itself; no search is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from metering.contract import Contract, Outlook, outlook, search_price, uplift_needed
from metering.decimals import exact, to_text
from metering.money import carried
from metering.plan import MeasurementPlan, Period
from portal.accounts.access import scope
from portal.accounts.models import Membership
from portal.billing.selectors import savings_list
from portal.contracts.models import ContractVersion
from portal.runs.models import Job, Tuning

SEEN_SCHEMA = "ignition.break-even-seen.v1"
# Gains that are looked at; none of them is measured or promised.
UPLIFTS = ("0.05", "0.10", "0.25", "0.50", "1.00")
WITHIN_MONTHS = (1, 3, 12)
# A search is timed on one core of the plan, and its ledger books seconds of that core.
SEARCH_CORES = 1
EARLIER = 20


@dataclass(frozen=True)
class MonthlyCost:
    """What the work costs a month as it runs now, and where that figure comes from."""

    amount: Decimal
    source: str


@dataclass(frozen=True)
class SearchOutlook:
    """Price of a search and what it would bring. `overrun`: highest cost over budget so far."""

    currency: str
    budget_s: Decimal
    price_per_core_hour: Decimal
    budget_price: Decimal
    overrun: Decimal
    searches: int
    price: Decimal
    cost: MonthlyCost
    rows: tuple[Outlook, ...]
    needed: tuple[tuple[int, Decimal | None], ...]
    method_version: str

    def to_json(self) -> dict[str, object]:
        """What the customer confirms having seen, as JSON."""
        return {
            "schema": SEEN_SCHEMA,
            "currency": self.currency,
            "budget_s": to_text(self.budget_s),
            "price_per_core_hour": to_text(self.price_per_core_hour),
            "overrun": to_text(self.overrun),
            "price": to_text(self.price),
            "monthly_cost": to_text(self.cost.amount),
            "monthly_cost_source": self.cost.source,
            "months_to_pay_back": {
                to_text(row.uplift): row.found.months_to_pay_back for row in self.rows
            },
        }


def search_outlook(
    *, actor: Membership, version: ContractVersion, monthly_cost: Decimal | None = None
) -> SearchOutlook:
    """The outlook of one more search under a contract version, at a stated or a known cost."""
    contract, plan = Contract.from_json(version.contract), MeasurementPlan.from_json(version.plan)
    hourly = Decimal(version.price_book.document["price_per_core_hour"])
    budget = Decimal(plan.search_budget_s)
    earlier = [row for row in search_rows(actor=actor, version=version) if row.budget_s]
    with exact():
        overrun = max((carried(row.seconds / row.budget_s) for row in earlier), default=Decimal(1))
        overrun = max(overrun, Decimal(1))
        budget_price = search_price(budget, SEARCH_CORES, hourly)
        price = carried(budget_price * overrun)
    cost = (
        MonthlyCost(monthly_cost, "stated by you")
        if monthly_cost is not None
        else known_cost(actor=actor, version=version)
    )
    return SearchOutlook(
        currency=contract.currency,
        budget_s=budget,
        price_per_core_hour=hourly,
        budget_price=carried(budget_price),
        overrun=overrun,
        searches=len(earlier),
        price=price,
        cost=cost,
        rows=outlook(contract, price, cost.amount, UPLIFTS),
        needed=tuple((n, uplift_needed(price, cost.amount, n)) for n in WITHIN_MONTHS),
        method_version=plan.method_version,
    )


def known_cost(*, actor: Membership, version: ContractVersion) -> MonthlyCost:
    """The newest counterfactual of the contract; before one is there, its cores round the clock."""
    found = (
        savings_list(actor=actor)
        .filter(period__contract_id=version.contract_id)
        .order_by("-period__starts_at")
        .first()
    )
    if found is not None and found.counterfactual > 0:
        return MonthlyCost(
            found.counterfactual, f"counterfactual of {found.period.label}: volume at the baseline"
        )
    plan = MeasurementPlan.from_json(version.plan)
    month = Period.month_of(timezone.now(), str(version.contract["zone"]))
    with exact():
        hours = month.hours * len(plan.cores)
        amount = carried(hours * version.price_book.price_per_core_hour)
    return MonthlyCost(
        amount,
        f"{len(plan.cores)} cores around the clock in {month.label}: no usage is billed yet, so"
        " state your own figure",
    )


def search_rows(*, actor: Membership, version: ContractVersion) -> QuerySet[Tuning]:
    """Finished searches of the contract with what they cost: for those who see its money.

    Operators, who see searches, do not see this; finance, which sees no kernels, does.
    """
    rows = Tuning.objects.filter(
        state=Tuning.State.DONE, baseline__contract_version__contract_id=version.contract_id
    )
    return scope(actor, rows, "contracts").order_by("-created_at")[:EARLIER]


def confirmed(*, actor: Membership, version: ContractVersion) -> Mapping[str, Any] | None:
    """What the customer confirmed when asking for the version's measurement, if anything."""
    job = scope(actor, Job.objects.filter(kind="measure", key=str(version.pk)), "contracts").first()
    found: Mapping[str, Any] | None = job.arguments.get("break_even") if job else None
    return found
