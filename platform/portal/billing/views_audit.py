"""The audit of an invoice: settled once, by the auditor, on a stored and approved measurement.

The first answer shows the audited fee beside the invoiced one and the release or credit note that
follows; the second, confirmed POST issues it.
"""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from metering.refusal import Refusal
from portal.accounts.access import get_or_404
from portal.billing import selectors
from portal.billing.corrections import audit_settle
from portal.billing.forms import AuditForm
from portal.billing.models import Invoice
from portal.billing.savings import BillingError
from portal.billing.settlement import (
    Settlement,
    audited_savings,
    measurements_for,
    require_auditable,
    require_measured,
    settle,
)
from portal.runs.models import Measurement
from portal.runs.selectors import measurement_list
from portal.web.access import ActorRequest, for_doers_of
from portal.web.figures import crumbs
from portal.web.formats import instant, signed_percent


@require_safe
@for_doers_of("invoice.audit")
def audit(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """The form with which the auditor settles an invoice."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    return _page(request, shown, _form(request, shown))


@require_POST
@for_doers_of("invoice.audit")
def audit_confirm(request: ActorRequest, invoice_id: object) -> HttpResponse:
    """Show what the audit comes to, and settle once it is confirmed."""
    shown = selectors.invoice_get(actor=request.actor, invoice_id=invoice_id)
    form = _form(request, shown, request.POST)
    if not form.is_valid():
        return _page(request, shown, form, status=400)
    given = form.cleaned_data
    measurement = get_or_404(measurement_list(actor=request.actor), given["measurement"])
    try:
        verified = audited_savings(shown, measurement)
        told = settle(shown, measurement, verified)
        if given["confirmed"] is None:
            return _page(request, shown, form, told=told)
        correction = audit_settle(
            actor=request.actor, invoice=shown, measurement=measurement, verified=verified,
            after=given["confirmed"],
        )  # fmt: skip
    except (Refusal, BillingError) as error:
        form.add_error(None, str(error))
        return _page(request, shown, form, status=400)
    made = correction.document
    words = f"issued: {made.number}" if made else "no document follows"
    messages.success(request, f"Settled; {words}. {shown.number} stays as it was.")
    return redirect("billing:invoice", made.pk if made else shown.pk)


def _form(request: ActorRequest, invoice: Invoice, data: Any = None) -> AuditForm:
    choices = [
        (str(row.pk), _words(row, row.pk == invoice.measurement_id))
        for row in measurements_for(request.actor, invoice)
    ]
    return AuditForm(data, choices=choices)


def _words(row: Measurement, billed: bool) -> str:
    uplift = signed_percent(row.uplift_point, 2)
    bound = signed_percent(row.uplift_lower_95, 2)
    which = ", the one that was billed" if billed else ""
    kept = "" if row.kept else ", not kept"
    return f"{instant(row.measured_at)}: uplift {uplift}, lower bound {bound}{kept}{which}"


def _page(
    request: ActorRequest,
    invoice: Invoice,
    form: AuditForm,
    told: Settlement | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "invoice": invoice,
        "form": form,
        "told": told,
        "rows": _rows(told) if told else (),
        "seen": len(told.previous) if told else 0,
        "impossible": _why_not(invoice),
        "crumbs": crumbs(
            ("Invoices", reverse("billing:invoices")),
            (invoice.number, reverse("billing:invoice", args=[invoice.pk])),
        ),
    }
    return render(request, "portal/billing/audit.html", context, status=status)


def _rows(told: Settlement) -> list[tuple[str, Any, Any]]:
    names = {
        "net_savings": "Savings that count", "chargeable": "Chargeable savings", "fee": "Fee",
    }  # fmt: skip
    return [
        (words, getattr(told.invoiced, name), getattr(told.audited, name))
        for name, words in names.items()
    ]


def _why_not(invoice: Invoice) -> str:
    """Why the audit is closed for this document, or nothing."""
    try:
        require_auditable(invoice)
        require_measured(invoice)
    except BillingError as error:
        return str(error)
    return ""
