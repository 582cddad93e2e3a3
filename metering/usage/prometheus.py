"""Prometheus counters: what a scraped counter says was accepted, as usage events.

In: expositions of a real endpoint with the time each was read, the labels that name model and
system, what was known after the scrape before.
Out: usage events with stable ids, the state to keep until the next scrape, what a person must see.
Never here: the network (`scrape` takes the text from whoever read it), a guess across a gap, a
missing series read as zero, a floating-point number (the parser of the client library makes every
value one, so the few lines of the format that counters need are read here).

A counter only grows, except that a restarted process begins again at zero. Therefore, series by
series: the first reading is a mark and counts nothing (what came before belongs to nobody); a
higher reading counts the difference to the last reading, however long ago that was; a lower one is
a restart and counts from zero (what the old process accepted after its last scrape is lost to the
counter, and reported); no reading leaves the mark where it is. A restart that climbs beyond its
old value between two scrapes cannot be seen in the value: its `_created` sample, where the exporter
gives one, tells it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from metering import canonical
from metering.decimals import exact, parse_decimal
from metering.fields import Fields, instant_text
from metering.refusal import Refusal
from metering.usage.events import EVENT_TYPE

__all__ = ["CounterState", "Mark", "Reading", "ScrapeNote", "Scraped", "read_exposition", "scrape"]

_SAMPLE = re.compile(
    r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+(\S+)'
    r"(?:[ \t]+-?[0-9.]+)?(?:[ \t]+#.*)?"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|\Z)')
_ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
LONG_GAP = timedelta(hours=6)


@dataclass(frozen=True)
class Reading:
    """One series at one scrape. `created`: the exporter's own time of its start, as written."""

    labels: Mapping[str, str]
    value: int
    created: str | None = None

    @property
    def series(self) -> str:
        """The labels as canonical JSON: the name of the series."""
        return canonical.dumps(dict(self.labels)).decode()


@dataclass(frozen=True)
class Mark:
    """The last reading of a series. `restarts` counts how often it began again."""

    value: int
    read_at: datetime
    restarts: int = 0
    created: str | None = None

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "value": self.value,
            "read_at": instant_text(self.read_at),
            "restarts": self.restarts,
            "created": self.created,
        }


@dataclass(frozen=True)
class CounterState:
    """The marks of one target by series; keep it in the transaction that takes the events."""

    source: str
    marks: Mapping[str, Mark]

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        marks = {series: mark.to_json() for series, mark in self.marks.items()}
        return {"schema": "ignition.counters.v1", "source": self.source, "marks": marks}

    @classmethod
    def from_json(cls, value: object) -> CounterState:
        """Inverse of `to_json`."""
        fields = Fields(value, "counters")
        fields.text("schema", ["ignition.counters.v1"])
        marks: dict[str, Mark] = {}
        listed = fields.any("marks")
        if not isinstance(listed, Mapping):
            raise Refusal("counters.marks", type(listed).__name__, "a JSON object")
        for series, item in listed.items():
            inner = Fields(item, "mark")
            marks[str(series)] = Mark(
                inner.integer("value"), inner.instant("read_at"), inner.integer("restarts"),
                inner.optional_text("created"),
            )  # fmt: skip
            inner.finish()
        state = cls(fields.text("source"), marks)
        fields.finish()
        return state


@dataclass(frozen=True)
class ScrapeNote:
    """What a person must see: a first reading, a restart, a gap, a series that is missing."""

    kind: str
    series: str
    text: str


@dataclass(frozen=True)
class Scraped:
    """What one scrape adds: events as CloudEvents JSON, the state after it, the notes."""

    events: tuple[dict[str, object], ...]
    state: CounterState
    notes: tuple[ScrapeNote, ...]


def scrape(
    exposition: str,
    read_at: datetime,
    state: CounterState,
    *,
    counter: str,
    model: str = "model",
    system: str = "system",
) -> Scraped:
    """Usage since the scrape before. `model`, `system`: the labels that hold those names.

    The id of an event names its series, where it began and where it ends: the same two readings
    give the same event whoever computes it and however often, so a repeated scrape is a duplicate.
    Its time is the scrape that saw the growth. Refusal when `read_at` is not after the last one.
    """
    found = read_exposition(exposition, counter)
    marks = dict(state.marks)
    events: list[dict[str, object]] = []
    notes = [
        ScrapeNote("missing", series, "not exposed: nothing counted, nothing reset")
        for series in sorted(set(marks) - {reading.series for reading in found})
    ]
    for reading in found:
        series, before = reading.series, marks.get(reading.series)
        if before is None:
            marks[series] = Mark(reading.value, read_at, 0, reading.created)
            notes.append(ScrapeNote("first", series, f"marked at {reading.value}, not counted"))
            continue
        if read_at < before.read_at or (
            read_at == before.read_at and reading.value != before.value
        ):
            raise Refusal(
                "read_at", instant_text(read_at), f"later than {instant_text(before.read_at)}",
                "scrapes are taken in the order they were made",
            )  # fmt: skip
        restarted = reading.value < before.value or _began_again(before, reading)
        base = 0 if restarted else before.value
        mark = Mark(reading.value, read_at, before.restarts + restarted, reading.created)
        if restarted:
            notes.append(ScrapeNote("restart", series, f"{before.value}, then {reading.value}"))
        if read_at - before.read_at > LONG_GAP:
            since = instant_text(before.read_at)
            notes.append(ScrapeNote("gap", series, f"no reading since {since}: counted now"))
        if reading.value > base:
            labels = (reading.labels.get(model), reading.labels.get(system))
            events.append(_event(state.source, series, labels, base, mark, (model, system)))
        elif not restarted:
            # Nothing grew: the mark keeps its time, so that an event names when growth was seen.
            mark = replace(before, read_at=read_at, created=reading.created)
        marks[series] = mark
    return Scraped(tuple(events), CounterState(state.source, marks), tuple(notes))


def read_exposition(text: str, counter: str) -> tuple[Reading, ...]:
    """Every series of `counter` (with or without `_total`) in text or OpenMetrics format.

    Refuses a value that is no whole number, a series twice, and text that is no exposition: a
    page that cannot be read is not a page of zeros.
    """
    family = counter.removesuffix("_total")
    values: dict[str, tuple[dict[str, str], int]] = {}
    created: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.strip())
        if match is None:
            raise Refusal(f"line {number}", repr(line), "a sample of a Prometheus exposition")
        name, labels, value = match[1], _labels(match[2] or "", number), match[3]
        series = canonical.dumps(dict(labels)).decode()
        if name == f"{family}_created":
            created[series] = value
        elif name in (family, f"{family}_total"):
            if series in values:
                raise Refusal(f"line {number}", series, "each series once", "fix the exporter")
            values[series] = (labels, _whole(value, number))
    return tuple(
        Reading(labels, value, created.get(series))
        for series, (labels, value) in sorted(values.items())
    )


def _began_again(before: Mark, reading: Reading) -> bool:
    """Whether the exporter says that this series is younger than the one marked before."""
    return (
        before.created is not None
        and reading.created is not None
        and parse_decimal(reading.created, "created") != parse_decimal(before.created, "created")
    )


def _event(
    source: str,
    series: str,
    pair: tuple[str | None, str | None],
    base: int,
    mark: Mark,
    names: tuple[str, str],
) -> dict[str, object]:
    model, system = pair
    if not model or not system:
        raise Refusal("labels", series, f"labels {names[0]} and {names[1]}", "name the labels")
    name = canonical.digest([series, mark.created, mark.restarts, base, mark.value])[:32]
    return {
        "specversion": "1.0",
        "type": EVENT_TYPE,
        "source": source,
        "id": f"counter-{name}",
        "time": instant_text(mark.read_at.astimezone(UTC)),
        "datacontenttype": "application/json",
        "data": {"model": model, "system": system, "samples": mark.value - base},
    }


def _labels(text: str, number: int) -> dict[str, str]:
    labels: dict[str, str] = {}
    place = 0
    while place < len(text) and text[place:].strip():
        match = _LABEL.match(text, place)
        if match is None or match[1] in labels:
            raise Refusal(f"line {number}", repr(text), "labels of a Prometheus exposition")
        labels[match[1]] = re.sub(r'\\[\\"n]', lambda escape: _ESCAPES[escape[0]], match[2])
        place = match.end()
    return labels


def _whole(text: str, number: int) -> int:
    """The whole number in `text`; exporters write 1200 as 1200, 1200.0 or 1.2e+03."""
    with exact():
        value = parse_decimal(text, f"line {number}")
        if value != value.to_integral_value() or value < Decimal(0):
            raise Refusal(f"line {number}", text, "a whole number of samples, zero or more")
        return int(value)
