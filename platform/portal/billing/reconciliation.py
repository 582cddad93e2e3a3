"""What a period's books come to, counted anew from its rows: journal, FOCUS, lines, usage.

In: a period. Out: totals (rows, sums, SHA-256) of four files, the files themselves, the trial
balance, and every export held against its manifest. Nothing is stored here and nothing is
repaired: a difference is named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from metering.decimals import exact
from metering.export import Manifest, PostedEntry, csv_text, focus_csv, posted_csv, validate
from metering.ledger import Invoice as InvoiceDocument
from metering.ledger import JournalEntry as Posting
from metering.ledger import Totals, TrialRow, trial_balance
from metering.money import quantize
from portal.billing.exports import LINES_HEADER, export_made, line_rows
from portal.billing.models import (
    BillingPeriod,
    Export,
    Invoice,
    JournalEntry,
    ParkedUsage,
    SavingsRecord,
    UsageEvent,
)
from portal.billing.posting import entries_of
from portal.billing.usage import period_lines, period_totals
from portal.billing.usage_keys import decisions_holding, period_decisions
from portal.workspace import absolute, sha256_file
from reports.canonical import sha256_bytes

JOURNAL, FOCUS, LINES, USAGE = "journal", "focus", "lines", "usage"
TITLES: Mapping[str, str] = {
    JOURNAL: "Journal, debits",
    FOCUS: "FOCUS 1.2 rows, billed cost",
    LINES: "Invoice lines, fee",
    USAGE: "Usage events that count",
}
# More events than this are not read again for a page: two or three seconds of a request.
RECOUNT_EVENTS = 500_000
ALL = "all accounts"
# Parked lines that are named one by one; their number is that of all.
NAMED_LINES = 20


def postings(rows: QuerySet[JournalEntry]) -> list[PostedEntry]:
    """Stored postings as the engine's entries, in their order and their currency's digits."""
    return [
        PostedEntry(
            Posting(
                row.booked_on, row.invoice.number, row.account,
                quantize(row.amount, row.currency), row.currency, row.memo,
            ),
            row.invoice.series,
            row.invoice.period.contract_id,
        )
        for row in rows
    ]  # fmt: skip


def journal_file(period: BillingPeriod) -> tuple[str, Totals]:
    """The period's journal as CSV; `sums` are its debits."""
    text, manifest = posted_csv(postings(entries_of(period)))
    return text, _totals(manifest)


def focus_file(documents: Sequence[Invoice]) -> tuple[str, Totals]:
    """FOCUS 1.2 rows of all documents as one CSV; `sums` are what they ask for."""
    text, manifest = focus_csv([InvoiceDocument.from_json(row.document) for row in documents])
    return text, _totals(manifest)


def lines_file(documents: Sequence[Invoice]) -> tuple[str, Totals]:
    """The lines of all documents as one CSV; `sums` are their amounts, before tax."""
    rows = [row for document in documents for row in line_rows(document)]
    text = csv_text(LINES_HEADER, [["" if c is None else str(c) for c in row] for row in rows])
    sums: dict[str, Decimal] = {}
    place, unit = LINES_HEADER.index("amount"), LINES_HEADER.index("currency")
    with exact():
        for row in rows:
            currency = str(row[unit])
            sums[currency] = sums.get(currency, Decimal(0)) + Decimal(str(row[place]))
    return text, Totals(len(rows), sums, sha256_bytes(text.encode()))


def _totals(manifest: Manifest) -> Totals:
    return Totals(manifest.rows, dict(manifest.sums), manifest.sha256)


def usage_billed(savings: SavingsRecord) -> Totals | None:
    """The usage a record was computed from; None for savings that the auditor stated."""
    if not savings.usage:
        return None
    return Totals(
        int(savings.usage["counts"]["accepted"]),
        {"samples": Decimal(savings.usage["samples"])},
        str(savings.usage["content_sha256"]),
    )


def usage_anew(period: BillingPeriod) -> Totals:
    """The usage that is stored for the period now, read and settled again."""
    found = period_totals(period, period_lines(period), period_decisions(period))
    return Totals(found.accepted, {"samples": Decimal(found.samples)}, found.content_sha256)


def events_of(period: BillingPeriod) -> QuerySet[UsageEvent]:
    """Stored events that happened in the period."""
    return UsageEvent.objects.filter(
        organisation=period.organisation, time__gte=period.starts_at, time__lt=period.ends_at
    )


def files_of(period: BillingPeriod, documents: Sequence[Invoice]) -> dict[str, tuple[str, Totals]]:
    """The files of a period's books with their totals: journal, FOCUS rows, invoice lines."""
    found = {JOURNAL: journal_file(period)}
    if documents:
        found[FOCUS] = focus_file(documents)
        found[LINES] = lines_file(documents)
    return found


def totals_of(period: BillingPeriod, documents: Sequence[Invoice]) -> dict[str, Totals]:
    """The totals of those files. Usage is counted apart."""
    return {name: totals for name, (_, totals) in files_of(period, documents).items()}


@dataclass(frozen=True)
class Late:
    """Events of a period that came after its savings were computed: in no invoice of it."""

    events: int
    samples: int


def late_usage(period: BillingPeriod, savings: SavingsRecord) -> Late:
    """What arrived too late for the period's savings; only of usage that they were metered from."""
    if not savings.usage:
        return Late(0, 0)
    told = events_of(period).filter(batch__created_at__gt=savings.usage_until or savings.created_at)
    found = told.aggregate(events=Count("id"), samples=Coalesce(Sum("samples"), 0))
    return Late(found["events"], found["samples"])


def undecided(period: BillingPeriod) -> QuerySet[ParkedUsage]:
    """Lines of the period that somebody still has to decide on: conflicts and unmatched ones.

    An unmatched line that was sent again and stored since is decided, a conflict by a decision
    that looked at every content under its key.
    """
    stored = UsageEvent.objects.filter(
        organisation=period.organisation,
        source=OuterRef("source"),
        event_id=OuterRef("event_id"),
    )
    rows = ParkedUsage.objects.filter(
        batch__organisation=period.organisation,
        time__gte=period.starts_at,
        time__lt=period.ends_at,
    )
    decided = decisions_holding(period.organisation).filter(
        source=OuterRef("source"), event_id=OuterRef("event_id")
    )
    return rows.filter(
        Q(fate="conflict") & ~Exists(decided) | Q(fate="unmatched") & ~Exists(stored)
    )


def trial(period: BillingPeriod) -> tuple[TrialRow, ...]:
    """The trial balance of a period's books."""
    return trial_balance(item.entry for item in postings(entries_of(period)))


def unbalanced(entries: Sequence[PostedEntry]) -> dict[str, Decimal]:
    """Documents, and the whole, whose entries do not sum to zero; empty when the books balance."""
    sums: dict[str, Decimal] = {}
    with exact():
        for item in entries:
            for name in (item.entry.document, f"all, {item.entry.currency}"):
                sums[name] = sums.get(name, Decimal(0)) + item.entry.amount
    return {name: total for name, total in sums.items() if total}


@dataclass(frozen=True)
class ExportCheck:
    """One written export: its file, the manifest of the same document made again, what differs."""

    export: Export
    manifest: Manifest
    faults: tuple[str, ...]


def export_checks(documents: Sequence[Invoice]) -> list[ExportCheck]:
    """Every written export of the documents, read back, validated and made again."""
    rows = Export.objects.filter(invoice__in=documents).select_related("stored_file", "invoice")
    return [_check(row) for row in rows.order_by("invoice__number", "file_format")]


def _check(row: Export) -> ExportCheck:
    _, manifest = export_made(row.invoice, row.file_format)
    path = absolute(row.stored_file.path)
    faults = []
    if not path.is_file():
        return ExportCheck(row, manifest, ("the file is gone",))
    on_disk = sha256_file(path)
    if on_disk != row.stored_file.sha256:
        faults.append(f"the file has digest {on_disk[:12]}, recorded was another")
    if on_disk != manifest.sha256:
        faults.append("the document made again gives other bytes")
    asked = manifest.invoices.get(row.invoice.number)
    if asked != quantize(row.invoice.gross, row.invoice.currency):
        faults.append(f"the manifest asks for {asked}, the document for {row.invoice.gross}")
    faults += [str(finding) for finding in validate(path)[1]]
    return ExportCheck(row, manifest, tuple(faults))


@dataclass(frozen=True)
class MonthRow:
    """One account in one month of booking; `account` is "all accounts" in a month's sum."""

    month: str
    account: str
    currency: str
    entries: int
    debit: Decimal
    credit: Decimal
    balance: Decimal


def monthly_trial(rows: QuerySet[JournalEntry]) -> list[MonthRow]:
    """The trial balance of each month of booking, newest first, each followed by its sum."""
    by_month: dict[str, list[Posting]] = {}
    for item in postings(rows.select_related("invoice__period").defer("invoice__document")):
        by_month.setdefault(f"{item.entry.booked_on:%Y-%m}", []).append(item.entry)
    found = []
    for month, entries in sorted(by_month.items(), reverse=True):
        told = trial_balance(entries)
        found += [
            MonthRow(month, r.account, r.currency, r.entries, r.debit, r.credit, r.balance)
            for r in told
        ]
        for currency in sorted({row.currency for row in told}):
            own = [row for row in told if row.currency == currency]
            with exact():
                debit = sum((row.debit for row in own), Decimal(0))
                credit = sum((row.credit for row in own), Decimal(0))
                found.append(
                    MonthRow(month, ALL, currency, sum(row.entries for row in own), debit, credit,
                             debit - credit)
                )  # fmt: skip
    return found
