"""Usage added up by the database: one GROUP BY over the stored events of a range.

In: an actor and what they ask for. Out: counted rows by hour, model, system and fate; counts of
parked lines. The fates are the engine's (`metering.usage.aggregate`), in its order; here they meet
what the engine cannot see: which periods are computed already. Every read takes the actor.

Cost: the index (organisation, time) finds the range, each event of it is read once, so the time
grows with the events of the range and not with all events ever stored. What comes back is at most
one row per hour, model, system and fate.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    Exists,
    F,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)

from metering.usage.aggregate import CLOCK_TOLERANCE
from portal.accounts.access import sees
from portal.accounts.models import Membership
from portal.billing import selectors
from portal.billing.models import (
    BillingPeriod,
    Invoice,
    SavingsRecord,
    UsageBatch,
    UsageDecision,
    UsageEvent,
)
from portal.billing.usage_keys import CONTESTING, contested_stored, decisions_holding
from portal.billing.usage_range import Counted, UsageRange, UsageTable, usage_table
from portal.contracts.models import ContractVersion

# What counts: in a period whose savings are computed, or waiting for that.
BILLED, PENDING = "accepted", "pending"
ACCEPTED = (BILLED, PENDING)
PARKED = ("duplicate", "conflict", "overruled", "decided", "negative", "unmatched", "malformed")
# Every fate a line can have, in the order a person reads them.
FATES = (BILLED, PENDING, "late", "early", "future", *PARKED)
# Fates that say of a line already counted above how it came to count.
OF_COUNTED = ("decided",)
_HALF_BITS = 32


@dataclass(frozen=True)
class UsageQuery:
    """What somebody asks to see; empty text means all."""

    range: UsageRange
    model: str = ""
    system: str = ""
    source: str = ""


class SlotNumber(Func):
    """Whole slots of `seconds` between the range's start and a time."""

    def __init__(self, expression: Any, *, start: datetime, seconds: int) -> None:
        super().__init__(expression, output_field=IntegerField())
        self.start, self.seconds = int(start.timestamp()), int(seconds)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """SQLite keeps times as UTC text."""
        template = (
            f"((CAST(strftime('%%%%s', %(expressions)s) AS INTEGER) - {self.start})"
            f" / {self.seconds})"
        )
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Times are instants there."""
        template = (
            f"FLOOR((EXTRACT(EPOCH FROM %(expressions)s) - {self.start}) / {self.seconds})::integer"
        )
        return self.as_sql(compiler, connection, template=template, **context)


class ClockLimit(Func):
    """The latest time an event received at the given time may bear (`CLOCK_TOLERANCE` later)."""

    def __init__(self, expression: Any) -> None:
        super().__init__(expression, output_field=DateTimeField())

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Seconds are added to whole ones, so that no fraction is rounded."""
        template = (
            "(datetime(substr(%(expressions)s, 1, 19), "
            f"'+{_seconds(CLOCK_TOLERANCE)} seconds') || substr(%(expressions)s, 20))"
        )
        return self.as_sql(compiler, connection, template=template, **context)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Exact to the microsecond."""
        template = f"(%(expressions)s + INTERVAL '{_seconds(CLOCK_TOLERANCE)} seconds')"
        return self.as_sql(compiler, connection, template=template, **context)


def events_with_fate(*, actor: Membership, query: UsageQuery) -> QuerySet[Any]:
    """Stored events of a range, each with its `fate`; what is stored is in conflict, out of the
    contract's time, ahead of its receipt, late, or accepted."""
    decided_against = _decided_for_lines(actor).values_list("stored_id", flat=True)
    torn = contested_stored(actor.organisation) if sees(actor, "usage") else []
    rows = selectors.usage_event_list(actor=actor).filter(**_chosen(query))
    return _with_fate(
        rows,
        [(Q(pk__in=torn), "conflict"), (Q(pk__in=list(decided_against)), "overruled"),
         *_judged(actor, query.range)],
    )  # fmt: skip


def _judged(actor: Membership, asked: UsageRange) -> list[tuple[Q, str]]:
    """What decides the fate of an event whose key is its own; the first that holds does."""
    computed = [_of_period(record) for record in _computed(actor, asked)]
    late = [inside & behind for inside, behind in computed]
    return [
        (Q(time__gt=ClockLimit(F("received_at"))), "future"),
        (_any(_before_contract(actor, asked)), "early"),
        (_any(late), "late"),
        (_any([inside for inside, _ in computed]), BILLED),
    ]


def _with_fate(rows: QuerySet[Any], branches: list[tuple[Q, str]]) -> QuerySet[Any]:
    judged: QuerySet[Any] = rows.annotate(
        fate=Case(
            *(When(condition, then=Value(fate)) for condition, fate in branches if condition),
            default=Value(PENDING),
            output_field=CharField(),
        )
    )
    return judged


def counted_events(*, actor: Membership, query: UsageQuery) -> Iterator[Counted]:
    """Events and samples by slot, model, system and fate: one GROUP BY over the stored events,
    and one over the few lines that count instead of one, by decision."""
    yield from _grouped(events_with_fate(actor=actor, query=query), query.range)
    instead = _decided_for_lines(actor).filter(**_chosen(query))
    if instead.exists():
        judged = [branch for branch in _judged(actor, query.range) if branch[1] != "late"]
        yield from _grouped(_with_fate(instead, judged), query.range)


def _decided_for_lines(actor: Membership) -> QuerySet[UsageDecision]:
    """Decisions that hold and let a parked line count instead of the stored event."""
    if not sees(actor, "usage"):
        return UsageDecision.objects.none()
    return decisions_holding(actor.organisation).filter(line__isnull=False)


def _grouped(rows: QuerySet[Any], asked: UsageRange) -> Iterator[Counted]:
    grouped = (
        rows.annotate(slot=SlotNumber(F("time"), start=asked.start, seconds=asked.slot_s))
        .order_by()
        .values("slot", "model", "system", "fate")
        # Samples are added in two halves, so that no sum leaves 64 bits.
        .annotate(
            events=Count("pk"),
            high=Sum(F("samples").bitrightshift(_HALF_BITS)),
            low=Sum(F("samples").bitand(2**_HALF_BITS - 1)),
        )
    )
    for row in grouped:
        samples = (int(row["high"]) << _HALF_BITS) + int(row["low"])
        yield Counted(row["slot"], row["model"], row["system"], row["fate"], row["events"], samples)


def table_of(actor: Membership, query: UsageQuery, now: datetime) -> UsageTable:
    """What page, CSV and API show of a query."""
    counted = counted_events(actor=actor, query=query)
    return usage_table(query.range, counted, accepted=ACCEPTED, now=now)


def parked_lines(*, actor: Membership, query: UsageQuery) -> QuerySet[Any]:
    """Lines of a range that became no event, newest delivery first, each with its `standing`.

    That is its fate, and of a conflict what was decided: "decided" for the line that counts,
    "overruled" for the others. A line without a readable time stands where it arrived. What is
    parked has no model or system of its own, so those are not asked.
    """
    asked = query.range
    rows = selectors.parked_usage_list(actor=actor).filter(
        Q(time__gte=asked.start, time__lt=asked.end)
        | Q(time=None, batch__created_at__gte=asked.start, batch__created_at__lt=asked.end)
    )
    if query.source:
        rows = rows.filter(source=query.source)
    holding = decisions_holding(actor.organisation)
    same_key = holding.filter(source=OuterRef("source"), event_id=OuterRef("event_id"))
    rows = rows.annotate(
        standing=Case(
            When(fate__in=CONTESTING, pk__in=holding.values("line_id"), then=Value("decided")),
            When(Q(fate="conflict") & Exists(same_key), then=Value("overruled")),
            default=F("fate"),
            output_field=CharField(),
        )
    )
    return rows.select_related("batch").order_by("-batch__created_at", "batch_id", "line_number")


def parked_counts(*, actor: Membership, query: UsageQuery) -> Mapping[str, int]:
    """Lines that became no event, by fate; every fate is there, also those that are 0."""
    rows = parked_lines(actor=actor, query=query).order_by().values("standing")
    found = {row["standing"]: row["lines"] for row in rows.annotate(lines=Count("pk"))}
    return {fate: found.get(fate, 0) for fate in PARKED}


@dataclass(frozen=True)
class Standing:
    """Where a stored event stands: its fate, the periods it was measured in, their documents."""

    fate: str
    periods: tuple[BillingPeriod, ...]
    savings: SavingsRecord | None
    invoices: tuple[Invoice, ...]


def event_standing(*, actor: Membership, event: UsageEvent) -> Standing:
    """The fate of one stored event and, where it counts, what it is invoiced in."""
    day = event.time.astimezone(UTC).date()
    query = UsageQuery(UsageRange(day, day + timedelta(days=1), "UTC"))
    fate = str(events_with_fate(actor=actor, query=query).get(pk=event.pk).fate)
    periods = selectors.period_list(actor=actor).filter(
        starts_at__lte=event.time,
        ends_at__gt=event.time,
        contract_version__mix__model__name=event.model,
        contract_version__system__name=event.system,
    )
    if fate != BILLED:
        return Standing(fate, tuple(periods), None, ())
    savings = selectors.savings_list(actor=actor).filter(period__in=periods).first()
    invoices = selectors.invoice_list(actor=actor).filter(savings=savings)
    return Standing(fate, tuple(periods), savings, tuple(invoices))


def _chosen(query: UsageQuery) -> dict[str, Any]:
    named = {"model": query.model, "system": query.system, "source": query.source}
    inside = {"time__gte": query.range.start, "time__lt": query.range.end}
    return {**inside, **{name: value for name, value in named.items() if value}}


def _computed(actor: Membership, asked: UsageRange) -> Iterable[SavingsRecord]:
    """Savings metered by usage whose period meets the range."""
    rows = selectors.savings_list(actor=actor).filter(
        period__starts_at__lt=asked.end, period__ends_at__gt=asked.start
    )
    rows = rows.select_related(
        "period__contract_version__mix__model", "period__contract_version__system"
    )
    return [record for record in rows if record.usage]


def _of_period(record: SavingsRecord) -> tuple[Q, Q]:
    """(events of a computed period, deliveries that came after it was computed)."""
    period, version = record.period, record.period.contract_version
    inside = Q(
        time__gte=period.starts_at, time__lt=period.ends_at,
        model=version.mix.model.name, system=version.system.name,
    )  # fmt: skip
    behind = UsageBatch.objects.filter(
        organisation=record.organisation, created_at__gt=record.usage_until or record.created_at
    )
    return inside, Q(batch__in=behind.order_by().values("pk"))


def _before_contract(actor: Membership, asked: UsageRange) -> list[Q]:
    """Events of a contract's model and system from before it starts; one Q a contract."""
    versions = ContractVersion.objects.filter(
        organisation=actor.organisation, status=ContractVersion.Status.SIGNED
    ).select_related("mix__model", "system")
    starts: dict[tuple[str, str], datetime] = {}
    for version in versions:
        pair = (version.mix.model.name, version.system.name)
        start = datetime.fromisoformat(version.contract["valid_from"])
        starts[pair] = min(start, starts.get(pair, start))
    return [
        Q(model=model, system=system, time__lt=start)
        for (model, system), start in starts.items()
        if start > asked.start
    ]


def _any(conditions: Iterable[Q]) -> Q:
    """Any of the conditions; a Q that is false in Python when there are none."""
    found = Q()
    for condition in conditions:
        found |= condition
    return found


def _seconds(span: timedelta) -> int:
    return span // timedelta(seconds=1)
