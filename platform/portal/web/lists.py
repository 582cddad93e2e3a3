"""One list page for every kind of row: filter, table, pages, CSV of what the filter left.

In: rows a selector returned, a table, perhaps a filter. Out: the page, or with `?format=csv` the
raw values of all filtered rows. Page and CSV share the filter, so they cannot disagree.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from django.shortcuts import render
from django_tables2 import RequestConfig

from portal.web.access import ActorRequest
from portal.web.answers import csv_file
from portal.web.columns import ListTable
from portal.web.figures import Crumb

PER_PAGE = 50


def list_page(
    request: ActorRequest,
    *,
    title: str,
    intro: str,
    rows: QuerySet[Any] | Sequence[Any],
    table: type[ListTable],
    empty: str,
    filterset: Any = None,
    crumbs: Sequence[Crumb] = (),
    template: str = "portal/list.html",
    more: dict[str, Any] | None = None,
    most_csv: int | None = None,
) -> HttpResponse:
    """Answer with the list as a page or, for `?format=csv`, as a file of raw values.

    A filter that was filled in wrongly gives the page with its errors. `most_csv`: lines that one
    file may hold, where there may be millions.
    Only a query set can be filtered; rows that are worked out come as a list.
    """
    chosen = filterset(request.GET, queryset=rows) if filterset is not None else None
    shown: Any = rows if chosen is None else chosen.qs
    wrong = chosen is not None and bool(chosen.form.errors)
    if request.GET.get("format") == "csv" and not wrong:
        if most_csv is not None and shown[most_csv : most_csv + 1].exists():
            return _too_long(request, most_csv)
        header = [name for name, _ in table.csv_columns]
        name = f"{title.lower().replace(' ', '-')}.csv"
        return csv_file(name, header, table.csv_rows(shown))
    drawn = table(shown)
    RequestConfig(request, paginate={"per_page": PER_PAGE}).configure(drawn)
    query = request.GET.copy()
    query["format"] = "csv"
    context = {
        "title": title,
        "intro": intro,
        "table": drawn,
        "filter": chosen,
        "empty": empty,
        "has_rows": bool(drawn.page.paginator.count) or bool(request.GET),
        "csv_url": f"{request.path}?{query.urlencode()}" if table.csv_columns else "",
        "crumbs": crumbs,
        **(more or {}),
    }
    return render(request, template, context, status=400 if wrong else 200)


def _too_long(request: ActorRequest, most: int) -> HttpResponse:
    context = {
        "title": "Too long for one file",
        "what": f"These are more than {most:,} lines.",
        "next": "Choose a shorter range, or fewer kinds of lines, and download several files.",
    }
    return render(request, "portal/error.html", context, status=400)
