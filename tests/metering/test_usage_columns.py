"""The columns answer what the plain statement answers, whatever comes in.

In: lines as writers, careless writers and attackers make them. Out: equality of whole totals.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import EVENT_TYPE, TrafficShare, aggregate, batch, generate_month, read_events
from metering.usage.aggregate import _content_digest
from metering.usage.shapes import learn
from tests.metering.money_cases import UNHURRIED, ZONE
from tests.metering.usage_reference import read_by_rows, totals_by_rows

PERIOD = Period.month("2026-11", ZONE)
TIMES = (
    "2026-11-03T08:00:00Z", "2026-11-03T08:00:00.5Z", "2026-11-03T08:00:00.000Z",
    "2026-11-03T08:00:00.123456789Z", "2026-11-03T09:00:00+01:00", "2026-11-03T08:00:00-00:00",
    "2026-10-31T22:59:59.999999Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z",
    "2026-11-30T22:59:59Z", "2026-12-02T08:00:00Z", "2024-02-29T00:00:00Z", "2026-02-29T00:00:00Z",
    "2026-11-31T00:00:00Z", "2026-11-03T24:00:00Z", "2026-11-03T08:00:60Z", "1970-01-01T00:00:00Z",
    "1971-01-01T00:00:00+13:00", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "2026-11-03t08:00:00z", "2026-11-03 08:00:00Z", "2026-11-03T08:00:00",
    "2026-11-03T08:00Z", "2026-11-03T08:00:00.Z", "2026-11-03T08:00:00+24:00",
    "2199-12-31T23:00:00Z", "2100-02-28T00:00:00Z", "\u0662026-11-03T08:00:00Z",
)  # fmt: skip
TEXTS = (
    "m", "s", "e1", "e2", "gateway", "", "gate way", "gäteway", "東京", "\U0001f600", 'quo"te',
    "back\\slash", "new\nline", "tab\t", "\x7f", "null", "1", "}",
    "x" * 200, "x" * 201, '","id":"e9', "\u2028",
)  # fmt: skip
NUMBERS = (
    "0", "1", "10", "007", "-0", "-1", "999999999999999", "1000000000000000", "9007199254740991",
    "9007199254740992", "-9007199254740993", "1.0", "1e3", "1E3", "true", "null", '"10"', "[]",
    "1 ", "+1", "0x1", "\u0661", "NaN", "10}", "9" * 40,
)  # fmt: skip


def one_line(rng: random.Random) -> bytes:
    """One line: mostly an event, its values, order, spaces and bytes bent here and there."""
    strict = rng.random() < 0.75

    def name() -> str:
        return rng.choice(("e1", "e2", "e3", "gateway") if strict else TEXTS)

    def time() -> str:
        return rng.choice(TIMES[:12] if strict else TIMES)

    strings = {
        "specversion": "1.0", "type": EVENT_TYPE, "source": name(), "id": name(), "time": time()
    }  # fmt: skip
    if rng.random() < 0.5:
        strings["receivedtime"] = time()
    if rng.random() < 0.5:
        strings["datacontenttype"] = "application/json"
    if rng.random() < 0.2:
        strings[rng.choice(("subject", "é", "samples", "time", "zz", "id"))] = rng.choice(TEXTS)
    ascii_only = rng.random() < 0.5
    comma, colon = rng.choice(((",", ":"), (", ", ": "), (" ,", " :")))

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    def joined(parts: list[str]) -> str:
        return "{" + comma.join(parts) + "}"

    data = [
        f'"model"{colon}{text(rng.choice(("m", "n") if strict else TEXTS))}',
        f'"system"{colon}{text("s")}',
        f'"samples"{colon}{rng.choice(NUMBERS[:3] if strict else NUMBERS)}',
    ]
    parts = [f"{text(key)}{colon}{text(value)}" for key, value in strings.items()]
    order = random.Random(rng.randint(0, 2))
    order.shuffle(data)
    parts.append(f'"data"{colon}{joined(data)}')
    order.shuffle(parts)
    if rng.random() < 0.1:
        parts.append(rng.choice(parts))
    line = joined(parts).encode("utf-8", "surrogatepass")
    bend = rng.random()
    if bend < 0.1:
        place = rng.randint(0, len(line))
        line = line[:place] + rng.randbytes(rng.randint(0, 2)) + line[place + rng.randint(0, 2) :]
    elif bend < 0.2:
        line += rng.choice((b" ", b"\r", b"\r\r", b"{}", b"\t", b"\x00", b"\xff", b" " * 9))
    return line


def a_file(seed: int) -> list[bytes]:
    """Lines of which some come again, between blank ones and noise."""
    rng = random.Random(seed)
    found = [one_line(rng) for _ in range(rng.randint(0, 14))]
    found += [
        rng.choice((b"", b"  ", b'"' * 40, rng.randbytes(9))) for _ in range(rng.randint(0, 2))
    ]
    found += [rng.choice(found) for _ in range(rng.randint(0, 6)) if found]
    rng.shuffle(found)
    return found


SOME = settings(UNHURRIED, max_examples=40)
files = st.integers(0, 2**63).map(a_file)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few lines, so that what spans two of them is met."""
    monkeypatch.setattr(batch, "BLOCK_BYTES", 1_000)


@SOME
@given(files)
def test_a_list_of_lines_reads_as_one_line_after_the_other(found: list[bytes]) -> None:
    events, refused, rows, sha256 = read_by_rows(found)
    read = read_events(found)
    assert (read.rows, read.sha256) == (rows, sha256)
    assert read.refused == tuple(refused)
    assert read.events == tuple(events)


@SOME
@given(files, st.booleans())
def test_a_file_has_the_totals_of_its_lines(found: list[bytes], closed: bool) -> None:
    data = b"\n".join(found) + (b"\n" if closed else b"")
    assert aggregate(read_events(io.BytesIO(data)), PERIOD, ZONE) == totals_by_rows(
        io.BytesIO(data), PERIOD
    )


@SOME
@given(files, files, st.booleans(), st.booleans(), st.booleans())
def test_conditions_decide_the_same_fates(
    found: list[bytes], earlier: list[bytes], known: bool, start: bool, cutoff: bool
) -> None:
    stored = {event.key: event.content for event in read_by_rows(earlier)[0]}
    options: dict[str, Any] = {
        "known": {("m", "s")} if known else None,
        "stored": stored,
        "not_before": datetime(2026, 11, 2, tzinfo=UTC) if start else None,
        "cutoff": datetime(2026, 12, 1, tzinfo=UTC) if cutoff else None,
    }
    found = [*found, *earlier[:3]]
    assert aggregate(read_events(found), PERIOD, ZONE, **options) == totals_by_rows(
        found, PERIOD, **options
    )


def test_a_month_of_traffic_has_the_totals_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BLOCK_BYTES", 40_000)
    shares = [TrafficShare("m", "s", 3), TrafficShare("n", "s")]
    written = generate_month(
        shares, PERIOD, samples=10**12, seed=4, duplicate_rate=0.2, late_rate=0.2
    )
    options: dict[str, Any] = {
        "known": {("m", "s")},
        "cutoff": datetime(2026, 11, 29, tzinfo=UTC),
        "not_before": datetime(2026, 11, 2, tzinfo=UTC),
    }
    found = aggregate(read_events(written), PERIOD, ZONE, **options)
    assert found == totals_by_rows(written, PERIOD, **options)
    assert all(found.count(fate) for fate in ("accepted", "duplicate", "early", "late"))


@pytest.mark.parametrize("conditions", ["plain", "stored"])
def test_many_contents_under_one_key_are_counted(conditions: str) -> None:
    found = [event_line(1, number) for number in (1, 2, 2, 3, 1)]
    content = read_events([event_line(1, 1)]).events[0].content
    stored = {("g", "1"): content} if conditions == "stored" else {}
    totals = aggregate(read_events(found), PERIOD, ZONE, stored=stored)
    assert totals == totals_by_rows(found, PERIOD, stored=stored)
    assert totals.incidents[0].reason.startswith("3 contents")
    assert totals.samples == 0


def event_line(identifier: int, samples: object) -> bytes:
    data = f'{{"model":"m","system":"s","samples":{samples}}}'
    return (
        f'{{"specversion":"1.0","type":"{EVENT_TYPE}","source":"g","id":"{identifier}",'
        f'"time":"2026-11-03T08:00:00Z","data":{data}}}'
    ).encode()


def test_sums_beyond_64_bits_are_exact() -> None:
    found = [event_line(number, 2**53 - 1 - number) for number in range(1100)]
    totals = aggregate(read_events(found), PERIOD, ZONE)
    assert totals.samples == 1100 * (2**53 - 1) - sum(range(1100)) > 2**63


def test_plain_lines_take_the_quick_path() -> None:
    """Otherwise the equality above would be that of `read_event` with itself."""
    written = [line.encode() for line in generate_month(
        [TrafficShare("m", "s")], PERIOD, samples=10**6, seed=1)]  # fmt: skip
    shape = learn(written[0])
    assert shape is not None
    block = batch.Block(b"\n".join(written) + b"\n")
    parsed = shape.parse(block, block.plain)
    assert parsed is not None
    assert len(parsed.rows) == len(written)


@pytest.mark.parametrize("number", ["-0", "-1", "01", "1.0", "1e2", "10"])
def test_a_shape_learnt_from_a_strange_number_reads_none_wrongly(number: str) -> None:
    found = [event_line(1, number), event_line(2, -5), event_line(3, 5)]
    assert aggregate(read_events(found), PERIOD, ZONE) == totals_by_rows(found, PERIOD)


def test_a_file_without_a_line_feed_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "MAX_UNBROKEN_BYTES", 5_000)
    with pytest.raises(Refusal, match="line feed"):
        read_events(io.BytesIO(b"x" * 10_000))


def test_digests_that_begin_alike_are_ordered_by_the_rest() -> None:
    rng = np.random.default_rng(1)
    contents = rng.integers(0, 256, (500, 32)).astype(np.uint8)
    contents[:, :9] = contents[0, :9]
    contents[::7, 9:31] = 3
    accepted = rng.random(500) < 0.7
    wanted = hashlib.sha256(b"".join(sorted(row.tobytes() for row in contents[accepted])))
    assert _content_digest(contents, accepted) == wanted.hexdigest()
