"""Usage as stored: what a delivery's lines become, and the lines of one period again.

In: CloudEvents lines. Out: rows whose (source, id) is taken once per organisation for ever, a
fate for every line, and a period's totals as `metering.usage` adds them up. Counting rules live in
the engine; here they only meet the database.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from metering.contract import Contract
from metering.fields import instant_text
from metering.plan import Period
from metering.usage import UsageEvent as ReadEvent
from metering.usage import UsageTotals, aggregate, read_events
from portal.accounts.access import Actor, require
from portal.accounts.models import Organisation
from portal.billing.models import BillingPeriod, ParkedUsage, UsageBatch, UsageEvent
from portal.events.services import event_record
from portal.registry.models import Model, System

INSERT_ROWS = 500


@dataclass(frozen=True)
class LineFate:
    """What became of one line: stored, duplicate, conflict, unmatched, negative or malformed."""

    line: int
    fate: str
    reason: str
    source: str = ""
    event_id: str = ""
    time: datetime | None = None


@transaction.atomic
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
    keeps the stamps of a gateway's own file. The keys are taken in this very transaction, so two
    deliveries at once cannot both count an event.
    """
    require(actor, "usage.ingest", organisation)
    # Deliveries of one organisation settle their keys one after the other.
    Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
    stamped = list(lines) if received_at is None else [_stamp(line, received_at) for line in lines]
    read = read_events(stamped)
    batch = UsageBatch(
        organisation=organisation,
        via=via,
        submitted_by=actor.user,
        sha256=read.sha256,
        lines=read.rows,
        accepted=0,
        duplicates=0,
        conflicts=0,
        rejected=0,
    )
    fates = _settle(organisation, read.events)
    fates += [
        LineFate(refused.line, refused.fate, refused.reason, *(refused.key or ("", "")))
        for refused in read.refused
    ]
    counts = Counter(fate.fate for fate in fates)
    batch.accepted = counts["stored"]
    batch.duplicates, batch.conflicts = counts["duplicate"], counts["conflict"]
    batch.rejected = len(fates) - sum(counts[name] for name in ("stored", "duplicate", "conflict"))
    batch.save(force_insert=True)
    stored = {fate.line for fate in fates if fate.fate == "stored"}
    rows = [
        UsageEvent(
            organisation=organisation,
            batch=batch,
            source=event.source,
            event_id=event.id,
            content_sha256=event.content,
            time=event.occurred_at,
            received_at=event.received_at,
            model=event.model,
            system=event.system,
            samples=event.samples,
            line_number=event.line,
            line=stamped[event.line - 1],
        )
        for event in read.events
        if event.line in stored
    ]
    UsageEvent.objects.bulk_create(rows, batch_size=INSERT_ROWS)
    ParkedUsage.objects.bulk_create(
        [
            ParkedUsage(
                batch=batch,
                line_number=fate.line,
                fate=fate.fate,
                reason=fate.reason[:300],
                source=fate.source[:200],
                event_id=fate.event_id[:200],
                time=fate.time,
                line=stamped[fate.line - 1],
            )
            for fate in fates
            if fate.fate != "stored"
        ],
        batch_size=INSERT_ROWS,
    )
    event_record(
        action="usage.ingest",
        actor=actor,
        subject=batch,
        organisation=organisation,
        data={"via": via, "sha256": batch.sha256, "lines": batch.lines, "counts": dict(counts)},
    )
    return batch, sorted(fates, key=lambda fate: fate.line)


def _stamp(line: str, received_at: datetime) -> str:
    """The line with this portal's time of receipt; a line that is no object stays as it is."""
    try:
        event = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    event["receivedtime"] = instant_text(received_at)
    return json.dumps(event, separators=(",", ":"), ensure_ascii=False)


def _settle(organisation: Organisation, events: Iterable[ReadEvent]) -> list[LineFate]:
    """A fate for each readable event, against what is stored and what came before it here."""
    known = set(Model.objects.filter(organisation=organisation).values_list("name", flat=True))
    systems = set(System.objects.filter(organisation=organisation).values_list("name", flat=True))
    listed = list(events)
    taken = _stored_contents(organisation, listed)
    fates = []
    for event in listed:
        fate, why = "stored", ""
        if event.model not in known or event.system not in systems:
            fate = "unmatched"
            why = f"{event.model} on {event.system} is not registered: register it, send it again"
        elif (before := taken.get(event.key)) is None:
            taken[event.key] = event.content
        elif before == event.content:
            fate, why = "duplicate", "the same event is stored already"
        else:
            fate = "conflict"
            why = "other content under a key that is taken; decide which one is right"
        fates.append(LineFate(event.line, fate, why, event.source, event.id, event.occurred_at))
    return fates


def _stored_contents(
    organisation: Organisation, events: Sequence[ReadEvent]
) -> dict[tuple[str, str], str]:
    """Content digest by key of those events that are stored already."""
    found: dict[tuple[str, str], str] = {}
    wanted = {event.key for event in events}
    ids = sorted({event.id for event in events})
    for start in range(0, len(ids), INSERT_ROWS):
        rows = UsageEvent.objects.filter(
            organisation=organisation, event_id__in=ids[start : start + INSERT_ROWS]
        ).values_list("source", "event_id", "content_sha256")
        found.update({(s, i): digest for s, i, digest in rows if (s, i) in wanted})
    return found


def period_lines(period: BillingPeriod) -> list[str]:
    """The lines of a period as they came, in order of arrival: counted ones and repetitions.

    Repetitions and conflicts are part of it, so that whoever reads the evidence settles the keys
    again and comes to the same totals.
    """
    inside = {"time__gte": period.starts_at, "time__lt": period.ends_at}
    counted = UsageEvent.objects.filter(organisation=period.organisation, **inside)
    parked = ParkedUsage.objects.filter(
        batch__organisation=period.organisation, fate__in=("duplicate", "conflict"), **inside
    )
    columns = ("batch__created_at", "batch_id", "line_number", "line")
    rows = sorted([*counted.values_list(*columns), *parked.values_list(*columns)])
    return [line for _, _, _, line in rows]


def period_totals(period: BillingPeriod, lines: Sequence[str]) -> UsageTotals:
    """The engine's totals of a period's lines, under the period's contract."""
    contract = Contract.from_json(period.contract_version.contract)
    return aggregate(
        read_events(lines),
        Period.month(period.label, period.zone),
        period.zone,
        known={(period.contract_version.mix.model.name, period.contract_version.system.name)},
        not_before=contract.valid_from,
    )
