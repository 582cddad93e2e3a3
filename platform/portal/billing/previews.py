"""What a correction would come to, worked out by the engine as the service will; no writes.

In: an issued document and what somebody means to contest or credit. Out: the engine's own document
or split, or a refusal that names the field. The services in `corrections` call the same functions,
so what a page shows before somebody confirms is what is stored afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from django.utils import timezone

from metering.decimals import exact
from metering.ledger import Dispute as DisputeDocument
from metering.ledger import Invoice as InvoiceDocument
from metering.ledger import credit_note, dispute, left_to_credit
from portal.billing.models import Correction, Invoice
from portal.billing.savings import BillingError

CREDIT_SERIES = "CN"
# A number no issued note can have: those end in digits alone.
PREVIEW_NUMBER = f"{CREDIT_SERIES}-preview"


@dataclass(frozen=True)
class LineLeft:
    """One line of a document, what credit notes took of it and what is left; signed amounts."""

    line_id: str
    description: str
    billed: Decimal
    left: Decimal

    @property
    def credited(self) -> Decimal:
        """What credit notes have taken of the line so far."""
        with exact():
            return self.billed - self.left


def moment(at: datetime | None) -> datetime:
    """`at`, or now, as a document carries it: UTC, to the second."""
    return (at or timezone.now()).astimezone(UTC).replace(microsecond=0)


def credit_notes_of(invoice: Invoice) -> list[InvoiceDocument]:
    """Credit notes of a document, without the one an audit led to."""
    rows = invoice.corrections.filter(kind=Invoice.Kind.CREDIT_NOTE).exclude(
        correction__kind=Correction.Kind.AUDIT
    )
    return [InvoiceDocument.from_json(row.document) for row in rows.order_by("sequence")]


def lines_left(invoice: Invoice) -> tuple[LineLeft, ...]:
    """Every line of an invoice or release with what is left of it; none for a credit note."""
    if invoice.kind == Invoice.Kind.CREDIT_NOTE:
        return ()
    document = InvoiceDocument.from_json(invoice.document)
    left = left_to_credit(document, credit_notes_of(invoice))
    return tuple(
        LineLeft(line.line_id, line.description, line.amount, left[line.line_id])
        for line in document.lines
    )


def require_creditable(invoice: Invoice) -> None:
    """BillingError for a document that no credit note may follow: an audited invoice, a note."""
    if invoice.kind == Invoice.Kind.CREDIT_NOTE:
        raise BillingError(f"{invoice}: a credit note is not credited; issue a new invoice")
    if Correction.objects.filter(invoice=invoice, kind=Correction.Kind.AUDIT).exists():
        raise BillingError(
            f"{invoice}: audited, its fee is final; credit the release the audit led to"
        )


def credit_document(
    invoice: Invoice,
    *,
    number: str,
    reason: str,
    amounts: Mapping[str, Decimal] | None,
    issued_at: datetime,
    previous: Sequence[InvoiceDocument],
) -> InvoiceDocument:
    """The credit note as the engine builds it; Refusal above what is left of a line."""
    return credit_note(
        InvoiceDocument.from_json(invoice.document),
        number=number,
        series=CREDIT_SERIES,
        issued_at=issued_at,
        reason=reason,
        amounts=amounts,
        previous=previous,
    )


def credit_preview(
    invoice: Invoice, *, reason: str, amounts: Mapping[str, Decimal] | None
) -> InvoiceDocument:
    """The credit note that `credit_issue` would store now, under a number it will not have."""
    require_creditable(invoice)
    previous = credit_notes_of(invoice)
    if not any(left_to_credit(InvoiceDocument.from_json(invoice.document), previous).values()):
        raise BillingError(f"{invoice}: nothing is left to credit")
    return credit_document(
        invoice,
        number=PREVIEW_NUMBER,
        reason=reason,
        amounts=amounts,
        issued_at=moment(None),
        previous=previous,
    )


def require_disputable(invoice: Invoice) -> None:
    """BillingError for a document whose lines can no longer be set aside."""
    if invoice.kind != Invoice.Kind.INVOICE:
        raise BillingError(f"{invoice}: a {invoice.get_kind_display()}; an invoice is disputed")
    if invoice.corrections.exists():
        raise BillingError(f"{invoice}: corrected already; contest what is left of it in words")


def dispute_split(invoice: Invoice, lines: Sequence[str], on: date) -> DisputeDocument:
    """What stays collectible and what is set aside; Refusal for lines the invoice does not have."""
    return dispute(InvoiceDocument.from_json(invoice.document), list(lines), on=on)


def dispute_preview(invoice: Invoice, lines: Sequence[str]) -> DisputeDocument:
    """The split that `dispute_open` would store today."""
    require_disputable(invoice)
    return dispute_split(invoice, lines, timezone.now().date())
