"""Writes of periods, savings, invoices, journal and exports: one transaction, one event each.

Order: usage is stored (`portal.billing.usage`), a period's savings are computed on an approved
measurement, an invoice takes its number inside its own transaction, its postings with it. Nothing
here computes an amount: the metering engine does, and the document it returns is frozen.
"""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from metering.contract import Contract, fee
from metering.ledger import Invoice as InvoiceDocument
from metering.ledger import JournalEntry as Posting
from metering.ledger import build_invoice
from metering.ledger import journal as journal_of
from metering.plan import MeasurementPlan, Period
from metering.plan import PriceBook as PriceBookDocument
from metering.savings import Sufficiency, savings_line, verified_savings
from portal.accounts.access import Actor, require
from portal.billing.models import (
    BillingPeriod,
    Export,
    Invoice,
    JournalEntry,
    NumberSeries,
    SavingsRecord,
)
from portal.billing.posting import MOST_PERIODS, closed, posted_in
from portal.billing.recoupment import book_measured_search
from portal.billing.savings import (
    BillingError,
    contract_lock,
    contract_version_of,
    frozen_breakdown,
    frozen_sufficiency,
    require_approved,
    require_baseline_in_force,
    require_billable,
    state_before,
)
from portal.billing.sufficiency import (
    examine_coverage,
    is_examined,
    overrides_of,
    pair_of,
    with_overrides,
)
from portal.billing.usage import period_lines, period_metered, usage_cut
from portal.billing.usage_keys import period_decisions
from portal.contracts.models import ContractVersion
from portal.documents.services import file_store
from portal.events.services import event_record
from portal.runs.models import Measurement
from reports.canonical import sha256_bytes
from reports.recount import savings_document

SERIES = "INV"


@transaction.atomic
def period_open(
    *, actor: Actor, contract_version: ContractVersion, label: str, anchor: date | None = None
) -> BillingPeriod:
    """Open a month ("2026-11") of a signed contract in its zone; opened once.

    With `anchor` periods are monthly from that day on, labelled by their first day.
    """
    require(actor, "invoice.issue", contract_version.organisation)
    if contract_version.status != ContractVersion.Status.SIGNED:
        raise BillingError(f"{contract_version}: not signed by all parties; nothing is billed")
    zone = str(contract_version.contract["zone"])
    month = Period.month(label, zone) if anchor is None else _anchored(anchor, label, zone)
    period, made = BillingPeriod.objects.get_or_create(
        organisation=contract_version.organisation,
        contract_id=contract_version.contract_id,
        label=label,
        defaults={
            "contract_version": contract_version,
            "zone": zone,
            "starts_at": month.start,
            "ends_at": month.end,
        },
    )
    if made:
        event_record(
            action="period.open",
            actor=actor,
            subject=period,
            organisation=period.organisation,
            data={"label": label, "zone": zone, "contract_id": period.contract_id},
        )
    return period


def _anchored(anchor: date, label: str, zone: str) -> Period:
    """The monthly period from `anchor` on that begins on the day `label`."""
    for period in Period.anchored(anchor, MOST_PERIODS, zone):
        if period.label == label:
            return period
    raise BillingError(f"period: got {label!r}; wanted a first day of a period from {anchor} on")


@transaction.atomic
def savings_compute(
    *, actor: Actor, period: BillingPeriod, measurement: Measurement
) -> SavingsRecord:
    """Compute and freeze a period's savings and fee on an approved measurement, once.

    Under a method that demands it sufficiency decides: a rule that does not hold gates the line,
    which then bills 0 and says why, unless the auditor has overridden it before.
    """
    require(actor, "invoice.issue", period.organisation)
    BillingPeriod.objects.select_for_update(no_key=True).get(pk=period.pk)
    found = SavingsRecord.objects.filter(period=period).first()
    if found:
        return SavingsRecord.objects.get(pk=found.pk)
    version = measurement.contract_version
    if measurement.organisation_id != period.organisation_id or (
        version.contract_id != period.contract_id
    ):
        raise BillingError(f"{measurement}: belongs to another contract than {period}")
    if timezone.now() < period.ends_at:
        raise BillingError(
            f"{period}: ends at {period.ends_at.isoformat()}; savings are computed afterwards"
        )
    require_approved(measurement)
    require_billable(version)
    require_baseline_in_force(period, measurement)
    book_measured_search(actor=actor, measurement=measurement)
    contract = Contract.from_json(version.contract)
    plan = MeasurementPlan.from_json(version.plan)
    model, system = pair_of(version)
    until = usage_cut(period.organisation)
    totals, (coverage,) = period_metered(
        period, period_lines(period, until), [(model, system)], period_decisions(period, until)
    )
    examined: tuple[Sufficiency, ...] = ()
    if is_examined(version):
        found = examine_coverage(measurement, coverage)
        examined = (with_overrides(found, overrides_of(period, measurement)),)
    line = savings_line(
        model=model,
        system=system,
        period=totals.period,
        volume=totals.volume(model, system),
        baseline_samples_per_second=str(measurement.baseline.document["samples_per_second"]),
        cores=len(plan.cores),
        price_book=PriceBookDocument.from_json(version.price_book.document),
        uplift_point=measurement.uplift["point"],
        uplift_lower_95=measurement.uplift["lower_95"],
        baseline_id=measurement.baseline.sha256,
        uplift_id=str(measurement.pk),
        evidence_digest=measurement.evidence_sha256,
        kept=measurement.kept,
        not_kept_reason=measurement.reason,
        gate="; ".join(filter(None, (item.verdict.gate for item in examined))),
        method_version=plan.method_version,
    )
    verified = verified_savings([line], evidence_digest=measurement.evidence_sha256)
    before = state_before(period)
    breakdown = fee(contract, before, verified)
    # The very bytes that the evidence carries and that a verifier recounts.
    data = savings_document([line], before, breakdown, examined)
    record = SavingsRecord(
        organisation=period.organisation,
        period=period,
        measurement=measurement,
        currency=line.currency,
        volume_samples=line.volume,
        counterfactual=line.counterfactual,
        point=line.point,
        billable=line.billable,
        fee=breakdown.fee,
        kept=line.kept,
        reason=line.reason[:300],
        usage=totals.to_json(),
        usage_until=until,
        document=json.loads(data),
        sha256=sha256_bytes(data),
    )
    record.save(force_insert=True)
    event_record(
        action="savings.compute",
        actor=actor,
        subject=record,
        organisation=record.organisation,
        data={
            "period": period.label,
            "sha256": record.sha256,
            "fee": str(breakdown.fee),
            "currency": record.currency,
            "reason": record.reason,
            "overridden": [over.name for item in examined for over in item.overrides],
        },
    )
    return record


@transaction.atomic
def invoice_issue(
    *,
    actor: Actor,
    savings: SavingsRecord,
    issued_at: datetime | None = None,
    notes: Sequence[str] = (),
) -> Invoice:
    """Issue the invoice of a period: number, document and postings in one transaction.

    One live invoice per contract and period: whoever else asks, at once or later, gets the same
    one. Numbers have no gaps: the series' counter row is locked until this transaction ends, and
    a transaction that fails gives its number back.
    """
    require(actor, "invoice.issue", savings.organisation)
    counter = number_counter(SERIES)
    contract_lock(savings.period)
    live = Invoice.objects.filter(
        period=savings.period, live=True, kind=Invoice.Kind.INVOICE
    ).first()
    if live:
        return Invoice.objects.get(pk=live.pk)
    if closed(savings.period):
        raise BillingError(
            f"{savings.period}: closed, and periods are not reopened; a correction is a new"
            " document in the next period"
        )
    require_approved(savings.measurement)
    version = contract_version_of(savings)
    contract = Contract.from_json(version.contract)
    moment = (issued_at or timezone.now()).astimezone(UTC).replace(microsecond=0)
    breakdown = frozen_breakdown(savings, contract)
    noted = [line for item in frozen_sufficiency(savings) for line in item.verdict.noted]
    number = counter.next_number()
    document = build_invoice(
        breakdown,
        contract=contract,
        plan=MeasurementPlan.from_json(version.plan),
        number=number,
        series=SERIES,
        issued_at=moment,
        notes=[*noted, *notes],
    )
    invoice = document_store(savings=savings, document=document, counter=counter)
    event_record(
        action="invoice.issue",
        actor=actor,
        subject=invoice,
        organisation=invoice.organisation,
        data={
            "number": number,
            "sha256": invoice.sha256,
            "period": savings.period.label,
            "payable": str(document.payable),
            "currency": invoice.currency,
        },
    )
    journal_post(actor=actor, invoice=invoice)
    return invoice


def number_counter(series: str) -> NumberSeries:
    """The counter of a series, locked until the transaction ends: numbers have no gaps."""
    NumberSeries.objects.get_or_create(series=series)
    return NumberSeries.objects.select_for_update().get(series=series)


def document_store(
    *,
    savings: SavingsRecord,
    document: InvoiceDocument,
    counter: NumberSeries,
    corrects: Invoice | None = None,
) -> Invoice:
    """Store an issued document under the number its counter gave, and the counter with it."""
    row = Invoice(
        organisation=savings.organisation,
        period=savings.period,
        savings=savings,
        measurement=savings.measurement,
        posted_in=posted_in(savings.period),
        kind=document.kind,
        corrects=corrects,
        series=document.series,
        sequence=counter.last,
        number=document.number,
        currency=document.currency,
        net=document.net,
        tax=document.tax,
        gross=document.payable,
        document=document.to_json(),
        sha256=document.digest,
        issued_at=document.issued_at,
    )
    counter.save(update_fields=["last"])
    row.save(force_insert=True)
    return row


def journal_append(invoice: Invoice, postings: Sequence[Posting]) -> list[JournalEntry]:
    """Rows for `postings` after those that the invoice has; together they still sum to zero.

    They are in the books of the invoice's period, or of the next open one when that is closed.
    """
    taken = JournalEntry.objects.filter(invoice=invoice).count()
    books = posted_in(invoice.posted_in or invoice.period) if postings else None
    rows = [
        JournalEntry(
            organisation=invoice.organisation,
            invoice=invoice,
            posted_in=books,
            line=number,
            booked_on=posting.booked_on,
            account=posting.account,
            amount=posting.amount,
            currency=posting.currency,
            memo=posting.text[:300],
        )
        for number, posting in enumerate(postings, start=taken + 1)
    ]
    for row in rows:
        row.save(force_insert=True)
    return rows


@transaction.atomic
def journal_post(*, actor: Actor, invoice: Invoice) -> list[JournalEntry]:
    """Post an issued invoice's entries, once; they sum to zero or the engine refuses."""
    require(actor, "invoice.issue", invoice.organisation)
    found = list(JournalEntry.objects.filter(invoice=invoice))
    if found:
        return found
    document = InvoiceDocument.from_json(invoice.document)
    entries = journal_append(invoice, journal_of(document))
    event_record(
        action="journal.post",
        actor=actor,
        subject=invoice,
        organisation=invoice.organisation,
        data={"entries": len(entries), "number": invoice.number},
    )
    return entries


@transaction.atomic
def export_write(*, actor: Actor, invoice: Invoice, file_format: str, path: Path) -> Export:
    """Record the export file that `portal.billing.exports` wrote for an invoice, once."""
    require(actor, "export.write", invoice.organisation)
    if file_format not in Export.Format.values:
        raise BillingError(
            f"format: got {file_format!r}; wanted one of {', '.join(Export.Format.values)}"
        )
    found = Export.objects.filter(invoice=invoice, file_format=file_format).first()
    if found:
        return Export.objects.get(pk=found.pk)
    export = Export(
        organisation=invoice.organisation,
        invoice=invoice,
        file_format=file_format,
        stored_file=file_store(
            actor=actor, organisation=invoice.organisation, kind="export", path=path
        ),
    )
    export.save(force_insert=True)
    event_record(
        action="export.write",
        actor=actor,
        subject=export,
        organisation=invoice.organisation,
        data={"number": invoice.number, "format": file_format},
    )
    return export
