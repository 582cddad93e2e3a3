"""Invoices and their journal: frozen documents, every line open to its formula and inputs."""

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from metering.decimals import to_text
from portal.billing import selectors
from portal.billing.exports import LINES_HEADER, exports_write, line_rows
from portal.billing.filters import InvoiceFilter, JournalFilter
from portal.billing.invoice_page import invoice_context, invoice_falls
from portal.billing.tables import InvoiceTable, JournalTable
from portal.web.access import ActorRequest, chart_page, for_doers_of, for_readers_of
from portal.web.answers import csv_file
from portal.web.lists import list_page

WATERFALL_HEADER = ("invoice", "row", "kind", "name", "amount", "amount_after", "currency")


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
@chart_page
@for_readers_of("billing")
def invoice(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """One document: lines, the way to the payable, relatives, disputes, journal, exports."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    return render(request, "portal/billing/invoice.html", invoice_context(request.actor, shown))


@require_safe
@for_readers_of("billing")
def invoice_waterfall(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """From the counterfactual to the payable as CSV, every stored digit."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    rows = [
        (shown.number, number, row.kind, row.name, to_text(row.amount), to_text(row.after),
         shown.currency)
        for number, row in enumerate(invoice_falls(shown), start=1)
    ]  # fmt: skip
    return csv_file(f"{shown.number}-waterfall.csv", WATERFALL_HEADER, rows)


@require_safe
@for_readers_of("billing")
def invoice_lines(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The lines as CSV, every stored digit."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    return csv_file(f"{shown.number}-lines.csv", LINES_HEADER, line_rows(shown))


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
