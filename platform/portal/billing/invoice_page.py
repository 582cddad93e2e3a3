"""What the page of one issued document shows: its numbers open, its relatives, what may be done.

In: an actor and a document the actor sees. Out: the context of the page's template, and the rows of
the waterfall for page and CSV alike. Reads only.
"""

from typing import Any

from django.urls import reverse

from portal.accounts.access import may
from portal.accounts.models import Membership
from portal.billing import selectors
from portal.billing.corrections import ended_in
from portal.billing.exports import exports_missing
from portal.billing.figures_invoice import (
    amount_figures,
    api_of,
    handed_on,
    journal_figure,
    left_figures,
    line_rows,
)
from portal.billing.models import Correction, Dispute, Invoice
from portal.billing.previews import LineLeft, lines_left
from portal.billing.tables import period_cell
from portal.billing.waterfall import Fall, waterfall
from portal.documents.selectors import report_list
from portal.web import charts
from portal.web.figures import crumbs


def invoice_falls(invoice: Invoice) -> tuple[Fall, ...]:
    """The waterfall of an invoice; none for a correction, which is not a fee of its own."""
    if invoice.kind != Invoice.Kind.INVOICE:
        return ()
    return waterfall(invoice.savings, api_of(invoice), invoice.document["method_version"])


def invoice_context(actor: Membership, invoice: Invoice) -> dict[str, Any]:
    """Everything the page of one document shows to this actor."""
    entries = list(selectors.journal_list(actor=actor).filter(invoice=invoice))
    falls = invoice_falls(invoice)
    left = lines_left(invoice)
    disputes = list(selectors.dispute_list(actor=actor).filter(invoice=invoice))
    return {
        "invoice": invoice,
        "document": invoice.document,
        "period": invoice.period,
        "period_range": period_cell(invoice.period),
        "lines": line_rows(invoice),
        "amounts": amount_figures(invoice),
        "falls": falls,
        "chart": charts.fee_waterfall(
            [(row.name, row.kind, float(row.amount)) for row in falls], invoice.currency
        ),
        "handed_on": handed_on(invoice, ended_in(invoice)) if falls else (),
        "entries": entries,
        "journal_sum": journal_figure(invoice, entries),
        "exports": selectors.export_list(actor=actor).filter(invoice=invoice),
        "missing": exports_missing(invoice) if may(actor, "export.write") else (),
        "report": report_list(actor=actor).filter(invoice=invoice).first(),
        **_relatives(actor, invoice, left, disputes),
        "crumbs": crumbs(("Invoices", reverse("billing:invoices"))),
    }


def _relatives(
    actor: Membership, invoice: Invoice, left: tuple[LineLeft, ...], disputes: list[Dispute]
) -> dict[str, Any]:
    """Documents before and after this one, what is left of it, and which acts are offered."""
    corrections = list(
        selectors.invoice_list(actor=actor)
        .filter(corrects=invoice)
        .select_related("correction")
        .order_by("issued_at", "sequence")
    )
    audits = selectors.correction_list(actor=actor).filter(
        invoice=invoice, kind=Correction.Kind.AUDIT
    )
    audit = audits.first() if invoice.kind == Invoice.Kind.INVOICE else None
    open_dispute = next((row for row in disputes if row.outcome == Dispute.Outcome.OPEN), None)
    plain = invoice.kind == Invoice.Kind.INVOICE
    return {
        "corrections": corrections,
        "audit": audit,
        "left": left_figures(invoice, left),
        "disputes": disputes,
        "open_dispute": open_dispute,
        "may_dispute": may(actor, "dispute.open") and plain and bool(invoice.gross)
        and not corrections and open_dispute is None,
        "may_audit": may(actor, "invoice.audit") and plain and audit is None
        and open_dispute is None,
        "may_credit": may(actor, "invoice.credit") and audit is None
        and any(line.left for line in left),
    }  # fmt: skip
