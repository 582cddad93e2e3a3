"""Totals of one period: which events count, and what became of the others.

In: an `EventBatch` (or events), the period, what is registered, what was stored before.
Out: `UsageTotals`: volume per model and system, a count for every fate, a list of every line
that a person has to see.
Never here: a winner chosen between two contents of one key; a late event counted in silence.

Fates: accepted; duplicate (same key, same content); conflict (same key, other content: nobody's
volume until decided); early (before the contract's start); late (of an earlier period, or
received after the cutoff: becomes a correction); later (of a coming period); future (dated after
it was received); negative; unmatched (model or system not registered); malformed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from metering import canonical
from metering.fields import Fields, instant_text
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage.events import EventBatch, UsageEvent

__all__ = ["FATES", "UsageIncident", "UsageTotals", "Volume", "aggregate"]

FATES = (
    "accepted", "duplicate", "conflict", "early", "late", "later", "future", "negative",
    "unmatched", "malformed",
)  # fmt: skip
CLOCK_TOLERANCE = timedelta(minutes=5)


@dataclass(frozen=True)
class Volume:
    """Accepted samples of one model on one system."""

    model: str
    system: str
    samples: int
    events: int

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "model": self.model,
            "system": self.system,
            "samples": self.samples,
            "events": self.events,
        }


@dataclass(frozen=True)
class UsageIncident:
    """One line that did not count, with what to do about it."""

    line: int
    fate: str
    source: str
    id: str
    samples: int | None
    reason: str

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "line": self.line,
            "fate": self.fate,
            "source": self.source,
            "id": self.id,
            "samples": self.samples,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class UsageTotals:
    """What a period's usage adds up to. `rows` = sum of `counts`.

    `arrived_after_end` of the accepted events came in after the period ended but before the
    cutoff: they count. `input_sha256` is the input as it came; `content_sha256` covers the
    accepted events in key order and is the same in whatever order or repetition they came.
    """

    period: Period
    rows: int
    counts: Mapping[str, int]
    arrived_after_end: int
    volumes: tuple[Volume, ...]
    samples: int
    incidents: tuple[UsageIncident, ...]
    input_sha256: str
    content_sha256: str

    def count(self, fate: str) -> int:
        """Lines with that fate."""
        if fate not in FATES:
            raise Refusal("fate", repr(fate), "one of " + ", ".join(FATES))
        return self.counts.get(fate, 0)

    @property
    def accepted(self) -> int:
        """Events that count."""
        return self.count("accepted")

    @property
    def duplicates(self) -> int:
        """Repetitions of an event that counts already."""
        return self.count("duplicate")

    @property
    def conflicts(self) -> int:
        """Events whose key came with other content."""
        return self.count("conflict")

    @property
    def late(self) -> int:
        """Events for a correction."""
        return self.count("late")

    @property
    def early(self) -> int:
        """Events from before the contract."""
        return self.count("early")

    @property
    def rejected(self) -> int:
        """Lines that are no events, negative, from the future or of nothing registered."""
        return sum(self.count(fate) for fate in ("malformed", "negative", "future", "unmatched"))

    def volume(self, model: str, system: str) -> int:
        """Accepted samples of one model on one system; zero when there are none."""
        return sum(v.samples for v in self.volumes if (v.model, v.system) == (model, system))

    def to_json(self) -> dict[str, object]:
        """JSON object: totals with row count, sum and digests."""
        return {
            "schema": "ignition.usage-totals.v1",
            "period": self.period.to_json(),
            "rows": self.rows,
            "counts": {fate: self.count(fate) for fate in FATES},
            "arrived_after_end": self.arrived_after_end,
            "volumes": [volume.to_json() for volume in self.volumes],
            "samples": self.samples,
            "incidents": [incident.to_json() for incident in self.incidents],
            "input_sha256": self.input_sha256,
            "content_sha256": self.content_sha256,
        }

    @classmethod
    def from_json(cls, value: object) -> UsageTotals:
        """Inverse of `to_json`; refuses totals that contradict themselves."""
        fields = Fields(value, "usage")
        fields.text("schema", ["ignition.usage-totals.v1"])
        counts = Fields(fields.any("counts"), "usage.counts")
        totals = cls(
            period=Period.from_json(fields.any("period")),
            rows=fields.integer("rows"),
            counts={fate: counts.integer(fate) for fate in FATES},
            arrived_after_end=fields.integer("arrived_after_end"),
            volumes=tuple(_volume(item) for item in fields.items("volumes")),
            samples=fields.integer("samples"),
            incidents=tuple(_incident(item) for item in fields.items("incidents")),
            input_sha256=fields.text("input_sha256"),
            content_sha256=fields.text("content_sha256"),
        )
        counts.finish()
        fields.finish()
        if totals.rows != sum(totals.counts.values()):
            raise Refusal("usage.rows", totals.rows, f"{sum(totals.counts.values())}")
        if totals.samples != sum(volume.samples for volume in totals.volumes):
            raise Refusal("usage.samples", totals.samples, "the sum of the volumes")
        return totals


def aggregate(
    events: EventBatch | Iterable[UsageEvent],
    period: Period,
    zone: str,
    *,
    known: Collection[tuple[str, str]] | None = None,
    stored: Mapping[tuple[str, str], str] | None = None,
    not_before: datetime | None = None,
    cutoff: datetime | None = None,
) -> UsageTotals:
    """Totals of `period`, cut in the contract's `zone`.

    `known`: registered (model, system) pairs; None means all are. `stored`: content digest by
    key of events counted in earlier calls (they are duplicates or conflicts here). `not_before`:
    the contract's start. `cutoff`: events received after it become corrections.
    """
    if period.zone != zone:
        raise Refusal("zone", zone, period.zone, "cut the period in the contract's zone")
    batch = events if isinstance(events, EventBatch) else _batch(tuple(events))
    incidents = [
        UsageIncident(r.line, r.fate, *(r.key or ("", "")), None, r.reason) for r in batch.refused
    ]
    counts = Counter(refused.fate for refused in batch.refused)
    unique, repeated = _settle_keys(batch.events, stored or {})
    for event, fate, reason in repeated:
        counts[fate] += 1
        if fate != "duplicate":
            incidents.append(_told(event, fate, reason))
    accepted = []
    for event in unique:
        fate, reason = _fate(event, period, known, not_before, cutoff)
        counts[fate] += 1
        if fate == "accepted":
            accepted.append(event)
        else:
            incidents.append(_told(event, fate, reason))
    return UsageTotals(
        period=period,
        rows=batch.rows,
        counts={fate: counts[fate] for fate in FATES},
        arrived_after_end=sum(
            event.received_at is not None and event.received_at >= period.end for event in accepted
        ),
        volumes=_volumes(accepted),
        samples=sum(event.samples for event in accepted),
        incidents=tuple(sorted(incidents, key=lambda item: (item.line, item.source, item.id))),
        input_sha256=batch.sha256,
        content_sha256=canonical.digest(sorted([*e.key, e.content] for e in accepted)),
    )


def _settle_keys(
    events: tuple[UsageEvent, ...], stored: Mapping[tuple[str, str], str]
) -> tuple[list[UsageEvent], list[tuple[UsageEvent, str, str]]]:
    """One event per key that has one content; every other line with its fate.

    Of equal events the one received first stands for all, so the order of lines is irrelevant.
    """
    by_key: dict[tuple[str, str], list[UsageEvent]] = defaultdict(list)
    for event in events:
        by_key[event.key].append(event)
    unique: list[UsageEvent] = []
    rest: list[tuple[UsageEvent, str, str]] = []
    for key, group in by_key.items():
        before = stored.get(key)
        contents = {event.content for event in group} | ({before} if before else set())
        if len(contents) > 1:
            why = f"{len(contents)} contents under one key; decide which one is right"
            rest += [
                (event, "duplicate", "stored already")
                if event.content == before
                else (event, "conflict", why)
                for event in group
            ]
            continue
        ordered = sorted(group, key=_arrival)
        if before is None:
            unique.append(ordered.pop(0))
        rest += [(event, "duplicate", "counted already") for event in ordered]
    return unique, rest


def _arrival(event: UsageEvent) -> tuple[bool, datetime, int]:
    return (event.received_at is None, event.received_at or event.occurred_at, event.line)


def _fate(
    event: UsageEvent,
    period: Period,
    known: Collection[tuple[str, str]] | None,
    not_before: datetime | None,
    cutoff: datetime | None,
) -> tuple[str, str]:
    if known is not None and (event.model, event.system) not in known:
        return "unmatched", f"{event.model} on {event.system} is not registered: register it"
    received = event.received_at
    if received is not None and event.occurred_at > received + CLOCK_TOLERANCE:
        return "future", f"dated {instant_text(event.occurred_at)}, after it was received"
    if not_before is not None and event.occurred_at < not_before:
        return "early", f"before the contract's start {instant_text(not_before)}: not billable"
    if event.occurred_at < period.start:
        home = Period.month_of(event.occurred_at, period.zone).label
        return "late", f"belongs to {home}: propose a correction of that period"
    if event.occurred_at >= period.end:
        return "later", "belongs to a later period: it counts there"
    if cutoff is not None and received is not None and received > cutoff:
        return "late", f"received {instant_text(received)}, after the cutoff: next invoice"
    return "accepted", ""


def _volumes(accepted: list[UsageEvent]) -> tuple[Volume, ...]:
    samples: Counter[tuple[str, str]] = Counter()
    events: Counter[tuple[str, str]] = Counter()
    for event in accepted:
        samples[event.model, event.system] += event.samples
        events[event.model, event.system] += 1
    return tuple(Volume(*pair, samples[pair], events[pair]) for pair in sorted(events))


def _told(event: UsageEvent, fate: str, reason: str) -> UsageIncident:
    return UsageIncident(event.line, fate, event.source, event.id, event.samples, reason)


def _batch(events: tuple[UsageEvent, ...]) -> EventBatch:
    """Events that did not come from a file: their digest is that of their contents in order."""
    return EventBatch(events, (), len(events), canonical.digest([e.content for e in events]))


def _volume(value: object) -> Volume:
    fields = Fields(value, "usage.volume")
    volume = Volume(
        fields.text("model"), fields.text("system"), fields.integer("samples"),
        fields.integer("events"),
    )  # fmt: skip
    fields.finish()
    return volume


def _incident(value: object) -> UsageIncident:
    fields = Fields(value, "usage.incident")
    incident = UsageIncident(
        line=fields.integer("line"),
        fate=fields.text("fate", FATES),
        source=str(fields.any("source")),
        id=str(fields.any("id")),
        samples=fields.integer("samples") if fields.has("samples") else None,
        reason=fields.text("reason"),
    )
    fields.finish()
    return incident
