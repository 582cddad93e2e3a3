"""Usage and savings: what was counted, what was not and why, and what the volume saved."""

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.billing import selectors
from portal.billing.figures import fee_steps, savings_figures, savings_lines, usage_counts
from portal.billing.filters import ParkedFilter
from portal.billing.sufficiency_page import shown_of
from portal.billing.tables import BatchTable, ParkedTable, SavingsTable, period_cell
from portal.web import charts
from portal.web.access import ActorRequest, chart_page, for_readers_of
from portal.web.answers import csv_file
from portal.web.figures import crumbs
from portal.web.lists import list_page

SAVINGS_HEADER = (
    "model", "system", "period_start", "period_end", "zone", "volume_samples", "cores",
    "baseline_samples_per_second", "uplift_point", "uplift_lower_95", "price_per_core_hour",
    "counterfactual", "savings_point", "savings_bound", "billable", "currency", "kept", "reason",
    "method_version", "evidence_digest",
)  # fmt: skip


@require_safe
@for_readers_of("usage")
def batches(request: ActorRequest) -> HttpResponse:
    """Every delivery of usage."""
    return list_page(
        request,
        title="Deliveries",
        intro="Usage arrives as CloudEvents. A source and id count once, for ever; a line that is "
        "not counted is parked with its reason.",
        rows=selectors.usage_batch_list(actor=request.actor),
        table=BatchTable,
        empty="Send usage as CloudEvents lines through the API.",
        crumbs=crumbs(("Usage", reverse("billing:usage"))),
    )


@require_safe
@for_readers_of("usage")
def batch(request: ActorRequest, batch_id: object) -> HttpResponse:
    """One delivery with the lines that were not counted."""
    shown = selectors.usage_batch_get(actor=request.actor, batch_id=batch_id)
    return list_page(
        request,
        title="Parked lines",
        intro=f"Of {shown.lines} lines, {shown.accepted} were accepted, {shown.duplicates} were "
        f"duplicates, {shown.conflicts} were conflicts and {shown.rejected} were rejected.",
        rows=selectors.parked_usage(actor=request.actor, batch_id=shown.pk),
        table=ParkedTable,
        filterset=ParkedFilter,
        empty="Every line of this delivery was counted.",
        crumbs=crumbs(
            ("Usage", reverse("billing:usage")), ("Deliveries", reverse("billing:usage-batches"))
        ),
    )


@require_safe
@for_readers_of("billing")
def savings_list(request: ActorRequest) -> HttpResponse:
    """Savings per period."""
    return list_page(
        request,
        title="Savings",
        intro="Metered volume times the measured difference in cost, on the lower bound.",
        rows=selectors.savings_list(actor=request.actor),
        table=SavingsTable,
        empty="Savings are computed when a period has usage and an approved measurement.",
    )


@require_safe
@chart_page
@for_readers_of("billing")
def savings(request: ActorRequest, savings_id: object) -> HttpResponse:
    """One period: usage, formula filled with its numbers, waterfall, fee step by step."""
    shown = selectors.savings_get(actor=request.actor, savings_id=savings_id)
    billable, counterfactual = float(shown.billable), float(shown.counterfactual)
    steps: list[dict[str, Any]] = fee_steps(shown)
    items = shown_of(shown)
    context = {
        "savings": shown,
        "period": shown.period,
        "period_range": period_cell(shown.period),
        "figures": savings_figures(shown),
        "lines": savings_lines(shown),
        "items": items,
        "gate": "; ".join(filter(None, (item.gate for item in items))),
        "counts": usage_counts(shown),
        "incidents": shown.usage.get("incidents", ()),
        "volumes": shown.usage.get("volumes", ()),
        "steps": steps,
        "chart": charts.savings_waterfall(
            counterfactual=counterfactual,
            actual=counterfactual - billable,
            savings=billable,
            fee=float(shown.fee),
            currency=shown.currency,
        ),
        "actual": shown.counterfactual - shown.billable,
        "with_fee": shown.counterfactual - shown.billable + shown.fee,
        "invoice": selectors.invoice_list(actor=request.actor).filter(savings=shown).first(),
        "crumbs": crumbs(("Savings", reverse("billing:savings-list"))),
    }
    return render(request, "portal/billing/savings.html", context)


@require_safe
@for_readers_of("billing")
def savings_csv(request: ActorRequest, savings_id: object) -> HttpResponse:
    """The lines of one period as CSV, every stored digit."""
    shown = selectors.savings_get(actor=request.actor, savings_id=savings_id)
    rows = [
        (
            line["model"], line["system"], line["period"]["start"], line["period"]["end"],
            line["period"]["zone"], line["volume"], line["cores"],
            line["baseline_samples_per_second"], line["uplift_point"], line["uplift_lower_95"],
            line["price_per_core_hour"], line["counterfactual"], line["point"], line["bound"],
            line["billable"], line["currency"], line["kept"], line["reason"],
            line["method_version"], line["evidence_digest"],
        )
        for line in savings_lines(shown)
    ]  # fmt: skip
    return csv_file(f"savings-{shown.period.label}.csv", SAVINGS_HEADER, rows)
