"""The search pool of a contract: every search booked at what its ledger says, failed ones too.

In: the ledger that kernelgen wrote while it searched. Out: one row per search that never changes;
the next period's fee recoups no more than the rows sum to. Adding up is `metering.ledger`'s.
"""

from django.db import transaction

from metering.ledger import Pool, SearchCost, read_ledger
from portal.accounts.access import Actor, require
from portal.accounts.models import Organisation
from portal.billing.models import SavingsRecord
from portal.billing.models import SearchCost as SearchCostRow
from portal.billing.savings import BillingError
from portal.events.services import event_record
from portal.runs.models import Tuning


@transaction.atomic
def search_cost_book(*, actor: Actor, tuning: Tuning, ledger: str) -> SearchCostRow:
    """Book a search into the pool of the contract it was made for, once.

    Refusal when the ledger does not add up; BillingError when its currency is not the contract's.
    """
    require(actor, "invoice.issue", tuning.organisation)
    version = tuning.baseline.contract_version
    cost = read_ledger(ledger)
    found = SearchCostRow.objects.filter(tuning=tuning).first()
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


def pool_of(*, organisation: Organisation, contract_id: str) -> Pool:
    """Every search of a contract, and what its latest computed period had recouped by then."""
    rows = SearchCostRow.objects.filter(organisation=organisation, contract_id=contract_id)
    latest = (
        SavingsRecord.objects.filter(organisation=organisation, period__contract_id=contract_id)
        .order_by("-period__label")
        .first()
    )
    recouped = latest.document["breakdown"]["state"]["recouped"] if latest else "0"
    return Pool(tuple(SearchCost.from_json(row.document) for row in rows), recouped)
