"""Usage by day or hour, model and system, and every line behind each count."""

from abc import ABC, abstractmethod
from datetime import datetime
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from portal.accounts.models import Membership
from portal.billing import selectors
from portal.billing.tables import ParkedLineTable, StoredTable
from portal.billing.usage_forms import ParkedForm, StoredForm, UsageForm
from portal.billing.usage_reads import (
    UsageQuery,
    events_with_fate,
    parked_counts,
    parked_lines,
    table_of,
)
from portal.billing.usage_words import (
    fate_lines,
    query_text,
    row_url,
    usage_figures,
    volume_rows,
)
from portal.web import charts
from portal.web.access import ActorRequest, chart_page, for_readers_of
from portal.web.answers import csv_file
from portal.web.figures import crumbs
from portal.web.lists import list_page

VOLUMES_HEADER = (
    "start", "end", "local", "zone", "model", "system", "samples", "events", "hours_ended",
    "hours_without_usage",
)  # fmt: skip
# Rows of one page; the CSV holds all of them.
SHOWN_ROWS = 200
# Lines that one CSV of single events may hold.
MOST_CSV_LINES = 100_000


@require_safe
@chart_page
@for_readers_of("usage")
def explorer(request: ActorRequest) -> HttpResponse:
    """Accepted work of a range, and what became of every other line."""
    now = timezone.now()
    form = UsageForm(request.GET, actor=request.actor, now=now)
    context: dict[str, Any] = {"form": form, "asked": bool(request.GET)}
    if not form.is_valid():
        return render(request, "portal/billing/usage.html", context, status=400)
    query = form.query
    table = table_of(request.actor, query, now)
    if request.GET.get("format") == "csv":
        rows = [
            [v.isoformat() if isinstance(v, datetime) else v for v in row.values()]
            for row in volume_rows(table)
        ]
        return csv_file(f"usage-{query.range.first}.csv", VOLUMES_HEADER, rows)
    fates = fate_lines(query, table, parked_counts(actor=request.actor, query=query))
    context |= {
        "query": query,
        "table": table,
        "rows": [(row, row_url(query, row)) for row in table.rows[:SHOWN_ROWS]],
        "hidden": max(0, len(table.rows) - SHOWN_ROWS),
        "figures": usage_figures(query, table, fates),
        "fates": fates,
        "chart": charts.usage_volumes(
            [span.label for span in query.range.spans],
            {
                f"{model} on {system}": {
                    row.span.label: row.samples or 0
                    for row in table.rows
                    if (row.model, row.system) == (model, system)
                }
                for model, system in sorted({(r.model, r.system) for r in table.rows if r.model})
            },
            missing=[row.span.label for row in table.rows if row.missing],
        ),
        "csv_url": f"{request.path}?{query_text(query, format='csv')}",
        "any": any(line.lines for line in fates),
        "delivered": selectors.usage_batch_list(actor=request.actor).exists(),
    }
    return render(request, "portal/billing/usage.html", context)


class _Lines(ABC):
    """A form and the rows it leaves: what a list page takes for a filter."""

    form_class: type[UsageForm]
    fate_field = "fate"

    def __init__(self, data: Any, queryset: QuerySet[Any], *, actor: Membership) -> None:
        self.form = self.form_class(data, actor=actor, now=timezone.now())
        self.qs = queryset.none()
        if self.form.is_valid():
            self.qs = self.rows(actor, self.form.query)
            if fate := self.form.cleaned_data["fate"]:
                self.qs = self.qs.filter(**{self.fate_field: fate})

    @abstractmethod
    def rows(self, actor: Membership, query: UsageQuery) -> QuerySet[Any]:
        """The rows of a query."""


class _Stored(_Lines):
    form_class = StoredForm

    def rows(self, actor: Membership, query: UsageQuery) -> QuerySet[Any]:
        return events_with_fate(actor=actor, query=query).order_by("time", "pk")


class _Parked(_Lines):
    form_class = ParkedForm
    fate_field = "standing"

    def rows(self, actor: Membership, query: UsageQuery) -> QuerySet[Any]:
        return parked_lines(actor=actor, query=query)


@require_safe
@for_readers_of("usage")
def events(request: ActorRequest) -> HttpResponse:
    """Stored events of a range, each with its fate."""
    return list_page(
        request,
        title="Usage events",
        intro="Every stored event of the range, in the order the work happened.",
        rows=selectors.usage_event_list(actor=request.actor),
        table=StoredTable,
        filterset=partial(_Stored, actor=request.actor),
        empty="Send usage as CloudEvents lines through the API.",
        crumbs=crumbs(("Usage", reverse("billing:usage"))),
        most_csv=MOST_CSV_LINES,
    )


@require_safe
@for_readers_of("usage")
def parked(request: ActorRequest) -> HttpResponse:
    """Parked lines of a range."""
    return list_page(
        request,
        title="Parked usage",
        intro="Lines that were not counted, each with its reason and what to do about it.",
        rows=selectors.parked_usage_list(actor=request.actor),
        table=ParkedLineTable,
        filterset=partial(_Parked, actor=request.actor),
        empty="Nothing is parked: every line that came in was counted.",
        crumbs=crumbs(("Usage", reverse("billing:usage"))),
        most_csv=MOST_CSV_LINES,
    )
