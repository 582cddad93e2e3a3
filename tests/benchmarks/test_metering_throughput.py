"""How many usage events go through: the engine on one core, an invoice, the HTTP batch endpoint.

Printed by ``make bench-metering``; CI runs the quick form. No time is judged here: amounts and
counts are. Usage is made up, written to a real file and read from it; the endpoint is gunicorn on
PostgreSQL (started by tools/with_services.sh), its workers are killed while customers send.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from metering.contract import LedgerState, fee
from metering.ledger import Invoice
from metering.plan import Period, PriceBook
from metering.savings import savings_line, verified_savings
from metering.usage import UsageTotals, aggregate, read_events
from tests.benchmarks.usage_server import PROJECT
from tests.metering.money_cases import ZONE, contract, invoice

pytestmark = pytest.mark.bench

QUICK = os.environ.get("IGNITION_QUICK") == "1"
SIZES = (20_000, 50_000, 100_000) if QUICK else (1_000_000, 2_000_000, 5_000_000, 10_000_000)
ENGINE_EVENTS, ENGINE_RUNS = (50_000, 1) if QUICK else (1_000_000, 5)
HTTP_EVENTS, HTTP_SIZE = (4_000, 500) if QUICK else (200_000, 2_000)
CHUNK = 500_000
# One line in so many is sent a second time.
REPEAT = 100
PERIOD = Period.month("2026-11", ZONE)


@contextmanager
def one_core() -> Iterator[int]:
    """Everything of this process on the last core it may use."""
    allowed = os.sched_getaffinity(0)
    core = max(allowed)
    os.sched_setaffinity(0, {core})
    pa.set_cpu_count(1)
    try:
        yield core
    finally:
        os.sched_setaffinity(0, allowed)


def write_usage(path: Path, events: int) -> int:
    """A file of `events` lines as a gateway writes them; the samples of its different events."""
    total = 0
    with path.open("wb") as stream:
        for start in range(0, events, CHUNK):
            numbers = np.arange(start, min(start + CHUNK, events))
            numbers -= numbers % REPEAT == 1  # the line before once more
            samples = numbers * 48_271 % 9_999 + 1
            total += int(samples[np.diff(numbers, prepend=-1) > 0].sum())
            seconds = (numbers * 7_919 % (29 * 86_400)).astype("timedelta64[s]")
            lines = pc.binary_join_element_wise(
                '{"specversion":"1.0","type":"ignition.usage.v1","source":"gateway-',
                pa.array((numbers % 8).astype(str)),
                '","id":"9f3c52d17ab04e6f-',
                pa.array(numbers.astype(str)),
                '","time":"',
                pa.array(np.datetime_as_string(np.datetime64("2026-11-01T00:00:00") + seconds)),
                'Z","datacontenttype":"application/json","data":{"model":"text-',
                pa.array(np.where(numbers % 3 == 0, "encoder", "decoder")),
                '","system":"search-eu-1","samples":',
                pa.array(samples.astype(str)),
                '},"receivedtime":"2026-11-30T23:00:00Z"}',
                "",
            )
            stream.write(("\n".join(lines.to_pylist()) + "\n").encode())
    return total


def totals_of(path: Path) -> UsageTotals:
    """The file's totals for November."""
    with path.open("rb") as stream:
        return aggregate(read_events(stream), PERIOD, ZONE)


def bill(totals: UsageTotals) -> Invoice:
    """What the period costs: savings of each volume, fee, invoice."""
    price_book = PriceBook("EUR", Decimal("0.05"), datetime(2026, 1, 1, tzinfo=UTC), "a benchmark")
    lines = [
        savings_line(
            model=volume.model,
            system=volume.system,
            period=PERIOD,
            volume=volume.samples,
            baseline_samples_per_second="1000",
            cores=2,
            price_book=price_book,
            uplift_point="0.25",
            uplift_lower_95="0.22",
            baseline_id="b" * 64,
            uplift_id="c" * 64,
            evidence_digest="d" * 64,
        )
        for volume in totals.volumes
    ]
    terms = contract()
    breakdown = fee(terms, LedgerState(), verified_savings(lines, evidence_digest="e" * 64))
    return invoice(terms, breakdown)


def test_engine_on_one_core(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    samples = write_usage(path, ENGINE_EVENTS)
    with one_core() as core:
        seconds = []
        for _ in range(ENGINE_RUNS):
            begin = time.perf_counter()
            totals = totals_of(path)
            seconds.append(time.perf_counter() - begin)
    assert totals.rows == ENGINE_EVENTS
    assert totals.samples == samples
    assert totals.duplicates == ENGINE_EVENTS // REPEAT
    rates = sorted(ENGINE_EVENTS / value for value in seconds)
    size = path.stat().st_size / ENGINE_EVENTS
    print(
        f"\nengine: {rates[len(rates) // 2]:,.0f} events/s on core {core} (median of "
        f"{len(rates)}, {rates[0]:,.0f} to {rates[-1]:,.0f}), {ENGINE_EVENTS:,} JSON lines of "
        f"{size:.0f} bytes, {totals.duplicates:,} of them repeated"
    )


def billed(path: Path, samples: int) -> tuple[float, float]:
    """Seconds, and seconds of this program alone, from a file of usage to its invoice."""
    with one_core():
        begin, used = time.perf_counter(), time.process_time()
        totals = totals_of(path)
        document = bill(totals)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
    assert totals.samples == samples
    assert document.net > 0
    return seconds, used


def test_an_invoice_over_ten_million_events_and_the_growth_up_to_it(tmp_path: Path) -> None:
    # A machine's speed drifts over minutes: each size is held against the smallest one, billed
    # just before it and just after it.
    small, path = tmp_path / "small.jsonl", tmp_path / "usage.jsonl"
    least, *larger = SIZES
    samples = write_usage(small, least)
    print(f"\ninvoice from a file of usage, on one core; {least:,} events before and after each")
    for size in larger:
        more = write_usage(path, size)
        (_, before), (seconds, used), (_, after) = (
            billed(small, samples), billed(path, more), billed(small, samples),
        )  # fmt: skip
        path.unlink()
        unit = (before + after) / 2
        exponent = math.log(used / unit) / math.log(size / least)
        print(
            f"  {size:>10,} events: {seconds:6.1f} s, of which {used:6.1f} s this program's, "
            f"{used / size * 1e6:.2f} us an event; {before / least * 1e6:.2f} before and "
            f"{after / least * 1e6:.2f} after: time grows as events to the power of "
            f"{exponent:.2f} (1 is linear)"
        )
    small.unlink()


def test_the_batch_endpoint_while_workers_are_killed(tmp_path: Path) -> None:
    command = [
        str(PROJECT / "tools" / "with_services.sh"), sys.executable, "-m",
        "tests.benchmarks.usage_server", str(tmp_path / "home"), str(HTTP_EVENTS), str(HTTP_SIZE),
    ]  # fmt: skip
    env = {
        **{name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "platform")]),
    }
    done = subprocess.run(
        command, cwd=PROJECT, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    wanted = HTTP_EVENTS
    assert found["killed"] > 0
    assert found["held"] == [wanted, wanted, wanted * 10]
    print(
        f"\nHTTP batch endpoint: {found['events'] / found['seconds']:,.0f} durable events/s, "
        f"{found['events']:,} events in deliveries of {HTTP_SIZE:,}, 2 workers, PostgreSQL with "
        f"fsync, {len(os.sched_getaffinity(0))} cores for all of it; {found['killed']} workers "
        f"killed, {found['retries']} deliveries sent again, {found['held'][0]:,} events stored, "
        f"{found['held'][1]:,} different: each exactly once"
    )
