"""Usage as stored: what a delivery's lines become, and the lines of one period again.

In: CloudEvents lines. Out: rows whose (source, id) is taken once per organisation for ever, a
fate for every line, and a period's totals as `metering.usage` adds them up. Counting rules live in
the engine; here they only meet the database.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.db import connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from metering.contract import Contract
from metering.fields import instant_text
from metering.plan import Period
from metering.usage import Coverage, Decision, EventBatch, UsageTotals, metered, read_events
from metering.usage import UsageEvent as ReadEvent
from portal.accounts.access import Actor, require
from portal.accounts.models import Organisation
from portal.billing.models import (
    BillingPeriod,
    ParkedUsage,
    UsageBatch,
    UsageDecision,
    UsageEvent,
)
from portal.billing.usage_keys import (
    REPEATED,
    by_source,
    contested_in,
    decided_among,
    parked_under,
    stored_values,
)
from portal.events.services import event_record
from portal.registry.models import Model, System

INSERT_ROWS = 500
READ_ROWS = 5_000
# Conflicts that the audit trail names one by one; the parked lines hold all of them.
NAMED_CONFLICTS = 20
_COLUMNS = (
    "organisation_id", "batch_id", "source", "event_id", "content_sha256", "time", "received_at",
    "model", "system", "samples", "line_number", "line",
)  # fmt: skip


@dataclass(frozen=True)
class LineFate:
    """What became of one line: stored, duplicate, conflict, overruled, unmatched, negative or
    malformed."""

    line: int
    fate: str
    reason: str
    source: str = ""
    event_id: str = ""
    time: datetime | None = None


def usage_ingest(
    *,
    actor: Actor,
    organisation: Organisation,
    lines: Sequence[str],
    via: str,
    received_at: datetime | None = None,
) -> tuple[UsageBatch, list[LineFate]]:
    """Store a delivery: every line gets a fate, in the order of the lines.

    `received_at` stamps every event with the time this portal got it (what the API does); None
    keeps the stamps of a gateway's own file. The keys are taken in the transaction that stores
    the events, so two deliveries at once cannot both count an event, and a delivery that was cut
    off has taken no key.
    """
    require(actor, "usage.ingest", organisation)
    stamped = list(lines) if received_at is None else [_stamp(line, received_at) for line in lines]
    read = read_events(stamped)
    with transaction.atomic():
        return _store(actor, organisation, stamped, read, via)


def _store(
    actor: Actor, organisation: Organisation, lines: Sequence[str], read: EventBatch, via: str
) -> tuple[UsageBatch, list[LineFate]]:
    # Deliveries of one organisation settle their keys one after the other.
    Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
    fates = _settle(organisation, read.events)
    fates += [
        LineFate(refused.line, refused.fate, refused.reason, *(refused.key or ("", "")))
        for refused in read.refused
    ]
    fates.sort(key=lambda fate: fate.line)
    counts = Counter(fate.fate for fate in fates)
    settled = ("stored", *REPEATED)
    batch = UsageBatch(
        organisation=organisation,
        via=via,
        submitted_by=actor.user,
        sha256=read.sha256,
        lines=read.rows,
        accepted=counts["stored"],
        duplicates=counts["duplicate"],
        conflicts=counts["conflict"] + counts["overruled"],
        rejected=len(fates) - sum(counts[name] for name in settled),
    )
    batch.save(force_insert=True)
    stored = {fate.line for fate in fates if fate.fate == "stored"}
    _insert(batch, [event for event in read.events if event.line in stored], lines)
    ParkedUsage.objects.bulk_create(
        [_parked(batch, fate, lines) for fate in fates if fate.fate != "stored"],
        batch_size=INSERT_ROWS,
    )
    delivery = {"via": via, "sha256": batch.sha256, "lines": batch.lines, "counts": dict(counts)}
    event_record(
        action="usage.ingest", actor=actor, subject=batch, organisation=organisation, data=delivery
    )
    if counts["conflict"]:
        torn = [[f.source, f.event_id] for f in fates if f.fate == "conflict"]
        event_record(
            action="usage.conflict", actor=actor, subject=batch, organisation=organisation,
            data={"events": counts["conflict"], "first": torn[:NAMED_CONFLICTS]},
        )  # fmt: skip
    return batch, fates


def _stamp(line: str, received_at: datetime) -> str:
    """The line with this portal's time of receipt; a line that is no object stays as it is."""
    stamp = instant_text(received_at)
    body = line.rstrip()
    if "receivedtime" not in line and "\\" not in line and body[:1] == "{" and body[-1:] == "}":
        # What is no JSON stays none with this in it, and is refused later.
        return f'{body[:-1]},"receivedtime":"{stamp}"}}'
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(event, dict):
        return line
    event["receivedtime"] = stamp
    return json.dumps(event, separators=(",", ":"))


def _settle(organisation: Organisation, events: Sequence[ReadEvent]) -> list[LineFate]:
    """A fate for each readable event, against what is stored and what came before it here."""
    known = set(Model.objects.filter(organisation=organisation).values_list("name", flat=True))
    systems = set(System.objects.filter(organisation=organisation).values_list("name", flat=True))
    taken = _stored_contents(organisation, events)
    fates: list[LineFate] = []
    torn: list[tuple[str, str]] = []
    for event in events:
        fate, why = "stored", ""
        if event.model not in known or event.system not in systems:
            fate = "unmatched"
            why = f"{event.model} on {event.system} is not registered: register it, send it again"
        elif (before := taken.get(event.key)) is None:
            taken[event.key] = event.content
        elif before == event.content:
            fate, why = "duplicate", "the same event is stored already"
        else:
            torn.append(event.key)
            fate = "conflict"
            why = "other content under a key that is taken; decide which one is right"
        fates.append(LineFate(event.line, fate, why, event.source, event.id, event.occurred_at))
    return _overrule(fates, decided_among(organisation, torn), events) if torn else fates


def _overrule(
    fates: Sequence[LineFate],
    decided: Mapping[tuple[str, str], UsageDecision],
    events: Sequence[ReadEvent],
) -> list[LineFate]:
    """The same fates, where a person has looked at a content in conflict already: what they chose
    comes again, what they set aside stays aside."""
    found = []
    for fate, event in zip(fates, events, strict=True):
        row = decided.get(event.key) if fate.fate == "conflict" else None
        if row is not None and event.content == row.content_sha256:
            fate = replace(fate, fate="duplicate", reason="counts already, by decision")
        elif row is not None and event.content in row.contents:
            fate = replace(
                fate, fate="overruled", reason=f"decided by {row.decided_as}: other content counts"
            )
        found.append(fate)
    return found


def _stored_contents(
    organisation: Organisation, events: Iterable[ReadEvent]
) -> dict[tuple[str, str], str]:
    """Content digest by key of those events that are stored already."""
    rows = stored_values(organisation, (event.key for event in events), "content_sha256")
    return {(source, identifier): digest for source, identifier, digest in rows}


def _insert(batch: UsageBatch, events: Sequence[ReadEvent], lines: Sequence[str]) -> None:
    """Write the stored events: one COPY on PostgreSQL, inserts elsewhere."""
    rows = (
        (
            batch.organisation_id, batch.pk, event.source, event.id, event.content,
            event.occurred_at, event.received_at, event.model, event.system, event.samples,
            event.line, lines[event.line - 1],
        )
        for event in events
    )  # fmt: skip
    if connection.vendor == "postgresql":
        names = ", ".join(f'"{name}"' for name in _COLUMNS)
        table = UsageEvent._meta.db_table
        with (
            connection.cursor() as cursor,
            cursor.copy(f'COPY "{table}" ({names}) FROM STDIN') as copy,
        ):
            for row in rows:
                copy.write_row(row)
        return
    UsageEvent.objects.bulk_create(
        [UsageEvent(**dict(zip(_COLUMNS, row, strict=True))) for row in rows],
        batch_size=INSERT_ROWS,
    )


def _parked(batch: UsageBatch, fate: LineFate, lines: Sequence[str]) -> ParkedUsage:
    return ParkedUsage(
        batch=batch,
        line_number=fate.line,
        fate=fate.fate,
        reason=fate.reason[:300],
        source=fate.source[:200],
        event_id=fate.event_id[:200],
        time=fate.time,
        # PostgreSQL's text holds no NUL; a line with one is no event anyway.
        line=lines[fate.line - 1].replace("\0", "\\u0000"),
    )


def usage_cut(organisation: Organisation) -> datetime:
    """A moment that divides the deliveries: each is stored whole before it or begins after it.

    Whoever reads what came until then reads the same for ever. Waits for the delivery that is
    being stored, and lets the next one go at once.
    """
    with transaction.atomic():
        Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
        moment = timezone.now()
        # Gives the lock back: only the end of a transaction or of a savepoint does.
        transaction.set_rollback(True)
    return moment


def period_lines(period: BillingPeriod, until: datetime | None = None) -> Iterator[str]:
    """The lines of a period as they came, in order of arrival: counted ones and repetitions.

    Repetitions and conflicts are part of it, so that whoever reads the evidence settles the keys
    again and comes to the same totals; of a key with several contents all lines, wherever they
    lie. Only deliveries stored by `until`: what comes later is late for a computed period. Lines
    come as they are read: a period of ten million needs no more memory than one of ten thousand.
    """
    inside = Q(time__gte=period.starts_at, time__lt=period.ends_at)
    stored: QuerySet[Any] = UsageEvent.objects.filter(organisation=period.organisation)
    parked: QuerySet[Any] = parked_under(period.organisation)
    if until is not None:
        stored = stored.filter(batch__created_at__lte=until)
        parked = parked.filter(batch__created_at__lte=until)
    arrival = ("batch__created_at", "batch_id", "line_number")

    def rows(found: QuerySet[Any]) -> Iterator[tuple[Any, ...]]:
        return found.order_by(*arrival).values_list(*arrival, "line").iterator(chunk_size=READ_ROWS)

    outside = [
        row
        for source, ids in by_source(contested_in(period, until))
        for found in (stored, parked)
        for row in rows(found.exclude(inside).filter(source=source, event_id__in=ids))
    ]
    order = itemgetter(0, 1, 2)
    sources = (rows(stored.filter(inside)), rows(parked.filter(inside)), sorted(outside, key=order))
    for _, _, _, line in heapq.merge(*sources, key=order):
        yield line


def period_of(period: BillingPeriod) -> Period:
    """A stored period as the engine's own."""
    return Period(period.label, period.zone, period.starts_at, period.ends_at)


def period_totals(
    period: BillingPeriod, lines: Iterable[str], decisions: Iterable[Decision] = ()
) -> UsageTotals:
    """The engine's totals of a period's lines, under the period's contract."""
    return period_metered(period, lines, (), decisions)[0]


def period_metered(
    period: BillingPeriod,
    lines: Iterable[str],
    pairs: Sequence[tuple[str, str]],
    decisions: Iterable[Decision] = (),
) -> tuple[UsageTotals, tuple[Coverage, ...]]:
    """Totals of a period's lines, and how much of it each (model, system) of `pairs` covers."""
    contract = Contract.from_json(period.contract_version.contract)
    return metered(
        read_events(lines),
        period_of(period),
        period.zone,
        pairs,
        known={(period.contract_version.mix.model.name, period.contract_version.system.name)},
        decisions={decision.key: decision for decision in decisions},
        not_before=contract.valid_from,
    )
