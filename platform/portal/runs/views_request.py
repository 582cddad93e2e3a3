"""Asking for the measurement of a signed contract, with what the customer runs today."""

from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from metering.plan import MeasurementPlan
from portal.contracts.break_even import SearchOutlook, search_outlook
from portal.contracts.forms import CostForm, SeenForm
from portal.contracts.models import ContractVersion
from portal.contracts.selectors import contract_get, missing_signatures
from portal.runs import selectors
from portal.runs.baseline_rows import configuration_words
from portal.runs.forms import AsFoundForm
from portal.runs.models import Job
from portal.runs.requests import MEASURE, measure_request
from portal.runs.services import RunsError
from portal.web.access import ActorRequest, for_doers_of
from portal.web.figures import crumbs

ENDED_BADLY = (Job.State.FAILED, Job.State.CANCELLED)


@require_safe
@for_doers_of("measurement.request")
def request_page(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """What a measurement will do, and the form that asks for it."""
    shown = contract_get(actor=request.actor, contract_version_id=contract_version_id)
    return _page(request, shown, _form(shown), SeenForm(initial=request.GET.dict()))


@require_POST
@for_doers_of("measurement.request")
def measure(request: ActorRequest, contract_version_id: object) -> HttpResponse:
    """Ask for it; a job that failed is asked for again as it was stated the first time."""
    shown = contract_get(actor=request.actor, contract_version_id=contract_version_id)
    job = _asked(request, shown)
    form, seen = _form(shown, request.POST), SeenForm(request.POST)
    if job is None and not (form.is_valid() & seen.is_valid()):
        return _page(request, shown, form, seen, status=400)
    try:
        job = measure_request(
            actor=request.actor,
            contract_version=shown,
            as_found=None if job else form.stated,
            seen=None if job else _outlook(request, shown, seen).to_json(),
        )
    except RunsError as error:
        form.add_error(None, str(error))
        return _page(request, shown, form, seen, status=400)
    messages.success(request, "The measurement is asked for; a worker takes it in turn.")
    return redirect("runs:job", job.pk)


def _form(shown: ContractVersion, data: Any = None) -> AsFoundForm:
    return AsFoundForm(data, plan=MeasurementPlan.from_json(shown.plan))


def _asked(request: ActorRequest, shown: ContractVersion) -> Job | None:
    return selectors.job_of(actor=request.actor, kind=MEASURE, key=str(shown.pk))


def _outlook(request: ActorRequest, shown: ContractVersion, seen: SeenForm) -> SearchOutlook:
    """The break-even at the cost that the page was opened with, or at the known one."""
    cost = CostForm(seen.data if seen.is_bound else seen.initial)
    stated = cost.cleaned_data["monthly_cost"] if cost.is_valid() else None
    return search_outlook(actor=request.actor, version=shown, monthly_cost=stated)


def _page(
    request: ActorRequest,
    shown: ContractVersion,
    form: AsFoundForm,
    seen: SeenForm,
    status: int = 200,
) -> HttpResponse:
    job = _asked(request, shown)
    given = job.arguments.get("as_found") if job else None
    context = {
        "version": shown,
        "missing": missing_signatures(contract_version=shown),
        "form": form,
        "seen": seen,
        "outlook": _outlook(request, shown, seen),
        "job": job,
        "stated": f"{given['stack']}, {configuration_words(given)}" if given else "not stated",
        "may_ask_again": job is not None and job.state in ENDED_BADLY,
        "crumbs": crumbs(
            ("Contracts and plans", reverse("contracts:contracts")),
            (str(shown), reverse("contracts:contract", args=[shown.pk])),
        ),
    }
    return render(request, "portal/runs/request.html", context, status=status)
