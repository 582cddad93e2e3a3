"""What usage means, one event at a time: the plain statement that the columns are held to.

In: lines, a period and its conditions. Out: `UsageTotals`, found with dictionaries and loops.
Slow on purpose; nothing in the product calls it. `read_event` (what one line means) is the
product's own: the columnar reader uses it for every line it does not recognise.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from metering.fields import instant_text
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import Decision, Refused, UsageEvent, UsageIncident, UsageTotals, Volume
from metering.usage.aggregate import CLOCK_TOLERANCE
from metering.usage.events import NegativeVolume, read_event
from metering.usage.totals import FATES


def totals_by_rows(
    lines: Iterable[str | bytes],
    period: Period,
    *,
    known: Collection[tuple[str, str]] | None = None,
    stored: Mapping[tuple[str, str], str] | None = None,
    decisions: Mapping[tuple[str, str], Decision] | None = None,
    not_before: datetime | None = None,
    cutoff: datetime | None = None,
) -> UsageTotals:
    """What `aggregate(read_events(lines), period, ...)` must answer."""
    events, refused, rows, sha256 = read_by_rows(lines)
    incidents = [
        UsageIncident(r.line, r.fate, *(r.key or ("", "")), None, r.reason) for r in refused
    ]
    counts = Counter(r.fate for r in refused)
    unique, repeated = _settle_keys(events, stored or {}, decisions or {})
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
    contents = sorted(bytes.fromhex(event.content) for event in accepted)
    return UsageTotals(
        period=period,
        rows=rows,
        counts={fate: counts[fate] for fate in FATES},
        arrived_after_end=sum(
            event.received_at is not None and event.received_at >= period.end for event in accepted
        ),
        volumes=_volumes(accepted),
        samples=sum(event.samples for event in accepted),
        incidents=tuple(sorted(incidents, key=lambda item: (item.line, item.source, item.id))),
        input_sha256=sha256,
        content_sha256=hashlib.sha256(b"".join(contents)).hexdigest(),
    )


def read_by_rows(
    lines: Iterable[str | bytes],
) -> tuple[list[UsageEvent], list[Refused], int, str]:
    """Events, refused lines, the number of rows, the digest of the input."""
    digest = hashlib.sha256()
    events: list[UsageEvent] = []
    refused: list[Refused] = []
    rows = 0
    for number, raw in enumerate(lines, start=1):
        data = (raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw).rstrip(
            b"\r\n"
        )
        digest.update(data + b"\n")
        if not data.strip():
            continue
        rows += 1
        try:
            events.append(read_event(data, number))
        except NegativeVolume as error:
            refused.append(Refused(number, "negative", str(error), error.key))
        except Refusal as error:
            refused.append(Refused(number, "malformed", str(error)))
    return events, refused, rows, digest.hexdigest()


def _settle_keys(
    events: list[UsageEvent],
    stored: Mapping[tuple[str, str], str],
    decisions: Mapping[tuple[str, str], Decision],
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
        decision = decisions.get(key)
        if decision is not None and contents <= set(decision.contents):
            told = (
                f"decided by {decision.decided_by}: content {decision.content[:12]} counts; "
                f"{decision.reason}"
            )
            rest += [
                (event, "conflict", told) for event in group if event.content != decision.content
            ]
            group = [event for event in group if event.content == decision.content]
            contents = {decision.content}
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
        if before is None and ordered:
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
