"""Invoices and their journal: frozen documents, every line open to its formula and inputs."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import may
from portal.billing import selectors
from portal.billing.exports import exports_missing, exports_write
from portal.billing.figures import invoice_rows
from portal.billing.filters import InvoiceFilter, JournalFilter
from portal.billing.tables import InvoiceTable, JournalTable, period_cell
from portal.documents.selectors import report_list
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.answers import csv_file
from portal.web.figures import crumbs
from portal.web.lists import list_page

LINES_HEADER = (
    "invoice", "line", "kind", "model", "system", "volume_samples", "savings_point",
    "savings_bound", "counterfactual", "billed_savings", "amount_unrounded", "amount",
    "rounding_residue", "currency", "reason", "baseline_id", "uplift_id",
)  # fmt: skip


@require_safe
@for_readers_of("billing")
def invoices(request: ActorRequest) -> HttpResponse:
    """Every invoice."""
    return list_page(
        request,
        title="Invoices",
        intro="Issued once and never changed. Numbers are gapless within their series.",
        rows=selectors.invoice_list(actor=request.actor),
        table=InvoiceTable,
        filterset=InvoiceFilter,
        empty="An invoice is issued once a period's savings rest on an approved measurement. "
        "Without the auditor's signature there is no number.",
    )


@require_safe
@for_readers_of("billing")
def invoice(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """One invoice with lines, holdback, tax, payable, journal and exports."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    entries = list(selectors.journal_list(actor=request.actor).filter(invoice=shown))
    context = {
        "invoice": shown,
        "document": shown.document,
        "period": shown.period,
        "period_range": period_cell(shown.period),
        "lines": invoice_rows(shown),
        "entries": entries,
        "journal_sum": sum((entry.amount for entry in entries), start=shown.net - shown.net),
        "exports": selectors.export_list(actor=request.actor).filter(invoice=shown),
        "missing": exports_missing(shown) if may(request.actor, "export.write") else (),
        "report": report_list(actor=request.actor).filter(invoice=shown).first(),
        "crumbs": crumbs(("Invoices", reverse("billing:invoices"))),
    }
    return render(request, "portal/billing/invoice.html", context)


@require_safe
@for_readers_of("billing")
def invoice_lines(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The lines as CSV, every stored digit."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    rows = [
        (
            shown.number, line["line_id"], fee["kind"], fee["model"], fee["system"],
            fee["volume"], fee["point"], fee["bound"], fee["counterfactual"],
            fee["billed_savings"], fee["amount_unrounded"], fee["amount"], fee["residue"],
            shown.currency, fee["reason"], fee["baseline_id"], fee["uplift_id"],
        )
        for line in shown.document["lines"]
        for fee in (line["fee_line"],)
    ]  # fmt: skip
    return csv_file(f"{shown.number}-lines.csv", LINES_HEADER, rows)


@require_POST
@for_doers_of("export.write")
def invoice_exports(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """Write the formats of a document that are not there yet."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    made = exports_write(actor=request.actor, invoice=shown)
    names = ", ".join(export.get_file_format_display() for export in made)
    messages.success(request, f"Written: {names}." if made else "Every format is there already.")
    return redirect("billing:invoice", shown.pk)


@require_safe
@for_readers_of("billing")
def journal(request: ActorRequest) -> HttpResponse:
    """Postings of all invoices."""
    return list_page(
        request,
        title="Journal",
        intro="Double entry: the postings of each invoice sum to zero.",
        rows=selectors.journal_list(actor=request.actor),
        table=JournalTable,
        filterset=JournalFilter,
        empty="The first issued invoice writes the first postings.",
    )
