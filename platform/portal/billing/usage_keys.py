"""Keys of usage: what is stored under a (source, id), what contests it, what people decided.

In: an organisation, keys, a period. Out: stored values, contested keys, decisions that hold. What a
decision means for a volume is the engine's (`metering.usage.settle`); nothing here writes.

A decision holds until a content comes that it did not look at. Such a line is parked as a conflict
after it; one that it did look at never is (`portal.billing.usage`), so the time tells.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from metering.usage import Decision
from portal.accounts.models import Organisation
from portal.billing.models import BillingPeriod, ParkedUsage, UsageDecision, UsageEvent

Key = tuple[str, str]

# Keys asked for in one query.
KEYS = 500
# Fates of parked lines that stand under a key with a stored event.
REPEATED = ("duplicate", "conflict", "overruled")
CONTESTING = ("conflict", "overruled")


def by_source(keys: Iterable[Key]) -> Iterator[tuple[str, list[str]]]:
    """Keys as (source, ids), at most `KEYS` ids each: an index on both answers such a query."""
    found: Mapping[str, set[str]] = defaultdict(set)
    for source, identifier in keys:
        found[source].add(identifier)
    for source, names in found.items():
        ids = sorted(names)
        for start in range(0, len(ids), KEYS):
            yield source, ids[start : start + KEYS]


def stored_values(
    organisation: Organisation, keys: Iterable[Key], *fields: str
) -> Iterator[tuple[Any, ...]]:
    """(source, id, *fields) of the events that are stored under `keys`."""
    for source, ids in by_source(keys):
        yield from UsageEvent.objects.filter(
            organisation=organisation, source=source, event_id__in=ids
        ).values_list("source", "event_id", *fields)


def parked_under(organisation: Organisation) -> QuerySet[ParkedUsage]:
    """Parked lines of an organisation that stand under a key with a stored event."""
    return ParkedUsage.objects.filter(batch__organisation=organisation, fate__in=REPEATED)


def decisions_in_force(organisation: Organisation) -> QuerySet[UsageDecision]:
    """The newest decision of each key."""
    rows: QuerySet[UsageDecision] = UsageDecision.objects.filter(
        organisation=organisation, replaced_by=None
    )
    return rows


def decisions_holding(
    organisation: Organisation, until: datetime | None = None
) -> QuerySet[UsageDecision]:
    """Decisions in force that looked at every content which came under their key by `until`."""
    newer = ParkedUsage.objects.filter(
        batch__organisation=organisation,
        fate="conflict",
        source=OuterRef("source"),
        event_id=OuterRef("event_id"),
        batch__created_at__gt=OuterRef("created_at"),
    )
    if until is not None:
        newer = newer.filter(batch__created_at__lte=until)
    return decisions_in_force(organisation).filter(~Exists(newer))


def decided_among(organisation: Organisation, keys: Iterable[Key]) -> dict[Key, UsageDecision]:
    """The decisions in force of those `keys` that have one."""
    found = {}
    for source, ids in by_source(keys):
        for row in decisions_in_force(organisation).filter(source=source, event_id__in=ids):
            found[(source, row.event_id)] = row
    return found


def contested_stored(organisation: Organisation) -> list[int]:
    """Stored events that count for nobody: other content came, no decision that holds."""
    conflicts = ParkedUsage.objects.filter(batch__organisation=organisation, fate="conflict")
    keys = set(conflicts.order_by().values_list("source", "event_id").distinct())
    if not keys:
        return []
    keys -= set(decisions_holding(organisation).values_list("source", "event_id"))
    return [row[2] for row in stored_values(organisation, keys, "pk")]


def contested_in(period: BillingPeriod, until: datetime | None = None) -> set[Key]:
    """Keys with several contents of which one at least lies in the period.

    The others may lie outside of it: without them a reader of the evidence would see one content
    and count it.
    """
    inside = {"time__gte": period.starts_at, "time__lt": period.ends_at}
    rows = ParkedUsage.objects.filter(
        batch__organisation=period.organisation, fate__in=CONTESTING
    ).order_by()
    if until is not None:
        rows = rows.filter(batch__created_at__lte=until)
    stored_inside = UsageEvent.objects.filter(
        organisation=period.organisation,
        source=OuterRef("source"),
        event_id=OuterRef("event_id"),
        **inside,
    )
    touched = rows.filter(Q(**inside) | Exists(stored_inside))
    return set(touched.values_list("source", "event_id").distinct())


def period_decisions(period: BillingPeriod, until: datetime | None = None) -> list[Decision]:
    """The decisions by which a period's usage is added up, for the engine and the evidence."""
    keys = contested_in(period, until)
    holding = decisions_holding(period.organisation, until)
    return [
        row.as_decision()
        for source, ids in by_source(keys)
        for row in holding.filter(source=source, event_id__in=ids)
    ]
