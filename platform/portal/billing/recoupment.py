"""The search pool of a contract: every search booked at what its ledger says, failed ones too.

In: the ledger that kernelgen wrote while it searched. Out: one row per search that never changes;
the next period's fee recoups no more than the rows sum to. Adding up is `metering.ledger`'s.
"""

from decimal import Decimal

from django.db import transaction

from metering.ledger import Pool, SearchCost, read_ledger
from portal.accounts.access import Actor, require
from portal.accounts.models import Organisation
from portal.billing.models import SavingsRecord
from portal.billing.models import SearchCost as SearchCostRow
from portal.billing.savings import BillingError
from portal.events.services import event_record
from portal.runs.models import Measurement, Tuning
from portal.workspace import absolute


@transaction.atomic
def search_cost_book(*, actor: Actor, tuning: Tuning, ledger: str) -> SearchCostRow:
    """Book a search into the pool of the contract it was made for, once.

    Refusal when the ledger does not add up; BillingError when its currency is not the contract's.
    """
    require(actor, "invoice.issue", tuning.organisation)
    version = tuning.baseline.contract_version
    cost = read_ledger(ledger)
    found: SearchCostRow | None = SearchCostRow.objects.filter(tuning=tuning).first()
    if found:
        if found.ledger_sha256 != cost.ledger_sha256:
            raise BillingError(f"{tuning}: booked already from another ledger")
        return found
    if cost.currency != version.contract["currency"]:
        raise BillingError(
            f"ledger: got {cost.currency}; wanted {version.contract['currency']}, the contract's"
        )
    row = SearchCostRow(
        organisation=tuning.organisation,
        contract_id=version.contract_id,
        tuning=tuning,
        currency=cost.currency,
        cost=cost.cost,
        document=cost.to_json(),
        ledger_sha256=cost.ledger_sha256,
    )
    row.save(force_insert=True)
    event_record(
        action="search_cost.book",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={
            "contract_id": row.contract_id,
            "cost": str(cost.cost),
            "currency": row.currency,
            "ledger_sha256": row.ledger_sha256,
        },
    )
    return row


def book_measured_search(*, actor: Actor, measurement: Measurement) -> SearchCostRow | None:
    """Book the search behind a measurement from the ledger in its evidence.

    Only where the contract recoups searches. None when the evidence holds no ledger: then nothing
    is recorded, and so nothing is recouped.
    """
    version = measurement.contract_version
    path = absolute(measurement.evidence_path) / "kernel" / "ledger.jsonl"
    if version.contract["recoupment"] is None or not path.is_file():
        return None
    return search_cost_book(
        actor=actor, tuning=measurement.package.tuning, ledger=path.read_text("utf-8")
    )


def pool_of(*, organisation: Organisation, contract_id: str) -> Pool:
    """Every search of a contract, and what its latest computed period had recouped by then."""
    rows = SearchCostRow.objects.filter(organisation=organisation, contract_id=contract_id)
    latest = (
        SavingsRecord.objects.filter(organisation=organisation, period__contract_id=contract_id)
        .order_by("-period__label")
        .first()
    )
    recouped = Decimal(latest.document["breakdown"]["state"]["recouped"]) if latest else Decimal(0)
    return Pool(tuple(SearchCost.from_json(row.document) for row in rows), recouped)
