"""The close of a period: what must hold first, and the row that freezes what its books came to.

In: a period with an issued invoice. Out: a checklist with the evidence of each point, and one
`PeriodClose` that never changes. There is no way back: whatever comes later is posted in the
contract's next open period (`portal.billing.posting`).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from metering.decimals import to_text
from metering.fields import instant_text
from metering.money import quantize
from portal.accounts.access import Actor, require
from portal.billing import reconciliation as books
from portal.billing.exports import exports_missing
from portal.billing.models import (
    BillingPeriod,
    Dispute,
    Export,
    Invoice,
    PeriodClose,
    SavingsRecord,
)
from portal.billing.posting import entries_of, invoices_of
from portal.billing.savings import BillingError, contract_lock
from portal.events.services import event_record
from reports.canonical import canonical_json, sha256_bytes

CLOSE_SCHEMA = "ignition.period-close.v1"
NOTE_LENGTH = 300


class NoteMissingError(BillingError):
    """Something is left open, and the close does not say why."""


@dataclass(frozen=True)
class Check:
    """One point of the checklist. `named`: it may stay open when the close says why.

    `evidence` are (name, text) pairs that a reader can look up.
    """

    name: str
    title: str
    ok: bool
    words: str
    evidence: tuple[tuple[str, str], ...] = ()
    named: bool = False

    @property
    def state(self) -> str:
        """done, left open (a reason is wanted), or not yet (nobody closes over it)."""
        return "done" if self.ok else "left open" if self.named else "not yet"

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "name": self.name,
            "title": self.title,
            "state": self.state,
            "words": self.words,
            "evidence": [list(pair) for pair in self.evidence],
        }


def close_checks(period: BillingPeriod) -> list[Check]:
    """Every point that a close rests on, in the order of the work."""
    savings = SavingsRecord.objects.filter(period=period).first()
    documents = list(invoices_of(period))
    return [
        _ended(period),
        _earlier(period),
        _issued(period, savings, documents),
        _disputes(documents),
        _parked(period),
        _late(period, savings),
        _journal(period),
        *_exports(documents),
    ]


@transaction.atomic
def period_close(*, actor: Actor, period: BillingPeriod, note: str = "") -> PeriodClose:
    """Close a period, once; the close that is there is returned again.

    BillingError names every point that is not met, NoteMissingError what is left open without a
    reason. Nothing is posted in the period afterwards.
    """
    require(actor, "period.close", period.organisation)
    contract_lock(period)
    found: PeriodClose | None = PeriodClose.objects.filter(period=period).first()
    if found:
        return found
    checks = close_checks(period)
    missing = [check for check in checks if check.state == "not yet"]
    if missing:
        raise BillingError(
            f"{period}: " + "; ".join(f"{check.title.lower()}: {check.words}" for check in missing)
        )
    left = [check for check in checks if check.state == "left open"]
    if left and not note.strip():
        raise NoteMissingError(
            "note: got nothing; wanted why these stay open: "
            + "; ".join(check.words for check in left)
        )
    document = close_document(period, checks, note)
    data = canonical_json(document)
    row = PeriodClose(
        organisation=period.organisation,
        period=period,
        closed_by=actor.user,
        note=note.strip()[:NOTE_LENGTH],
        document=json.loads(data),
        sha256=sha256_bytes(data),
    )
    row.save(force_insert=True)
    event_record(
        action="period.close",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={"contract_id": period.contract_id, "label": period.label, "sha256": row.sha256,
              "left_open": [check.name for check in left]},
    )  # fmt: skip
    return row


def close_document(
    period: BillingPeriod, checks: Sequence[Check], note: str = ""
) -> dict[str, object]:
    """What a close freezes: totals of the books, documents and exports by digest, the checks."""
    documents = list(invoices_of(period))
    totals = books.totals_of(period, documents)
    savings = SavingsRecord.objects.filter(period=period).first()
    billed = books.usage_billed(savings) if savings else None
    totals[books.USAGE] = billed or books.usage_anew(period)
    exports = Export.objects.filter(invoice__in=documents).select_related("invoice", "stored_file")
    return {
        "schema": CLOSE_SCHEMA,
        "contract_id": period.contract_id,
        "period": {
            "label": period.label,
            "zone": period.zone,
            "start": instant_text(period.starts_at),
            "end": instant_text(period.ends_at),
        },
        "totals": {name: found.to_json() for name, found in totals.items()},
        "documents": [
            {
                "number": row.number,
                "kind": row.kind,
                "sha256": row.sha256,
                "payable": to_text(quantize(row.gross, row.currency)),
                "currency": row.currency,
            }
            for row in documents
        ],
        "exports": [
            {"number": row.invoice.number, "format": row.file_format,
             "sha256": row.stored_file.sha256}
            for row in exports.order_by("invoice__number", "file_format")
        ],
        "checks": [check.to_json() for check in checks],
        "note": note.strip()[:NOTE_LENGTH],
    }  # fmt: skip


def _ended(period: BillingPeriod) -> Check:
    end = instant_text(period.ends_at)
    ok = timezone.now() >= period.ends_at
    return Check("ended", "The period has ended", ok, f"it ends at {end}", (("End", end),))


def _earlier(period: BillingPeriod) -> Check:
    before = BillingPeriod.objects.filter(
        organisation=period.organisation,
        contract_id=period.contract_id,
        starts_at__lt=period.starts_at,
    )
    open_now = [row.label for row in before.filter(close__isnull=True).order_by("starts_at")]
    words = f"still open: {', '.join(open_now)}" if open_now else "no earlier period is open"
    return Check("earlier", "Earlier periods are closed", not open_now, words)


def _issued(
    period: BillingPeriod, savings: SavingsRecord | None, documents: Sequence[Invoice]
) -> Check:
    own = next((d for d in documents if d.period_id == period.pk and d.kind == "invoice"), None)
    title = "Savings are computed and the invoice is issued"
    if savings is None:
        later = SavingsRecord.objects.filter(
            organisation=period.organisation,
            period__contract_id=period.contract_id,
            period__starts_at__gt=period.starts_at,
        ).order_by("period__starts_at")
        first = later.values_list("period__label", flat=True).first()
        if first is None:
            return Check("invoice", title, False, "no savings are computed")
        # Periods are computed in order, so it can bill nothing any more; its books may hold
        # corrections of an earlier one all the same.
        return Check("invoice", title, True, f"skipped: {first} is computed, so it bills nothing")
    if own is None:
        return Check("invoice", title, False, "no invoice is issued")
    zero = "" if own.gross else ", an invoice of zero with its reason"
    amount = to_text(quantize(own.gross, own.currency))
    return Check(
        "invoice", title, True, f"{own.number}: {amount} {own.currency} payable{zero}",
        (("Savings, SHA-256", savings.sha256), (f"{own.number}, SHA-256", own.sha256)),
    )  # fmt: skip


def _disputes(documents: Sequence[Invoice]) -> Check:
    rows = Dispute.objects.filter(invoice__in=documents).select_related("invoice")
    open_now = [row for row in rows if row.outcome == Dispute.Outcome.OPEN]
    ended = len(rows) - len(open_now)
    words = (
        "open: " + ", ".join(f"{row.invoice.number}, {row.disputed} disputed" for row in open_now)
        if open_now
        else f"none is open; {ended} ended"
    )
    evidence = tuple((row.invoice.number, f"{row.outcome}: {row.reason}") for row in rows)
    return Check("disputes", "No dispute is open", not open_now, words, evidence)


def _parked(period: BillingPeriod) -> Check:
    rows = books.undecided(period)
    count = rows.count()
    named = tuple(
        (f"{row.fate}, {row.source} {row.event_id}", row.reason)
        for row in rows.order_by("batch__created_at", "line_number")[: books.NAMED_LINES]
    )
    words = "no undecided conflict, no unmatched line"
    if count:
        lines = "1 parked line" if count == 1 else f"{count} parked lines"
        words = f"undecided, conflicts or unmatched: {lines} of the period"
    return Check("usage", "Usage is settled", not count, words, named, named=True)


def _late(period: BillingPeriod, savings: SavingsRecord | None) -> Check:
    title = "Late usage is named"
    late = books.late_usage(period, savings) if savings else books.Late(0, 0)
    if not late.events:
        return Check("late", title, True, "nothing arrived after the savings were computed")
    words = (
        f"{late.events} event{'' if late.events == 1 else 's'} with {late.samples} samples arrived"
        " after the savings were computed: in no invoice of this period, for the next one as a line"
        " that corrects it"
    )
    return Check("late", title, True, words, (("Events", str(late.events)),
                                              ("Samples", str(late.samples))))  # fmt: skip


def _journal(period: BillingPeriod) -> Check:
    entries = books.postings(entries_of(period))
    wrong = books.unbalanced(entries)
    words = f"{len(entries)} postings sum to exactly 0, each document's too"
    if wrong:
        words = ", ".join(f"{name}: {to_text(total)}" for name, total in sorted(wrong.items()))
    return Check("journal", "The journal sums to zero", not wrong, words)


def _exports(documents: Sequence[Invoice]) -> list[Check]:
    missing: list[tuple[str, Any]] = [
        (document.number, one.label) for document in documents for one in exports_missing(document)
    ]
    written = books.export_checks(documents)
    faulty = [check for check in written if check.faults]
    lacking = ", ".join(f"{label} of {number}" for number, label in missing)
    digests = tuple(
        (f"{check.export.invoice.number}, {check.export.get_file_format_display()}",
         check.manifest.sha256)
        for check in written
    )  # fmt: skip
    told = "; ".join(
        f"{check.export.get_file_format_display()} of {check.export.invoice.number}: "
        + ", ".join(check.faults)
        for check in faulty
    )
    return [
        Check(
            "exports", "Exports are written", not missing,
            f"missing: {lacking}" if missing else f"{len(written)} files", digests,
        ),
        Check(
            "validated", "Exports hold: FOCUS, UBL, journal and the others", not faulty,
            told or f"{len(written)} files read back: sound, to the cent, and the same bytes "
            "when made again",
        ),
    ]  # fmt: skip
