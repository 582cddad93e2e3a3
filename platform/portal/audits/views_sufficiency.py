"""Is there enough evidence to bill a period? What is missing, and the auditor's overrides of it."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import get_or_404, may
from portal.audits import selectors
from portal.audits.forms import OverrideForm
from portal.audits.models import Review
from portal.audits.overrides import override_state
from portal.audits.services import ReviewError
from portal.billing.models import BillingPeriod, SavingsRecord
from portal.billing.savings import BillingError
from portal.billing.selectors import period_get
from portal.billing.sufficiency import is_examined, preview
from portal.billing.sufficiency_page import Shown, shown, shown_of
from portal.billing.tables import period_cell
from portal.runs.models import Measurement
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.figures import crumbs


@require_safe
@for_readers_of("billing")
def sufficiency(request: ActorRequest, review_id: object, period_id: object) -> HttpResponse:
    """The examination of one measurement in one period: as it stands, or as it was frozen."""
    return _page(request, *_of_one_contract(request, review_id, period_id))


@require_POST
@for_doers_of("sufficiency.override")
def override(request: ActorRequest, review_id: object, period_id: object) -> HttpResponse:
    """Override one rule; what was typed stays on the page when it cannot be."""
    review, period = _of_one_contract(request, review_id, period_id)
    form = OverrideForm(request.POST, rules=_choices(_found(period, review.measurement)[1]))
    if form.is_valid():
        try:
            row = override_state(
                actor=request.actor,
                period=period,
                measurement=review.measurement,
                rule=form.cleaned_data["rule"],
                reason=form.cleaned_data["reason"],
            )
        except (ReviewError, BillingError) as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Overridden: {row.rule}. It is printed with your name.")
            return redirect("audits:sufficiency", review.pk, period.pk)
    return _page(request, review, period, form)


def _of_one_contract(
    request: ActorRequest, review_id: object, period_id: object
) -> tuple[Review, BillingPeriod]:
    """Review and period, both visible and of one contract; Http404 otherwise."""
    version = "measurement__contract_version"
    rows = selectors.review_list(actor=request.actor).prefetch_related(None)
    rows = rows.select_related(f"{version}__mix__model", f"{version}__system")
    review = get_or_404(rows, review_id)
    period = period_get(actor=request.actor, period_id=period_id)
    agreed = review.measurement.contract_version
    if agreed.contract_id != period.contract_id:
        raise Http404("no such period of this contract")
    if agreed.pk == period.contract_version_id:
        # One object for both: what it refers to is then asked for once.
        period.contract_version = agreed
    return review, period


def _page(
    request: ActorRequest, review: Review, period: BillingPeriod, form: OverrideForm | None = None
) -> HttpResponse:
    measurement = review.measurement
    record, rows, error = _found(period, measurement)
    ended = period.ends_at <= timezone.now()
    decides = may(request.actor, "sufficiency.override") and record is None and ended
    choices = _choices(rows)
    context: dict[str, Any] = {
        "review": review,
        "measurement": measurement,
        "period": period,
        "period_range": period_cell(period),
        "examined": is_examined(measurement.contract_version),
        "method": measurement.contract_version.plan["method_version"],
        "items": rows,
        "error": error,
        "savings": record,
        "ended": ended,
        "overrides": selectors.override_list(actor=request.actor).filter(
            period=period, measurement=measurement
        ),
        "form": form or (OverrideForm(rules=choices) if decides and choices else None),
        "crumbs": crumbs(
            ("Audit", reverse("audits:reviews")),
            (str(measurement.contract_version), reverse("audits:review", args=[review.pk])),
        ),
    }
    status = 200 if form is None else 400
    return render(request, "portal/audits/sufficiency.html", context, status=status)


def _found(
    period: BillingPeriod, measurement: Measurement
) -> tuple[SavingsRecord | None, tuple[Shown, ...], str]:
    """The savings, if they are computed; what was examined; why nothing could be."""
    record = SavingsRecord.objects.filter(period=period).first()
    if record is not None:
        if record.measurement_id != measurement.pk:
            return record, (), ""
        record.period, record.measurement = period, measurement
        return record, shown_of(record), ""
    if not is_examined(measurement.contract_version):
        return None, (), ""
    try:
        return None, (shown(preview(period, measurement), period, measurement),), ""
    except BillingError as error:
        return None, (), str(error)


def _choices(rows: tuple[Shown, ...]) -> list[tuple[str, str]]:
    """The rules that may be overridden: those that block."""
    blocking = [rule for row in rows for rule in row.rules if rule.state == "blocks"]
    return [(rule.name, f"{rule.name}: {rule.found}") for rule in blocking]
