"""Totals of one period: which events count, and what became of the others.

In: an `EventBatch`, the period, what is registered, what was stored before, what people decided.
Out: `UsageTotals`, computed on whole columns; only lines that a person has to see are visited one
by one.
Never here: a winner chosen between two contents of one key; a late event counted in silence.

Fates: accepted; duplicate (same key, same content); conflict (same key, other content: nobody's
volume until a person decides, then that of the content decided for); early (before the contract's
start); late (of an earlier period, or received after the cutoff: becomes a correction); later (of
a coming period); future (dated after it was received); negative; unmatched (model or system not
registered); malformed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

import numpy as np
import numpy.typing as npt

from metering.fields import instant_text
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage.batch import NO_TIME, Columns, EventBatch, microseconds
from metering.usage.coverage import Coverage, cover
from metering.usage.decisions import Decisions
from metering.usage.events import UsageEvent
from metering.usage.settle import Settled, settle
from metering.usage.totals import FATES, UsageIncident, UsageTotals, Volume

__all__ = ["CLOCK_TOLERANCE", "FATES", "aggregate", "metered"]

CLOCK_TOLERANCE = timedelta(minutes=5)
_ACCEPTED, _DUPLICATE, _CONFLICT, _EARLY, _LATE, _LATER, _FUTURE = range(7)
_UNMATCHED = FATES.index("unmatched")
_HALF = np.int64(2**32)
_HASHED_ROWS = 65_536

Fates = npt.NDArray[np.int8]


def aggregate(
    batch: EventBatch,
    period: Period,
    zone: str,
    *,
    known: Collection[tuple[str, str]] | None = None,
    stored: Mapping[tuple[str, str], str] | None = None,
    decisions: Decisions | None = None,
    not_before: datetime | None = None,
    cutoff: datetime | None = None,
) -> UsageTotals:
    """Totals of `period`, cut in the contract's `zone`.

    `known`: registered (model, system) pairs; None means all are. `stored`: content digest by
    key of events counted in earlier calls (they are duplicates or conflicts here).
    `decisions`: by key, which of several contents counts. `not_before`: the contract's start.
    `cutoff`: events received after it become corrections.
    """
    return metered(
        batch, period, zone, known=known, stored=stored, decisions=decisions,
        not_before=not_before, cutoff=cutoff,
    )[0]  # fmt: skip


def metered(
    batch: EventBatch,
    period: Period,
    zone: str,
    pairs: Sequence[tuple[str, str]] = (),
    *,
    known: Collection[tuple[str, str]] | None = None,
    stored: Mapping[tuple[str, str], str] | None = None,
    decisions: Decisions | None = None,
    not_before: datetime | None = None,
    cutoff: datetime | None = None,
) -> tuple[UsageTotals, tuple[Coverage, ...]]:
    """Totals as `aggregate` makes them, and how much of the period each of `pairs` covers."""
    if period.zone != zone:
        raise Refusal("zone", zone, period.zone, "cut the period in the contract's zone")
    columns = batch.columns
    settled = settle(columns, stored or {}, decisions)
    fates = _fates(columns, period, known, not_before, cutoff)
    fates[settled.duplicate] = _DUPLICATE
    fates[settled.conflict] = _CONFLICT
    accepted = fates == _ACCEPTED
    counts = Counter(refused.fate for refused in batch.refused)
    for number, count in enumerate(np.bincount(fates, minlength=len(FATES)).tolist()):
        counts[FATES[number]] += count
    told = _Reasons(period, not_before, settled)
    incidents = [
        UsageIncident(r.line, r.fate, *(r.key or ("", "")), None, r.reason) for r in batch.refused
    ]
    for row in np.flatnonzero(~accepted & (fates != _DUPLICATE)).tolist():
        event, fate = columns.event(row), int(fates[row])
        incidents.append(
            UsageIncident(
                event.line, FATES[fate], event.source, event.id, event.samples,
                told.reason(fate, event, row),
            )
        )  # fmt: skip
    volumes = _volumes(columns, accepted)
    arrived = accepted & (columns.received != NO_TIME)
    totals = UsageTotals(
        period=period,
        rows=batch.rows,
        counts={fate: counts[fate] for fate in FATES},
        arrived_after_end=int(
            np.count_nonzero(arrived & (columns.received >= microseconds(period.end)))
        ),
        volumes=volumes,
        samples=sum(volume.samples for volume in volumes),
        incidents=tuple(sorted(incidents, key=lambda item: (item.line, item.source, item.id))),
        input_sha256=batch.sha256,
        content_sha256=_content_digest(columns.contents, accepted),
    )
    torn = fates == _CONFLICT
    torn[list(settled.decided)] = False
    return totals, tuple(cover(columns, pair, period, accepted, torn) for pair in pairs)


def _fates(
    columns: Columns,
    period: Period,
    known: Collection[tuple[str, str]] | None,
    not_before: datetime | None,
    cutoff: datetime | None,
) -> Fates:
    """Each event's fate were its key its own; the first rule that applies decides."""
    occurred, received = columns.occurred, columns.received
    fates = np.zeros(len(columns), np.int8)
    # Written from the last rule to the first, so that the first one stands.
    if cutoff is not None:
        # Without a time of receipt NO_TIME is before every cutoff.
        fates[received > microseconds(cutoff)] = _LATE
    fates[occurred >= microseconds(period.end)] = _LATER
    fates[occurred < microseconds(period.start)] = _LATE
    if not_before is not None:
        fates[occurred < microseconds(not_before)] = _EARLY
    tolerated = received + CLOCK_TOLERANCE // timedelta(microseconds=1)
    fates[(received != NO_TIME) & (occurred > tolerated)] = _FUTURE
    if known is not None:
        listed = set(known)
        unknown = np.array([pair not in listed for pair in columns.names], np.bool_)
        if unknown.any():
            fates[unknown[columns.pairs]] = _UNMATCHED
    return fates


class _Reasons:
    """The sentence of each incident."""

    def __init__(self, period: Period, not_before: datetime | None, settled: Settled) -> None:
        self._period = period
        self._not_before = not_before
        self._settled = settled
        self._months: list[Period] = []

    def reason(self, fate: int, event: UsageEvent, row: int) -> str:
        """What is wrong with `event` and what to do next."""
        if fate == _CONFLICT:
            decision = self._settled.decided.get(row)
            if decision is not None:
                return (
                    f"decided by {decision.decided_by}: content {decision.content[:12]} counts;"
                    f" {decision.reason}"
                )
            count = self._settled.contents[row]
            return f"{count} contents under one key; decide which one is right"
        if fate == _UNMATCHED:
            return f"{event.model} on {event.system} is not registered: register it"
        if fate == _FUTURE:
            return f"dated {instant_text(event.occurred_at)}, after it was received"
        if fate == _EARLY:
            start = instant_text(cast(datetime, self._not_before))
            return f"before the contract's start {start}: not billable"
        if fate == _LATER:
            return "belongs to a later period: it counts there"
        if event.occurred_at < self._period.start:
            home = self._month(event.occurred_at)
            return f"belongs to {home}: propose a correction of that period"
        received = instant_text(cast(datetime, event.received_at))
        return f"received {received}, after the cutoff: next invoice"

    def _month(self, instant: datetime) -> str:
        for month in self._months:
            if month.contains(instant):
                return month.label
        self._months.insert(0, Period.month_of(instant, self._period.zone))
        return self._months[0].label


def _volumes(columns: Columns, accepted: npt.NDArray[np.bool_]) -> tuple[Volume, ...]:
    """Exact sums per pair: samples are added in two halves, so that no sum leaves 64 bits."""
    pairs = columns.pairs[accepted]
    if not len(pairs):
        return ()
    order = np.argsort(pairs, kind="stable")
    samples, pairs = columns.samples[accepted][order], pairs[order]
    starts = np.flatnonzero(np.concatenate(([True], pairs[1:] != pairs[:-1])))
    high = np.add.reduceat(samples // _HALF, starts).tolist()
    low = np.add.reduceat(samples % _HALF, starts).tolist()
    events = np.diff(np.concatenate((starts, [len(pairs)]))).tolist()
    found = [
        Volume(columns.names[pair][0], columns.names[pair][1], top * int(_HALF) + rest, count)
        for pair, top, rest, count in zip(pairs[starts].tolist(), high, low, events, strict=True)
    ]
    return tuple(sorted(found, key=lambda volume: (volume.model, volume.system)))


def _content_digest(contents: npt.NDArray[np.uint8], accepted: npt.NDArray[np.bool_]) -> str:
    """SHA-256 over the accepted digests in ascending order."""
    rows = np.flatnonzero(accepted)
    # Eight bytes decide the order, except between digests that begin alike.
    first = np.ascontiguousarray(contents[rows, :8]).view(">u8").ravel().astype(np.uint64)
    order = np.argsort(first)
    if len(rows) > 1 and (np.diff(first[order]) == 0).any():
        words = np.ascontiguousarray(contents[rows]).view(">u8").astype(np.uint64)
        order = np.lexsort(words.T[::-1])
    digest = hashlib.sha256()
    for start in range(0, len(rows), _HASHED_ROWS):
        digest.update(contents[rows[order[start : start + _HASHED_ROWS]]].data)
    return digest.hexdigest()
