"""Reviews: the queue, every number down to its log line, and the auditor's decision.

The auditor signs elsewhere, with a key that never comes here, and uploads the envelope; the portal
only checks it. Everybody else reads.
"""

import json

from django.contrib import messages
from django.db.models import Exists, OuterRef
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import get_or_404, may, sees
from portal.audits import selectors, services
from portal.audits.filters import ReviewFilter
from portal.audits.forms import ApproveForm, FindingForm, RejectForm
from portal.audits.models import Finding, Review
from portal.audits.tables import ReviewTable
from portal.billing.models import SavingsRecord
from portal.billing.selectors import period_list
from portal.runs.selectors import measurement_get
from portal.runs.views_measurement import measurement_context
from portal.web.access import ActorRequest, chart_page, for_doers_of, for_readers_of
from portal.web.answers import attachment
from portal.web.figures import crumbs
from portal.web.lists import list_page


@require_safe
@for_readers_of("reviews")
def reviews(request: ActorRequest) -> HttpResponse:
    """Every review, the newest first."""
    return list_page(
        request,
        title="Audit",
        intro="An independent auditor signs each measurement with a key the portal never holds. "
        "Without that signature nothing bills.",
        rows=selectors.review_list(actor=request.actor),
        table=ReviewTable,
        filterset=ReviewFilter,
        empty="A review opens by itself when a measurement is done.",
    )


@require_safe
@chart_page
@for_readers_of("reviews")
def review(request: ActorRequest, review_id: object) -> HttpResponse:
    """One review with all it is about."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    return _page(request, shown)


def _page(
    request: ActorRequest,
    shown: Review,
    *,
    approve_form: ApproveForm | None = None,
    reject_form: RejectForm | None = None,
    finding_form: FindingForm | None = None,
) -> HttpResponse:
    measurement = measurement_get(actor=request.actor, measurement_id=shown.measurement_id)
    decides = may(request.actor, "review.decide") and shown.state == Review.State.OPEN
    bad = any(form is not None for form in (approve_form, reject_form, finding_form))
    context = {
        **measurement_context(request, measurement),
        "review": shown,
        "findings": shown.findings.all(),
        "sees_money": sees(request.actor, "billing"),
        "periods": period_list(actor=request.actor)
        .filter(contract_id=measurement.contract_version.contract_id)
        .annotate(computed=Exists(SavingsRecord.objects.filter(period=OuterRef("pk")))),
        "statement": json.dumps(json.loads(shown.statement), indent=2, ensure_ascii=False),
        "signers": _signers(shown),
        "decides": decides,
        "envelope_name": f"measurement-{str(shown.measurement_id)[:8]}.dsse.json",
        "approve_form": approve_form or ApproveForm(),
        "reject_form": reject_form or RejectForm(),
        "finding_form": finding_form or FindingForm(),
        "crumbs": crumbs(("Audit", reverse("audits:reviews"))),
    }
    return render(request, "portal/audits/review.html", context, status=400 if bad else 200)


def _signers(shown: Review) -> list[tuple[str, str]]:
    """(key id, whose key) of each signature in the stored envelope."""
    document = json.loads(shown.envelope)
    auditor = shown.auditor_key.key_id if shown.auditor_key else ""
    return [
        (signature["keyid"], "auditor" if signature["keyid"] == auditor else "platform")
        for signature in document["signatures"]
    ]


@require_safe
@for_readers_of("reviews")
def statement(request: ActorRequest, review_id: object) -> HttpResponse:
    """The statement's exact bytes."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    name = f"statement-{str(shown.pk)[:8]}.json"
    return attachment(shown.statement.encode("utf-8"), name, "application/json")


@require_safe
@for_readers_of("reviews")
def envelope(request: ActorRequest, review_id: object) -> HttpResponse:
    """The envelope as it stands: what the auditor adds a signature to."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    name = f"measurement-{str(shown.measurement_id)[:8]}.dsse.json"
    return attachment(shown.envelope.encode("ascii"), name, "application/json")


@require_POST
@chart_page
@for_doers_of("review.decide")
def approve(request: ActorRequest, review_id: object) -> HttpResponse:
    """Approve with an uploaded envelope; nothing changes unless it holds."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    form = ApproveForm(request.POST, request.FILES)
    if form.is_valid():
        try:
            services.review_approve(
                actor=request.actor, review=shown, envelope=form.cleaned_data["envelope"]
            )
        except services.ReviewError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "Approved: your signature holds over the exact statement.")
            return redirect("audits:review", shown.pk)
    return _page(request, shown, approve_form=form)


@require_POST
@chart_page
@for_doers_of("review.decide")
def reject(request: ActorRequest, review_id: object) -> HttpResponse:
    """Reject with a reason."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    form = RejectForm(request.POST)
    if form.is_valid():
        try:
            services.review_reject(
                actor=request.actor, review=shown, reason=form.cleaned_data["reason"]
            )
        except services.ReviewError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "Rejected. This measurement will not bill.")
            return redirect("audits:review", shown.pk)
    return _page(request, shown, reject_form=form)


@require_POST
@chart_page
@for_doers_of("finding.raise")
def finding(request: ActorRequest, review_id: object) -> HttpResponse:
    """Note a finding."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    form = FindingForm(request.POST)
    if form.is_valid():
        try:
            services.finding_raise(actor=request.actor, review=shown, **form.cleaned_data)
        except services.ReviewError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "The finding is noted.")
            return redirect("audits:review", shown.pk)
    return _page(request, shown, finding_form=form)


@require_POST
@for_doers_of("finding.raise")
def resolve(request: ActorRequest, review_id: object, finding_id: object) -> HttpResponse:
    """Mark a finding as settled."""
    shown = selectors.review_get(actor=request.actor, review_id=review_id)
    row = get_or_404(Finding.objects.filter(review=shown), finding_id)
    services.finding_resolve(actor=request.actor, finding=row)
    messages.success(request, "The finding is resolved.")
    return redirect("audits:review", shown.pk)
