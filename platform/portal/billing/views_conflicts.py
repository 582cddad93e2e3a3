"""One line of usage: as received, its four times, its fate; deciding a conflict, sending again."""

import json

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.access import may
from portal.billing import selectors
from portal.billing.conflicts import (
    computed_periods,
    contents_of,
    decision_of,
    usage_decide,
    usage_send_again,
)
from portal.billing.models import UsageEvent
from portal.billing.savings import BillingError
from portal.billing.tables import period_cell
from portal.billing.usage_forms import DecisionForm
from portal.billing.usage_keys import CONTESTING
from portal.billing.usage_reads import event_standing
from portal.billing.usage_words import MEANING
from portal.web.access import ActorRequest, for_doers_of, for_readers_of
from portal.web.figures import crumbs


@require_safe
@for_readers_of("usage")
def event(request: ActorRequest, event_id: object) -> HttpResponse:
    """One stored event: the line as received, its four times, its delivery, its fate."""
    return _event_page(request, selectors.usage_event_get(actor=request.actor, event_id=event_id))


def _event_page(
    request: ActorRequest, shown: UsageEvent, form: DecisionForm | None = None
) -> HttpResponse:
    standing = event_standing(actor=request.actor, event=shown)
    contents = contents_of(shown)
    contested = len(contents) > 1
    too_late = computed_periods(shown.organisation, contents) if contested else []
    decides = contested and not too_late and may(request.actor, "usage.decide")
    context = {
        "event": shown,
        "fate": standing.fate,
        "meaning": MEANING[standing.fate],
        "measured": [(period, period_cell(period)) for period in standing.periods],
        "savings": standing.savings,
        "invoices": standing.invoices,
        "others": selectors.parked_usage_list(actor=request.actor)
        .filter(source=shown.source, event_id=shown.event_id)
        .select_related("batch"),
        "pretty": json.dumps(json.loads(shown.line), indent=2, ensure_ascii=False),
        "contents": contents,
        "contested": contested,
        "too_late": too_late,
        "decision": decision_of(shown) if contested else None,
        "decisions": shown.decisions.all(),
        "decides": decides,
        "form": (form or DecisionForm(contents=contents)) if decides else None,
        "crumbs": crumbs(
            ("Usage", reverse("billing:usage")), ("Usage events", reverse("billing:usage-events"))
        ),
    }
    status = 400 if form is not None else 200
    return render(request, "portal/billing/usage_event.html", context, status=status)


@require_POST
@for_doers_of("usage.decide")
def decide(request: ActorRequest, event_id: object) -> HttpResponse:
    """Decide which content counts; nothing changes when another one came meanwhile."""
    shown = selectors.usage_event_get(actor=request.actor, event_id=event_id)
    form = DecisionForm(request.POST, contents=contents_of(shown))
    if form.is_valid():
        asked = form.cleaned_data
        try:
            row = usage_decide(
                actor=request.actor, stored=shown, choice=asked["choice"], reason=asked["reason"],
                seen=asked["seen"].split(","),
            )  # fmt: skip
        except BillingError as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Decided: {row.samples:,} samples count under this key.")
            return redirect("billing:usage-event", shown.pk)
    return _event_page(request, shown, form)


@require_safe
@for_readers_of("usage")
def line(request: ActorRequest, line_id: object) -> HttpResponse:
    """One parked line: as received, why it was not counted, what can be done about it."""
    shown = selectors.parked_usage_get(actor=request.actor, line_id=line_id)
    stored = (
        selectors.usage_event_list(actor=request.actor)
        .filter(source=shown.source, event_id=shown.event_id)
        .first()
        if shown.event_id
        else None
    )
    standing = shown.fate
    if shown.fate in CONTESTING and stored is not None and (row := decision_of(stored)):
        standing = "decided" if row.line_id == shown.pk else "overruled"
    context = {
        "line": shown,
        "standing": standing,
        "meaning": MEANING[standing],
        "stored": stored,
        "sends": shown.fate == "unmatched" and may(request.actor, "usage.ingest"),
        "crumbs": crumbs(
            ("Usage", reverse("billing:usage")), ("Parked usage", reverse("billing:usage-parked"))
        ),
    }
    return render(request, "portal/billing/usage_line.html", context)


@require_POST
@for_doers_of("usage.ingest")
def send_again(request: ActorRequest, line_id: object) -> HttpResponse:
    """Send an unmatched line again, as it was received."""
    shown = selectors.parked_usage_get(actor=request.actor, line_id=line_id)
    try:
        _, fate = usage_send_again(actor=request.actor, line=shown)
    except BillingError as error:
        messages.error(request, str(error))
    else:
        if fate.fate == "stored":
            messages.success(request, "Stored: the line counts now.")
        else:
            messages.warning(request, f"Sent again, and {fate.fate}: {fate.reason}.")
    return redirect("billing:usage-line", shown.pk)
