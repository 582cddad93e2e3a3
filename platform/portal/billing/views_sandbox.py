"""The sandbox of an invoice: change assumptions, see every amount that moves. Only ever GET.

The changed assumptions are the address, so a colleague who opens it sees the same figures; what is
unchanged is left out of it. Nothing is written, and the page shows that nothing was.
"""

from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from metering.decimals import to_text
from metering.ledger import Invoice as InvoiceDocument
from metering.refusal import Refusal
from portal.billing import selectors
from portal.billing.assumptions import assumptions, case_changes
from portal.billing.figures_invoice import compared_figure
from portal.billing.forms import SandboxForm
from portal.billing.models import Invoice
from portal.billing.sandbox import Compared, compare, invoice_what_if
from portal.billing.savings import BillingError
from portal.billing.tables import period_cell
from portal.web.access import ActorRequest, for_readers_of
from portal.web.answers import csv_file
from portal.web.figures import crumbs

HEADER = (
    "invoice",
    "group",
    "amount",
    "issued",
    "assumed",
    "difference",
    "currency",
    "assumptions",
)


@require_safe
@for_readers_of("billing")
def sandbox(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The form, and for changed assumptions every difference beside the issued amounts."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    if shown.kind != Invoice.Kind.INVOICE and shown.corrects_id is not None:
        return redirect("billing:sandbox", shown.corrects_id)
    known = assumptions(shown.savings)
    given = {item.place: request.GET[item.place].strip() for item in known
             if item.place in request.GET}  # fmt: skip
    form = SandboxForm(given, known=known)
    if not form.is_valid():
        return _page(request, shown, form, status=400)
    as_csv = request.GET.get("format") == "csv"
    query = form.changed | ({"format": "csv"} if as_csv else {})
    if request.GET.dict() != query:
        address = reverse("billing:sandbox", args=[shown.pk])
        return redirect(f"{address}?{urlencode(query)}" if query else address)
    if not form.changed:
        return _page(request, shown, form)
    try:
        changes = case_changes(shown.savings, form.changed)
        found = invoice_what_if(actor=request.actor, invoice=shown, changes=changes)
        rows = compare(found)
    except (Refusal, BillingError) as error:
        form.refuse(error)
        return _page(request, shown, form, status=400)
    return _csv(shown, form, rows) if as_csv else _page(request, shown, form, rows=rows)


def _csv(invoice: Invoice, form: SandboxForm, rows: tuple[Compared, ...]) -> HttpResponse:
    assumed = "; ".join(f"{place}={text}" for place, text in form.changed.items())
    lines = [
        (invoice.number, row.group, row.name,
         "" if row.issued is None else to_text(row.issued),
         "" if row.assumed is None else to_text(row.assumed),
         to_text(row.difference), invoice.currency, assumed)
        for row in rows
    ]  # fmt: skip
    return csv_file(f"{invoice.number}-sandbox.csv", HEADER, lines)


def _page(
    request: ActorRequest,
    invoice: Invoice,
    form: SandboxForm,
    rows: tuple[Compared, ...] | None = None,
    status: int = 200,
) -> HttpResponse:
    stored = InvoiceDocument.from_json(invoice.document)
    changed = form.changed if rows is not None else {}
    query = request.GET.copy()
    query["format"] = "csv"
    context = {
        "invoice": invoice,
        "form": form,
        "rows": None if rows is None else [(row, compared_figure(row, invoice)) for row in rows],
        "period_range": period_cell(invoice.period),
        "moved": sum(1 for row in rows or () if row.difference),
        "changed": [(form.known[place], text) for place, text in changed.items()],
        "digest": stored.digest,
        "untouched": stored.digest == invoice.sha256,
        "postings": selectors.journal_list(actor=request.actor).filter(invoice=invoice).count(),
        "csv_url": f"{request.path}?{query.urlencode()}",
        "crumbs": crumbs(
            ("Invoices", reverse("billing:invoices")),
            (invoice.number, reverse("billing:invoice", args=[invoice.pk])),
        ),
    }
    return render(request, "portal/billing/sandbox.html", context, status=status)
