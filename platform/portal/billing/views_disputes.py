"""Disputes and credit notes: contested by the customer, resolved by finance, read by the auditor.

Each act shows first what it would come to and is done on the second, confirmed POST; the services
write. Whoever sees an invoice sees its disputes.
"""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from metering.refusal import Refusal
from portal.accounts.access import may
from portal.billing import corrections, selectors
from portal.billing.figures_invoice import dispute_figures
from portal.billing.filters import DisputeFilter
from portal.billing.forms import CreditForm, DisputeForm
from portal.billing.models import Invoice
from portal.billing.previews import (
    credit_notes_of,
    credit_preview,
    dispute_preview,
    lines_left,
    require_creditable,
    require_disputable,
)
from portal.billing.savings import BillingError
from portal.billing.tables import DisputeTable, period_cell
from portal.events.selectors import event_list
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.figures import Crumb, crumbs
from portal.web.lists import list_page

REFUSALS = (Refusal, BillingError)


@require_safe
@for_readers_of("billing")
def disputes(request: ActorRequest) -> HttpResponse:
    """Every dispute."""
    return list_page(
        request,
        title="Disputes",
        intro="Contested lines are set aside until finance releases or credits them; the others "
        "stay collectible.",
        rows=selectors.dispute_list(actor=request.actor),
        table=DisputeTable,
        filterset=DisputeFilter,
        empty="A customer opens a dispute from the page of an invoice.",
    )


@require_safe
@for_readers_of("billing")
def dispute(request: ActorRequest, dispute_id: object) -> HttpResponse:
    """One dispute: its lines, its split, its history, and for finance the way to end it."""
    shown = selectors.dispute_get(actor=request.actor, dispute_id=dispute_id)
    notes = list(
        selectors.invoice_list(actor=request.actor)
        .filter(corrects=shown.invoice, kind=Invoice.Kind.CREDIT_NOTE)
        .order_by("sequence")
    )
    about = [str(shown.pk), *(str(note.pk) for note in notes)]
    context = {
        "dispute": shown,
        "invoice": shown.invoice,
        "period_range": period_cell(shown.invoice.period),
        "lines": [
            line for line in shown.invoice.document["lines"] if line["line_id"] in shown.lines
        ],
        "figures": dispute_figures(shown),
        "notes": notes,
        "events": event_list(actor=request.actor)
        .filter(subject_id__in=about, action__in=("dispute.open", "dispute.resolve",
                                                  "invoice.credit"))
        .order_by("seq"),
        "resolves": may(request.actor, "dispute.resolve") and shown.outcome == "open",
        "crumbs": crumbs(("Disputes", reverse("billing:disputes"))),
    }  # fmt: skip
    return render(request, "portal/billing/dispute.html", context)


@require_safe
@for_doers_of("dispute.open")
def dispute_new(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The form with which a customer contests lines."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    found = selectors.dispute_list(actor=request.actor).filter(invoice=shown, outcome="open")
    if found:
        return redirect("billing:dispute", found[0].pk)
    return _dispute_page(request, shown, _dispute_form(shown))


@require_POST
@for_doers_of("dispute.open")
def dispute_open(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """Show the split, and open the dispute once it is confirmed."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    form = _dispute_form(shown, request.POST)
    if not form.is_valid():
        return _dispute_page(request, shown, form, status=400)
    given = form.cleaned_data
    try:
        split = dispute_preview(shown, given["lines"])
        if not given["confirmed"]:
            return _dispute_page(request, shown, form, split=split)
        row = corrections.dispute_open(
            actor=request.actor, invoice=shown, lines=given["lines"], reason=given["reason"]
        )
    except REFUSALS as error:
        form.refuse(error)
        return _dispute_page(request, shown, form, status=400)
    messages.success(request, "The dispute is open. Finance releases the lines or credits them.")
    return redirect("billing:dispute", row.pk)


@require_POST
@for_doers_of("dispute.resolve")
def dispute_release(request: ActorRequest, dispute_id: object) -> HttpResponse:
    """End a dispute by release."""
    shown = selectors.dispute_get(actor=request.actor, dispute_id=dispute_id)
    try:
        corrections.dispute_release(actor=request.actor, invoice=shown.invoice)
    except BillingError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, "Released: the lines are collectible again.")
    return redirect("billing:dispute", shown.pk)


@require_safe
@for_doers_of("invoice.credit")
def credit_new(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The form with which finance credits lines of an invoice or a release."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    return _credit_page(request, shown, _credit_form(shown))


@require_POST
@for_doers_of("invoice.credit")
def credit(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """Show the credit note, and issue it once it is confirmed."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    form = _credit_form(shown, request.POST)
    if not form.is_valid():
        return _credit_page(request, shown, form, status=400)
    given = form.cleaned_data
    terms = {"reason": given["reason"], "amounts": given["amounts"]}
    try:
        note = credit_preview(shown, **terms)
        if given["confirmed"] is None:
            seen = len(credit_notes_of(shown))
            return _credit_page(request, shown, form, note=note, seen=seen)
        row = corrections.credit_issue(
            actor=request.actor, invoice=shown, after=given["confirmed"], **terms
        )
    except REFUSALS as error:
        form.refuse(error)
        return _credit_page(request, shown, form, status=400)
    messages.success(request, f"Issued: {row.number}. {shown.number} stays as it was.")
    return redirect("billing:invoice", row.pk)


def _dispute_form(invoice: Invoice, data: Any = None) -> DisputeForm:
    choices = [
        (line["line_id"], f"Line {line['line_id']}: {line['description']}, "
         f"{line['fee_line']['amount']} {invoice.currency} before holdback and tax")
        for line in invoice.document["lines"]
    ]  # fmt: skip
    return DisputeForm(data, choices=choices)


def _credit_form(invoice: Invoice, data: Any = None) -> CreditForm:
    return CreditForm(data, lines=lines_left(invoice), currency=invoice.currency)


def _dispute_page(
    request: ActorRequest, invoice: Invoice, form: DisputeForm, status: int = 200, **more: Any
) -> HttpResponse:
    context = {
        "invoice": invoice, "form": form, "impossible": _why_not(require_disputable, invoice),
        "crumbs": _trail(invoice), **more,
    }  # fmt: skip
    return render(request, "portal/billing/dispute_new.html", context, status=status)


def _credit_page(
    request: ActorRequest, invoice: Invoice, form: CreditForm, status: int = 200, **more: Any
) -> HttpResponse:
    found = selectors.dispute_list(actor=request.actor).filter(invoice=invoice, outcome="open")
    context = {
        "invoice": invoice, "form": form, "open_dispute": found.first(),
        "impossible": _why_not(require_creditable, invoice)
        or ("" if form.lines else f"{invoice}: nothing is left to credit"),
        "crumbs": _trail(invoice), **more,
    }  # fmt: skip
    return render(request, "portal/billing/credit_new.html", context, status=status)


def _why_not(check: Any, invoice: Invoice) -> str:
    """Why the act is closed for this document, or nothing."""
    try:
        check(invoice)
    except BillingError as error:
        return str(error)
    return ""


def _trail(invoice: Invoice) -> tuple[Crumb, ...]:
    return tuple(
        crumbs(
            ("Invoices", reverse("billing:invoices")),
            (invoice.number, reverse("billing:invoice", args=[invoice.pk])),
        )
    )
