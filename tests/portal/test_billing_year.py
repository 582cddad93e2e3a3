"""A year of monthly runs under one contract: everything that can happen to it, to the last cent."""

from collections import defaultdict
from decimal import Decimal
from typing import Any

from metering.cases import Case, play
from metering.contract import BaselinePolicy
from metering.decimals import to_text
from metering.ledger import Invoice as InvoiceDocument
from portal.accounts.models import Membership
from portal.billing import reconciliation
from portal.billing.closing import period_close
from portal.billing.exports import exports_write
from portal.billing.models import (
    BillingPeriod,
    Invoice,
    JournalEntry,
    PeriodClose,
    SavingsRecord,
)
from portal.billing.posting import entries_of, invoices_of
from portal.events.models import Event
from portal.events.services import chain_check
from tests.metering.money_cases import contract
from tests.metering.test_cases import cost, usage
from tests.portal.golden_database import settle
from tests.portal.golden_database import stage as stage

DOCUMENTS = ("invoice.issue", "invoice.credit", "invoice.audit")
MONTHS = [f"2025-{month:02d}" for month in (11, 12)] + [f"2026-{m:02d}" for m in range(1, 11)]


def year() -> dict[str, object]:
    """Twelve months: a reset on 16 April, a loss in February, late usage in May, and more."""
    terms = contract(
        holdback=Decimal("0.10"), vat=Decimal("0.19"), baseline_policy=BaselinePolicy("reset")
    )
    volumes = [
        usage(str(10_000 + 1_000 * number), f"{month}-{day:02d}T10:00:00Z")
        for number, month in enumerate(MONTHS)
        for day in (5, 20)
    ]
    late = usage("777", "2026-05-30T10:00:00Z", received="2026-06-20T08:00:00Z")
    steps: list[dict[str, object]] = []
    number = 0
    for index, month in enumerate(MONTHS):
        steps.append({"step": "bill", "period": month})
        number += 1
        invoice = f"CASE-{number}"
        found = {"model": "A", "system": "s", "point": "100000"}
        if index == 2:
            steps.append({"step": "dispute", "document": invoice, "lines": ["1"]})
            steps.append({"step": "resolve", "document": invoice})
        if index == 5:
            steps.append({"step": "dispute", "document": invoice, "lines": ["1"]})
            steps.append(
                {"step": "credit", "document": invoice, "lines": {"1": "100"}, "reason": "volume"}
            )
        if index == 7:
            found["point"] = "-250"
        if index not in (3, 11):
            steps.append({"step": "audit", "document": invoice, "savings": [found]})
            number += index != 7
    return {
        "schema": "ignition.fee-case.v2",
        "contracts": [terms.to_json()],
        "state": None,
        "periods": MONTHS,
        "cutoff_days": 5,
        "costs": [
            cost("baseline", "2.40"),
            cost("baseline", "2.00", "2026-04-16T00:00:00Z"),
            cost("optimised", "1.50"),
            cost("optimised", "2.50", "2026-02-01T00:00:00Z"),
            cost("optimised", "1.40", "2026-03-01T00:00:00Z"),
        ],
        "usage": [*volumes, late],
        "steps": steps,
    }


class Closer:
    """Finance: every second month is closed as soon as it is billed, so that what the audit finds
    comes after its close; the others once the month after them is billed.
    """

    def __init__(self, actor: Membership) -> None:
        self.actor, self.waiting = actor, list[BillingPeriod]()
        self.frozen: dict[str, dict[str, object]] = {}

    def __call__(self, period: BillingPeriod) -> None:
        self.close()
        self.waiting.append(period)
        # The sixth waits for its dispute: nothing is closed over an open one.
        if MONTHS.index(period.label) % 2 == 0:
            self.close()

    def close(self) -> None:
        """Write the exports of what waits, and close it."""
        while self.waiting:
            period = self.waiting.pop(0)
            for document in invoices_of(period):
                exports_write(actor=self.actor, invoice=document)
            self.frozen[period.label] = period_close(actor=self.actor, period=period).document


def test_a_year_ends_with_a_journal_at_zero_and_documents_as_issued(stage):
    value = year()
    closer = Closer(stage.cast.finance)
    stored = settle(stage, value, "C-year", billed=closer)
    closer.close()
    preview = play(Case.from_json(value)).to_json()
    assert len(stored["documents"]) == len(preview["documents"]) == 12 + 10 + 1

    # Preview and persist: the same documents, the same state, the same balances.
    for ours, theirs in zip(stored["documents"], preview["documents"], strict=True):
        for name in ("kind", "fee", "holdback", "net", "tax", "payable"):
            assert ours["document"][name] == theirs["document"][name], name
    balances: dict[str, Decimal] = defaultdict(Decimal)
    per_document: dict[object, Decimal] = defaultdict(Decimal)
    for entry in JournalEntry.objects.all():
        balances[entry.account] += entry.amount
        per_document[entry.invoice_id] += entry.amount
    assert set(per_document.values()) == {Decimal(0)}
    assert sum(balances.values()) == 0
    assert {name: Decimal(amount) for name, amount in preview["journal"]["balances"].items()} == {
        **balances
    }
    assert balances["Assets:Receivable:Disputed"] == 0

    # What happened is there: a reset in two lines, a loss, a correction line, a lower audit.
    lines = {
        record.period.label: record.document["breakdown"]["lines"]
        for record in SavingsRecord.objects.select_related("period")
    }
    assert [row["counterfactual"] for row in lines["2026-04"]] == ["36000.00", "30000.00"]
    assert [row["segment"] for row in lines["2026-06"]] == ["", "late from 2026-05"]
    assert {row["amount"] for row in lines["2026-02"]} == {"0.00"}
    kinds = [row["document"]["kind"] for row in stored["documents"]]
    assert (kinds.count("release"), kinds.count("credit_note")) == (9, 2)
    holdback = sum(Decimal(row["document"]["holdback"]) for row in stored["documents"])
    assert balances["Assets:Contract:Holdback"] == holdback

    # Nothing issued has changed, and the log of events still chains.
    for row in Invoice.objects.all():
        assert InvoiceDocument.from_json(row.document).digest == row.sha256
    told = {
        event.data["number"]: event.data["sha256"]
        for event in Event.objects.filter(action__in=DOCUMENTS)
    }
    assert told == dict(Invoice.objects.values_list("number", "sha256"))
    assert chain_check().ok
    _every_month_is_closed_and_stays(closer.frozen)
    last = SavingsRecord.objects.get(period__label="2026-10").document["breakdown"]["state"]
    assert last["settled_through"] == "2026-10"
    assert to_text(Decimal(last["losses"])) == preview["state"]["losses"]


def _every_month_is_closed_and_stays(frozen: dict[str, Any]) -> None:
    """Twelve closes, as they were frozen; no posting is in two books, none is lost."""
    assert dict(PeriodClose.objects.values_list("period__label", "document")) == frozen
    assert sorted(frozen) == MONTHS
    seen, rows = 0, 0
    for period in BillingPeriod.objects.order_by("label"):
        documents = list(invoices_of(period))
        for name, totals in reconciliation.totals_of(period, documents).items():
            assert totals.to_json() == frozen[period.label]["totals"][name], (period, name)
        assert reconciliation.unbalanced(reconciliation.postings(entries_of(period))) == {}
        seen, rows = seen + entries_of(period).count(), rows + len(documents)
    assert (seen, rows) == (JournalEntry.objects.count(), Invoice.objects.count())
    # What the audit found after a close, and the dispute of the third month, went to the next.
    assert Invoice.objects.filter(posted_in__isnull=False).count() == 6
    moved = Invoice.objects.filter(posted_in__isnull=False)
    for row in moved.select_related("period", "posted_in"):
        assert MONTHS.index(row.posted_in.label) == MONTHS.index(row.period.label) + 1
    assert {
        row.posted_in.label
        for row in JournalEntry.objects.filter(
            invoice__period__label="2026-01", memo__contains="disputed"
        )
    } == {"2026-02"}
