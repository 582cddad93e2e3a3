"""What an audit settles an invoice at: the same period's savings on an approved measurement.

In: an invoice and a stored measurement of the kernel and baseline it was billed on. Out: audited
savings, their fee and the engine's outcome. Volume, cores and price stay as they were billed; only
the uplift is the measurement's. Reads only: `corrections.audit_settle` writes what this works out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from metering.contract import (
    AuditOutcome,
    Contract,
    FeeBreakdown,
    LedgerState,
    VerifiedSavings,
    fee,
    release_or_credit,
)
from metering.ledger import Invoice as InvoiceDocument
from metering.ledger import credited
from metering.plan import PriceBook
from metering.savings import SavingsLine, savings_line, verified_savings
from portal.accounts.models import Membership
from portal.billing.models import Correction, Dispute, Invoice
from portal.billing.previews import credit_notes_of
from portal.billing.savings import (
    VERIFIED_SCHEMA,
    BillingError,
    check_verified,
    contract_version_of,
    frozen_breakdown,
)
from portal.runs.models import Measurement
from portal.runs.selectors import measurement_list


@dataclass(frozen=True)
class Settlement:
    """The audited fee beside the invoiced one, and what follows."""

    invoiced: FeeBreakdown
    audited: FeeBreakdown
    outcome: AuditOutcome
    previous: tuple[InvoiceDocument, ...]


def require_auditable(invoice: Invoice) -> None:
    """BillingError for a document that no audit can settle now."""
    if invoice.kind != Invoice.Kind.INVOICE:
        raise BillingError(
            f"{invoice}: a {invoice.get_kind_display()}; an audit settles an invoice"
        )
    if Correction.objects.filter(invoice=invoice, kind=Correction.Kind.AUDIT).exists():
        raise BillingError(f"{invoice}: audited already; an invoice is settled once")
    if invoice.disputes.filter(outcome=Dispute.Outcome.OPEN).exists():
        raise BillingError(f"{invoice}: disputed; resolve the dispute before the audit")


def require_measured(invoice: Invoice) -> None:
    """BillingError where no measurement can give the savings: they were stated by the auditor."""
    if invoice.savings.document["schema"] == VERIFIED_SCHEMA:
        raise BillingError(
            f"{invoice}: its savings are amounts the auditor stated, which no stored measurement"
            " gives; state the audited amounts the same way"
        )


def settle(invoice: Invoice, measurement: Measurement, verified: VerifiedSavings) -> Settlement:
    """What `audit_settle` does with audited savings: fee, release or credit, state; all or none.

    BillingError unless the savings are of the invoice's period and rest on approved evidence.
    """
    require_auditable(invoice)
    savings = invoice.savings
    check_verified(invoice.period, measurement, verified)
    contract = Contract.from_json(contract_version_of(savings).contract)
    before = LedgerState.from_json(savings.document["state_before"])
    audited = fee(contract, before, verified)
    invoiced = frozen_breakdown(savings, contract)
    previous = credit_notes_of(invoice)
    outcome = release_or_credit(contract, invoiced, audited, credited(previous))
    return Settlement(invoiced, audited, outcome, tuple(previous))


def measurements_for(actor: Membership, invoice: Invoice) -> Sequence[Measurement]:
    """Approved measurements of the kernel and baseline that were billed, newest first."""
    billed = invoice.measurement
    rows = measurement_list(actor=actor).filter(
        package_id=billed.package_id,
        baseline_id=billed.baseline_id,
        state=Measurement.State.APPROVED,
    )
    return list(rows.order_by("-measured_at", "-id"))


def audited_savings(invoice: Invoice, measurement: Measurement) -> VerifiedSavings:
    """The billed volume at the uplift of `measurement`, through the engine's own line.

    BillingError for a measurement of another kernel or baseline, and for stated savings.
    """
    require_measured(invoice)
    billed = invoice.measurement
    if (measurement.package_id, measurement.baseline_id) != (
        billed.package_id, billed.baseline_id,
    ):  # fmt: skip
        raise BillingError(
            f"{measurement}: of another kernel or baseline; wanted one of what was billed"
        )
    book = PriceBook.from_json(billed.contract_version.price_book.document)
    lines = [
        _audited(SavingsLine.from_json(line), measurement, book)
        for line in invoice.savings.document["lines"]
    ]
    return verified_savings(lines, evidence_digest=measurement.evidence_sha256)


def _audited(line: SavingsLine, measurement: Measurement, book: PriceBook) -> SavingsLine:
    return savings_line(
        model=line.model,
        system=line.system,
        segment=line.segment,
        period=line.period,
        volume=line.volume,
        cores=line.cores,
        baseline_samples_per_second=line.baseline_samples_per_second,
        price_book=book,
        uplift_point=measurement.uplift["point"],
        uplift_lower_95=measurement.uplift["lower_95"],
        baseline_id=line.baseline_id,
        uplift_id=str(measurement.pk),
        evidence_digest=measurement.evidence_sha256,
        kept=measurement.kept,
        not_kept_reason=measurement.reason,
        gate=line.gate,
        method_version=line.method_version,
    )
