"""Periods: every month of every contract with its state, and how finance takes it to an invoice."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import may
from portal.audits.selectors import review_list
from portal.billing import selectors, services
from portal.billing.figures import savings_figures
from portal.billing.forms_periods import BillForm, OpenForm
from portal.billing.models import BillingPeriod, Invoice, SavingsRecord
from portal.billing.periods import State, month_list, month_of
from portal.billing.posting import invoices_of
from portal.billing.savings import BillingError
from portal.billing.tables import period_cell
from portal.billing.tables_periods import PeriodTable
from portal.contracts.selectors import contract_get
from portal.runs.requests import bill_request
from portal.runs.views_jobs import job_context
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.figures import Crumb, crumbs
from portal.web.lists import list_page


@require_safe
@for_readers_of("billing")
def periods(request: ActorRequest) -> HttpResponse:
    """Every month of the signed contracts."""
    return _list(request, OpenForm())


def _list(request: ActorRequest, form: OpenForm, status: int = 200) -> HttpResponse:
    months = month_list(actor=request.actor)
    opens = may(request.actor, "invoice.issue")
    response = list_page(
        request,
        title="Periods",
        intro="From the first usage to the close. Times are UTC; a period is cut in its contract's "
        "zone.",
        rows=months,
        table=PeriodTable,
        empty="A contract's months appear here once provider, customer and auditor have signed it.",
        template="portal/billing/periods.html",
        more={"unopened": [month for month in months if month.may_be_opened] if opens else [],
              "form": form},
    )  # fmt: skip
    response.status_code = status
    return response


@require_POST
@for_doers_of("invoice.issue")
def period_open(request: ActorRequest) -> HttpResponse:
    """Open one month of a signed contract; opened once."""
    form = OpenForm(request.POST)
    if not form.is_valid():
        return _list(request, form, status=400)
    given = form.cleaned_data
    version = contract_get(actor=request.actor, contract_version_id=given["contract_version"])
    offered = {
        month.label: month.span
        for month in month_list(actor=request.actor)
        if month.version.contract_id == version.contract_id
    }
    try:
        if given["label"] not in offered:
            raise BillingError(
                f"period: got {given['label']}; wanted a month of {version.contract_id} that has"
                " begun"
            )
        opened = services.period_open(
            actor=request.actor, contract_version=version, label=given["label"]
        )
    except BillingError as error:
        form.add_error("label", str(error))
        return _list(request, form, status=400)
    messages.success(request, f"{opened} is open.")
    return redirect("billing:period", opened.pk)


@require_safe
@for_readers_of("billing")
def period(request: ActorRequest, period_id: object) -> HttpResponse:
    """One period: state, what comes next, its documents, and what it was closed on."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    return _page(request, shown)


def _page(
    request: ActorRequest, shown: BillingPeriod, form: BillForm | None = None, status: int = 200
) -> HttpResponse:
    month = month_of(actor=request.actor, period=shown)
    savings = SavingsRecord.objects.filter(period=shown).select_related("measurement").first()
    bills = month.standing.state in (State.MEASURED, State.COMPUTED)
    if form is None and bills and may(request.actor, "bill.request"):
        form = _bill_form(request, shown)
    elsewhere = Invoice.objects.filter(period=shown, posted_in__isnull=False)
    context: dict[str, Any] = {
        "period": shown,
        "period_range": period_cell(shown),
        "standing": month.standing,
        "savings": savings,
        "figures": savings_figures(savings) if savings and savings.usage else (),
        "documents": list(invoices_of(shown).select_related("period").defer("document")),
        "elsewhere": list(elsewhere.select_related("posted_in").defer("document")),
        "close": selectors.close_list(actor=request.actor).filter(period=shown).first(),
        "job": selectors.period_job_of(actor=request.actor, period=shown),
        "form": form,
        "may_close": may(request.actor, "period.close"),
        "reviews": review_list(actor=request.actor).filter(
            measurement__contract_version__contract_id=shown.contract_id
        ),
        "crumbs": crumbs(("Periods", reverse("billing:periods"))),
    }
    return render(request, "portal/billing/period.html", context, status=status)


def _bill_form(request: ActorRequest, shown: BillingPeriod, data: Any = None) -> BillForm:
    choices = selectors.approved_measurements(actor=request.actor, period=shown)
    return BillForm(data, choices=choices)


@require_POST
@for_doers_of("bill.request")
def period_bill(request: ActorRequest, period_id: object) -> HttpResponse:
    """Ask for savings, invoice and report of a period; a worker does them, the job page follows."""
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    form = _bill_form(request, shown, request.POST)
    if not form.is_valid():
        return _page(request, shown, form, status=400)
    bill_request(actor=request.actor, period=shown, measurement=form.cleaned_data["measurement"])
    messages.success(request, "Asked for: savings, invoice and report. A worker takes it in turn.")
    return redirect("billing:period-job", shown.pk)


@require_safe
@for_readers_of("billing")
def period_job(request: ActorRequest, period_id: object) -> HttpResponse:
    """The job that bills a period; its status part refreshes itself while it lives."""
    return _job(request, period_id, "portal/billing/period_job.html")


@require_safe
@for_readers_of("billing")
def period_job_status(request: ActorRequest, period_id: object) -> HttpResponse:
    """The status part alone, for polling."""
    return _job(request, period_id, "portal/billing/period_job_status.html")


def _job(request: ActorRequest, period_id: object, template: str) -> HttpResponse:
    shown = selectors.period_get(actor=request.actor, period_id=period_id)
    job = selectors.period_job_of(actor=request.actor, period=shown)
    context: dict[str, Any] = {} if job is None else job_context(request, job)
    context |= {
        "period": shown,
        "status_url": reverse("billing:period-job-status", args=[shown.pk]),
        "crumbs": period_crumbs(shown),
    }
    return render(request, template, context)


def period_crumbs(shown: BillingPeriod) -> tuple[Crumb, ...]:
    """The path of a page below one period's."""
    return tuple(
        crumbs(
            ("Periods", reverse("billing:periods")),
            (str(shown), reverse("billing:period", args=[shown.pk])),
        )
    )
