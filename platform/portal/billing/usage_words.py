"""Usage in words: what each fate means, and the figures of a range with their formulas.

In: counted rows and stored lines. Out: text and figures for pages. Nothing here reads the
database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from portal.billing.usage_range import UsageRange, UsageRow, UsageTable
from portal.billing.usage_reads import ACCEPTED, FATES, OF_COUNTED, PARKED, UsageQuery
from portal.web.figures import Figure
from portal.web.formats import number

MEANING: Mapping[str, str] = {
    "accepted": "counted in a period whose savings are computed",
    "pending": "counts; its period's savings are not computed yet",
    "late": "arrived after its period was computed: in no invoice; the auditor settles the period "
    "again on audited savings, or finance credits it",
    "early": "from before the contract's start: not billable",
    "future": "dated more than five minutes after it was received: correct the sender's clock",
    "duplicate": "the same event again: it counts once",
    "conflict": "one source and id came with more than one content: the stored event and its "
    "rivals count for nobody until a person decides",
    "overruled": "a person decided that other content under its source and id counts",
    "decided": "counts in place of the stored event, by a person's decision; it stands among the "
    "accepted or pending lines above",
    "negative": "takes volume away: reverse an event by a correction instead",
    "unmatched": "its model or system is not registered: register it, then send the line again",
    "malformed": "is no event; the reason names the field",
}
COUNTED = (
    "Samples of the stored events in [from, to) whose fate is accepted or pending, each source and "
    "id once."
)
MISSING = (
    "Whole hours of the range that are over and in which no event was accepted. They are missing, "
    "never zero: nothing is saved in them and nothing is filled in."
)


@dataclass(frozen=True)
class FateLine:
    """One fate of a range: how many lines, what it means, where they are."""

    fate: str
    lines: int
    meaning: str
    url: str


def fate_lines(query: UsageQuery, table: UsageTable, parked: Mapping[str, int]) -> list[FateLine]:
    """Every fate, also those of 0 lines. The stored side of a conflict is counted with it."""
    found = []
    for fate in FATES:
        lines = table.fates.get(fate, 0) + parked.get(fate, 0)
        found.append(FateLine(fate, lines, MEANING[fate], lines_url(query, fate)))
    return found


def lines_url(query: UsageQuery, fate: str = "") -> str:
    """Where the lines behind a count stand: events that are stored, or parked lines."""
    route = "billing:usage-parked" if fate in PARKED else "billing:usage-events"
    return f"{reverse(route)}?{query_text(query, fate=fate)}"


def row_url(query: UsageQuery, row: UsageRow) -> str:
    """Where the events of a row's day stand, of its model and system."""
    day = date.fromisoformat(row.span.label[:10])
    asked = UsageQuery(
        UsageRange(day, day + timedelta(days=1), query.range.zone),
        model=row.model,
        system=row.system,
        source=query.source,
    )
    return lines_url(asked)


def query_text(query: UsageQuery, **more: str) -> str:
    """The query as it stands in an address."""
    asked = query.range
    values = {
        "start": asked.first.isoformat(), "end": asked.after.isoformat(), "zone": asked.zone,
        "model": query.model, "system": query.system, "source": query.source, **more,
    }  # fmt: skip
    return urlencode({name: value for name, value in values.items() if value})


def usage_figures(
    query: UsageQuery, table: UsageTable, fates: list[FateLine]
) -> tuple[Figure, ...]:
    """Samples, events, hours without usage and lines that do not count."""
    api = f"/api/v1/usage/volumes?{query_text(query)}"
    asked = query.range
    inputs: tuple[tuple[str, str], ...] = (
        ("From", f"{asked.first} in {asked.zone}, {asked.start:%Y-%m-%d %H:%M}Z"),
        ("To, not inside", f"{asked.after} in {asked.zone}, {asked.end:%Y-%m-%d %H:%M}Z"),
        *((name, value) for name, value in (
            ("Model", query.model), ("System", query.system), ("Source", query.source),
        ) if value),
    )  # fmt: skip
    counts = tuple((line.fate, number(line.lines)) for line in fates)
    idle = tuple(line for line in fates if line.fate not in (*ACCEPTED, *OF_COUNTED))
    return (
        Figure("Accepted work", number(table.samples), "samples", formula=COUNTED,
               inputs=inputs, api=api),
        Figure("Accepted events", number(table.events), "events",
               formula="Stored events in [from, to) that are accepted or pending.",
               inputs=(*inputs, *counts[: len(ACCEPTED)]), api=api),
        Figure("Hours without usage", number(table.hours_missing),
               f"of {number(table.hours_ended)}", formula=MISSING, inputs=inputs, api=api),
        Figure("Lines that do not count", number(sum(line.lines for line in idle)), "lines",
               formula="Lines of the range with any other fate.",
               inputs=tuple((line.fate, number(line.lines)) for line in idle), api=api),
    )  # fmt: skip


def volume_rows(table: UsageTable) -> list[dict[str, Any]]:
    """The rows of page, CSV and API: one for each span, model and system."""
    return [
        {
            "start": row.span.start,
            "end": row.span.end,
            "label": row.span.label,
            "zone": table.range.zone,
            "model": row.model,
            "system": row.system,
            "samples": row.samples,
            "events": row.events,
            "hours_ended": row.hours_ended,
            "hours_without_usage": row.hours_missing,
        }
        for row in table.rows
    ]
