"""Counters of a real exporter: what grew is counted once, what is missing is not zero."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, start_http_server

from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import aggregate, read_events
from metering.usage.prometheus import CounterState, Scraped, read_exposition, scrape
from tests.metering.money_cases import UNHURRIED, ZONE

DAY = datetime(2026, 11, 3, 8, tzinfo=UTC)
EMPTY = CounterState("prometheus/gateway-1", {})
PERIOD = Period.month("2026-11", ZONE)


@dataclass
class Exporter:
    """One process that serves its counters over HTTP."""

    registry: CollectorRegistry
    port: int

    def counter(self) -> Counter:
        return Counter(
            "served_samples", "Samples answered", ["model", "system"], registry=self.registry
        )

    def read(self, openmetrics: bool = False) -> str:
        kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/metrics", headers={"Accept": kind}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
            return answer.read().decode()


@pytest.fixture
def exporter() -> Iterator[Exporter]:
    registry = CollectorRegistry()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    yield Exporter(registry, server.server_port)
    server.shutdown()
    server.server_close()
    thread.join()


def at(text: str, hours: float, state: CounterState) -> Scraped:
    return scrape(text, DAY + timedelta(hours=hours), state, counter="served_samples_total")


def page(value: object, series: str = 'model="m",system="s"') -> str:
    return f"# TYPE served_samples counter\nserved_samples_total{{{series}}} {value}\n"


def volumes(scraped: Scraped) -> list[int]:
    return [event["data"]["samples"] for event in scraped.events]  # type: ignore[index]


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
def test_a_real_endpoint_becomes_usage(exporter: Exporter, openmetrics: bool) -> None:
    counter = exporter.counter()
    counter.labels("text-encoder", 'cpu "2c"\\').inc(1_000_000)
    first = at(exporter.read(openmetrics), 0, EMPTY)
    assert (first.events, [note.kind for note in first.notes]) == ((), ["first"])
    counter.labels("text-encoder", 'cpu "2c"\\').inc(2_345_678)
    second = at(exporter.read(openmetrics), 1, first.state)
    batch = read_events(json.dumps(event) for event in second.events)
    totals = aggregate(batch, PERIOD, ZONE)
    assert totals.volume("text-encoder", 'cpu "2c"\\') == totals.samples == 2_345_678
    third = at(exporter.read(openmetrics), 2, second.state)
    assert (third.events, third.notes) == ((), ())


def test_a_restarted_exporter_counts_from_zero(exporter: Exporter) -> None:
    counter = exporter.counter()
    counter.labels("m", "s").inc(500)
    state = at(exporter.read(), 0, EMPTY).state
    exporter.registry.unregister(counter)
    exporter.counter().labels("m", "s").inc(30)
    again = at(exporter.read(), 1, state)
    assert volumes(again) == [30]
    assert [note.kind for note in again.notes] == ["restart"]


def test_a_restart_that_overtakes_its_old_value_shows_in_its_time_of_creation(
    exporter: Exporter,
) -> None:
    counter = exporter.counter()
    counter.labels("m", "s").inc(500)
    state = at(exporter.read(openmetrics=True), 0, EMPTY).state
    exporter.registry.unregister(counter)
    exporter.counter().labels("m", "s").inc(700)
    assert volumes(at(exporter.read(openmetrics=True), 1, state)) == [700]


# Public reports


def test_lago_5616_a_gap_day_does_not_count_everything_again() -> None:
    """getlago/lago-api#5616: cumulative 10 (day 1), none (day 2), 25 (day 3): 15 on day 3."""
    one = at(page(10), 0, EMPTY)
    two = at("# nothing exposed\n", 24, one.state)
    three = at(page(25), 48, two.state)
    assert [volumes(one), volumes(two), volumes(three)] == [[], [], [15]]
    assert [note.kind for note in two.notes] == ["missing"]
    assert [note.kind for note in three.notes] == ["gap"]


def test_tuist_11903_growth_belongs_to_the_scrape_not_to_its_delivery() -> None:
    """tuist/tuist#11903: seen on 30 November, delivered in December: November."""
    seen = datetime(2026, 11, 30, 22, 50, tzinfo=UTC)
    state = scrape(page(0), seen - timedelta(minutes=1), EMPTY, counter="served_samples").state
    (event,) = scrape(page(7), seen, state, counter="served_samples").events
    sent = {**event, "receivedtime": "2026-12-02T09:00:00Z"}
    totals = aggregate(read_events([json.dumps(sent)]), PERIOD, ZONE)
    assert (totals.samples, totals.arrived_after_end) == (7, 1)


def test_openmeter_4179_the_cutoff_looks_at_the_receipt_of_a_counter_event() -> None:
    """openmeterio/openmeter#4179: growth of November, stored before and after the cutoff."""
    state = at(page(0), 0, EMPTY).state
    (event,) = at(page(7), 1, state).events
    cutoff = datetime(2026, 12, 3, tzinfo=UTC)
    for received, late in (("2026-12-02T00:00:00Z", 0), ("2026-12-03T00:00:01Z", 1)):
        line = json.dumps({**event, "receivedtime": received})
        assert aggregate(read_events([line]), PERIOD, ZONE, cutoff=cutoff).late == late


def test_polar_5345_what_was_counted_before_the_first_scrape_is_nobodys() -> None:
    """polarsource/polar#5345: the counter stood at 1,000 when metering began."""
    assert volumes(at(page(1_000), 0, EMPTY)) == []


def test_abacus_434_repeated_scrapes_give_repeated_ids() -> None:
    """cloudfoundry-attic/cf-abacus#434: the same readings again are duplicates, in any order."""
    state = at(page(10), 0, EMPTY).state
    (first,) = at(page(25), 1, state).events
    (again,) = at(page(25), 1, state).events
    lines = [json.dumps(event) for event in (again, first, again)]
    totals = aggregate(read_events(lines), PERIOD, ZONE)
    assert (totals.samples, totals.duplicates) == (15, 2)


def test_a_state_that_was_lost_in_between_is_a_conflict_of_nobody_or_a_new_event() -> None:
    """The same growth seen at two times has one id: a conflict to decide, never counted twice."""
    state = at(page(10), 0, EMPTY).state
    lines = [json.dumps(at(page(25), hours, state).events[0]) for hours in (1, 2)]
    totals = aggregate(read_events(lines), PERIOD, ZONE)
    assert (totals.samples, totals.conflicts) == (0, 2)


# Readings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (page(1200), 1200), (page("1200.0"), 1200), (page("1.2e+03"), 1200), (page("0"), 0),
        (page("9.007199254740991e+15"), 9_007_199_254_740_991),
        (page("1200 1793692800000"), 1200), (page('1200 # {trace_id="x"} 1.0'), 1200),
        (page(5, 'model="a\\\\b\\"c\\nd",system="s",'), 5),
    ],
)  # fmt: skip
def test_exporters_write_one_number_in_many_ways(text: str, value: int) -> None:
    (reading,) = read_exposition(text, "served_samples")
    assert reading.value == value


@pytest.mark.parametrize(
    "text",
    [
        page("NaN"), page("+Inf"), page("1.5"), page("-1"), page("") , page("1e999"),
        page(1) + page(1), page(1, "model=m"), page(1, 'model="m",model="m"'), "<html>",
        page(1, 'model="m'),
    ],
)  # fmt: skip
def test_a_page_that_cannot_be_read_is_not_a_page_of_zeros(text: str) -> None:
    with pytest.raises(Refusal):
        read_exposition(text, "served_samples")


def test_a_series_without_its_labels_is_refused_by_name() -> None:
    state = at(page(1, 'job="x"'), 0, EMPTY).state
    with pytest.raises(Refusal, match="labels model and system"):
        at(page(2, 'job="x"'), 1, state)


def test_scrapes_are_taken_in_order() -> None:
    state = at(page(1), 1, EMPTY).state
    with pytest.raises(Refusal, match="order they were made"):
        at(page(2), 0, state)


def test_the_state_survives_json() -> None:
    state = at(page(1) + page(2, 'model="n",system="s"'), 0, EMPTY).state
    assert CounterState.from_json(json.loads(json.dumps(state.to_json()))) == state


@UNHURRIED
@given(st.lists(st.none() | st.integers(0, 60), min_size=1, max_size=14), st.integers(0, 50))
def test_the_sum_is_what_the_counter_showed(steps: list[int | None], start: int) -> None:
    """Growth of each life of the process, gaps or not; a step below zero stands for a restart."""
    state, value, expected, counted = at(page(start), 0, EMPTY).state, start, 0, 0
    ids: list[object] = []
    for hour, step in enumerate(steps, start=1):
        if step is None:
            scraped = at("", hour, state)
        elif step < value and step < 5:
            value, expected = step, expected + step
            scraped = at(page(value), hour, state)
        else:
            value, expected = value + step, expected + step
            scraped = at(page(value), hour, state)
        state = scraped.state
        counted += sum(volumes(scraped))
        ids += [event["id"] for event in scraped.events]
        assert len(scraped.events) <= 1
    assert counted == expected
    assert len(ids) == len(set(ids))
