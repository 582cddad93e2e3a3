"""Corrections of issued invoices: credit notes, audits, disputes. One transaction, one event each.

In: an issued invoice and what is wrong with it. Out: a new document that names the invoice, its
postings, and what changes in the state the next period starts from. The invoice itself never
changes. Nothing here computes an amount: the metering engine does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from metering.contract import LedgerState, VerifiedSavings
from metering.ledger import Invoice as InvoiceDocument
from metering.ledger import audit_document, left_to_credit
from portal.accounts.access import Actor, Platform, require
from portal.billing.models import Correction, Dispute, Invoice
from portal.billing.previews import (
    CREDIT_SERIES,
    credit_document,
    credit_notes_of,
    dispute_split,
    moment,
    require_creditable,
    require_disputable,
)
from portal.billing.savings import BillingError, contract_lock
from portal.billing.services import (
    SERIES,
    document_store,
    journal_append,
    journal_post,
    number_counter,
)
from portal.billing.settlement import settle
from portal.events.services import event_record
from portal.runs.models import Measurement


@transaction.atomic
def credit_issue(
    *,
    actor: Actor,
    invoice: Invoice,
    reason: str,
    amounts: Mapping[str, Decimal] | None = None,
    issued_at: datetime | None = None,
    after: int | None = None,
) -> Invoice:
    """Credit lines of an invoice or a release (`amounts` by line id), or all that is left of it.

    An open dispute of the invoice ends with it. Credit notes never exceed the document: the
    engine refuses, under the lock of the credit series. `after`: how many notes the document had
    when somebody looked and decided; refused when there is another one by now.
    """
    require(actor, "invoice.credit", invoice.organisation)
    counter = number_counter(CREDIT_SERIES)
    contract_lock(invoice.period)
    require_creditable(invoice)
    previous = credit_notes_of(invoice)
    document = InvoiceDocument.from_json(invoice.document)
    if previous and not any(left_to_credit(document, previous).values()):
        # Credited in full: whoever asks again, at once or later, gets the note that did it.
        return Invoice.objects.get(number=previous[-1].number)
    if after is not None and after != len(previous):
        raise BillingError(
            f"{invoice}: has {len(previous)} credit notes by now, {after} when these figures were"
            " shown; look at them again"
        )
    at = moment(issued_at)
    note = credit_document(
        invoice,
        number=counter.next_number(),
        issued_at=at,
        reason=reason,
        amounts=amounts,
        previous=previous,
    )
    row = document_store(savings=invoice.savings, document=note, counter=counter, corrects=invoice)
    ended = _end_dispute(invoice, Dispute.Outcome.CREDITED, at)
    if invoice.kind == Invoice.Kind.INVOICE:
        taken = ended_in(invoice)
        _record(
            invoice,
            row,
            taken=taken,
            instead=_after_credit(invoice, document, [*previous, note], taken),
            reason=reason,
        )
    event_record(
        action="invoice.credit",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={"number": row.number, "corrects": invoice.number, "sha256": row.sha256,
              "payable": str(row.gross), "reason": reason,
              "ended_dispute": str(ended.pk) if ended else ""},
    )  # fmt: skip
    journal_post(actor=_poster(actor), invoice=row)
    return row


@transaction.atomic
def audit_settle(
    *,
    actor: Actor,
    invoice: Invoice,
    measurement: Measurement,
    verified: VerifiedSavings,
    issued_at: datetime | None = None,
    after: int | None = None,
) -> Correction:
    """Settle an invoice on audited savings: release of its holdback, credit note, or nothing.

    Only the auditor may, on evidence of an approved measurement, once an invoice. The state the
    next period starts from changes by what the audit found. `after` as in `credit_issue`.
    """
    require(actor, "invoice.audit", invoice.organisation)
    releases, notes = number_counter(SERIES), number_counter(CREDIT_SERIES)
    contract_lock(invoice.period)
    audits = Correction.objects.filter(invoice=invoice, kind=Correction.Kind.AUDIT)
    found: Correction | None = audits.first()
    if found:
        return found
    told = settle(invoice, measurement, verified)
    if after is not None and after != len(told.previous):
        raise BillingError(
            f"{invoice}: has {len(told.previous)} credit notes by now, {after} when these"
            " figures were shown; look at them again"
        )
    audited, outcome = told.audited, told.outcome
    row = None
    if outcome.document != "none":
        counter = releases if outcome.document == "release" else notes
        document = audit_document(
            InvoiceDocument.from_json(invoice.document),
            outcome,
            number=counter.next_number(),
            series=counter.series,
            issued_at=moment(issued_at),
            previous=told.previous,
        )
        row = document_store(
            savings=invoice.savings, document=document, counter=counter, corrects=invoice
        )
    correction = _record(
        invoice,
        row,
        kind=Correction.Kind.AUDIT,
        taken=ended_in(invoice),
        instead=outcome.state,
        reason=outcome.reasons[0],
        details={
            "verified": verified.to_json(),
            "breakdown": audited.to_json(),
            "outcome": outcome.to_json(),
            "measurement": str(measurement.pk),
        },
    )
    event_record(
        action="invoice.audit",
        actor=actor,
        subject=correction,
        organisation=invoice.organisation,
        data={"invoice": invoice.number, "number": row.number if row else "",
              "sha256": row.sha256 if row else "",
              "audited_fee": str(outcome.audited_fee), "gross": str(outcome.gross)},
    )  # fmt: skip
    if row is not None:
        journal_post(actor=_poster(actor), invoice=row)
    return correction


@transaction.atomic
def dispute_open(
    *, actor: Actor, invoice: Invoice, lines: Sequence[str], reason: str, on: date | None = None
) -> Dispute:
    """Set lines of an invoice aside; the others stay collectible. One open dispute an invoice."""
    require(actor, "dispute.open", invoice.organisation)
    contract_lock(invoice.period)
    open_now = Dispute.objects.filter(invoice=invoice, outcome=Dispute.Outcome.OPEN)
    found: Dispute | None = open_now.first()
    if found:
        return found
    require_disputable(invoice)
    opened_on = on or timezone.now().date()
    split = dispute_split(invoice, lines, opened_on)
    row = Dispute(
        organisation=invoice.organisation,
        invoice=invoice,
        lines=list(split.line_ids),
        reason=reason[:300],
        collectible=split.collectible,
        disputed=split.disputed,
        opened_on=opened_on,
    )
    row.save(force_insert=True)
    journal_append(invoice, split.entries)
    event_record(
        action="dispute.open",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={"number": invoice.number, "lines": row.lines, "disputed": str(row.disputed),
              "reason": row.reason},
    )  # fmt: skip
    return row


@transaction.atomic
def dispute_release(*, actor: Actor, invoice: Invoice, at: datetime | None = None) -> Dispute:
    """End the open dispute of an invoice by release: its lines are collectible again."""
    require(actor, "dispute.resolve", invoice.organisation)
    contract_lock(invoice.period)
    row = _end_dispute(invoice, Dispute.Outcome.RELEASED, moment(at))
    if row is None:
        raise BillingError(f"{invoice}: no open dispute to resolve")
    event_record(
        action="dispute.resolve",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={"number": invoice.number, "outcome": row.outcome},
    )
    return row


def _poster(actor: Actor) -> Actor:
    """Who posts a correction's entries: the platform, for the person who made the correction."""
    return Platform(actor.organisation, actor.user)


def ended_in(invoice: Invoice) -> LedgerState:
    """The state an invoice's period ends in now, after every correction so far."""
    last = Correction.objects.filter(invoice=invoice).order_by("-created_at", "-id").first()
    stored = last.instead if last else invoice.savings.document["breakdown"]["state"]
    return LedgerState.from_json(stored)


def _after_credit(
    invoice: Invoice,
    document: InvoiceDocument,
    notes: Sequence[InvoiceDocument],
    taken: LedgerState,
) -> LedgerState:
    """Recouped cost that is credited returns to the pool; a void takes everything back."""
    if not any(left_to_credit(document, notes).values()):
        before = LedgerState.from_json(invoice.savings.document["state_before"])
        # The period stays settled: its invoice stands beside the credit note that voids it.
        return replace(before, settled_through=taken.settled_through)
    returned = -sum(
        (line.amount for line in notes[-1].lines if line.fee_line.kind == "recoupment"), Decimal(0)
    )
    return replace(taken, recouped=taken.recouped - returned)


def _record(
    invoice: Invoice,
    document: Invoice | None,
    *,
    taken: LedgerState,
    instead: LedgerState,
    reason: str,
    kind: str = Correction.Kind.CREDIT,
    details: Mapping[str, object] | None = None,
) -> Correction:
    row = Correction(
        organisation=invoice.organisation,
        kind=kind,
        invoice=invoice,
        document=document,
        taken=taken.to_json(),
        instead=instead.to_json(),
        details=dict(details or {}),
        reason=reason[:300],
    )
    row.save(force_insert=True)
    return row


def _end_dispute(invoice: Invoice, outcome: str, at: datetime) -> Dispute | None:
    """Move the contested amount back; a credit note, if any, is booked apart."""
    open_now = Dispute.objects.filter(invoice=invoice, outcome=Dispute.Outcome.OPEN)
    row: Dispute | None = open_now.first()
    if row is None:
        return None
    journal_append(invoice, dispute_split(invoice, row.lines, row.opened_on).resolved(at.date()))
    row.outcome, row.resolved_at = outcome, at
    row.save(update_fields=["outcome", "resolved_at"])
    return row
