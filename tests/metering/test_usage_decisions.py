"""A decision between contents of one key: what a person chose counts, once, in any order."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.__main__ import main
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import (
    Decision,
    aggregate,
    decisions_document,
    read_decisions,
    read_events,
)
from tests.metering.money_cases import UNHURRIED, ZONE
from tests.metering.usage_reference import read_by_rows, totals_by_rows

PERIOD = Period.month("2026-11", ZONE)


def line(identifier: str, samples: int, when: str = "2026-11-03T08:00:00Z") -> bytes:
    return json.dumps(
        {
            "specversion": "1.0", "type": "ignition.usage.v1", "source": "g", "id": identifier,
            "time": when, "data": {"model": "m", "system": "s", "samples": samples},
        }
    ).encode()  # fmt: skip


def content(data: bytes) -> str:
    return read_events([data]).events[0].content


def decide(chosen: bytes, *others: bytes, identifier: str = "k") -> Decision:
    return Decision(
        source="g", id=identifier, content=content(chosen),
        contents=tuple(sorted(map(content, (chosen, *others)))), decided_by="ann (customer)",
        decided_at=datetime(2026, 12, 1, 9, tzinfo=UTC), reason="the meter was read twice",
    )  # fmt: skip


def total(lines: Any, *decisions: Decision, **options: Any) -> Any:
    by_key = {decision.key: decision for decision in decisions}
    return aggregate(read_events(lines), PERIOD, ZONE, decisions=by_key, **options)


ONE, TWO, OTHER = line("k", 10), line("k", 99), line("z", 1)


def test_the_content_decided_for_counts_once_in_any_order() -> None:
    for lines in permutations([ONE, TWO, TWO, OTHER]):
        assert total(lines).samples == 1
        kept, taken = total(lines, decide(ONE, TWO)), total(lines, decide(TWO, ONE))
        assert (kept.samples, kept.accepted, kept.duplicates, kept.conflicts) == (11, 2, 0, 2)
        assert (taken.samples, taken.accepted, taken.duplicates, taken.conflicts) == (100, 2, 1, 1)
    assert kept.incidents[0].reason == (
        f"decided by ann (customer): content {content(ONE)[:12]} counts; the meter was read twice"
    )


def test_a_content_nobody_looked_at_contests_the_key_again() -> None:
    three = line("k", 7)
    assert total([ONE, TWO, three], decide(ONE, TWO)).samples == 0
    assert total([ONE, TWO, three], decide(ONE, TWO, three)).samples == 10


def test_what_was_set_aside_never_counts_alone() -> None:
    """The other content may lie in another period: here only its rival is at hand."""
    assert total([TWO], decide(ONE, TWO)).samples == 0
    assert total([TWO], decide(TWO, ONE)).samples == 99
    assert total([TWO]).samples == 99


def test_a_decision_outlives_neither_period_nor_registry() -> None:
    late = line("k", 4, "2026-10-03T08:00:00Z")
    totals = total([ONE, late], decide(late, ONE))
    assert (totals.samples, totals.late, totals.conflicts) == (0, 1, 1)
    assert total([ONE, TWO], decide(TWO, ONE), known=set()).count("unmatched") == 1


def test_what_counted_earlier_is_not_decided_away() -> None:
    stored = {("g", "k"): content(ONE)}
    again = total([ONE, TWO], decide(ONE, TWO), stored=stored)
    assert (again.duplicates, again.conflicts, again.samples) == (1, 1, 0)
    with pytest.raises(Refusal, match="which counts already"):
        total([TWO], decide(TWO, ONE), stored=stored)


@UNHURRIED
@given(st.integers(0, 2**63))
def test_decisions_mean_what_the_plain_statement_says(seed: int) -> None:
    chance = random.Random(seed)
    lines = [
        line(
            str(chance.randint(0, 3)),
            chance.randint(0, 3),
            f"2026-11-0{chance.randint(1, 3)}T08:00:00Z",
        )
        for _ in range(chance.randint(0, 14))
    ]
    decisions = {}
    for event in read_by_rows(lines)[0]:
        rivals = {e.content for e in read_by_rows(lines)[0] if e.key == event.key}
        if len(rivals) > 1 and chance.random() < 0.7:
            looked_at = tuple(
                sorted(rivals if chance.random() < 0.8 else {event.content, "0" * 64})
            )
            decisions[event.key] = replace(
                decide(ONE, TWO), source=event.source, id=event.id, content=event.content,
                contents=looked_at,
            )  # fmt: skip
    found = aggregate(read_events(lines), PERIOD, ZONE, decisions=decisions)
    assert found == totals_by_rows(lines, PERIOD, decisions=decisions)
    chance.shuffle(lines)
    again = aggregate(read_events(lines), PERIOD, ZONE, decisions=decisions)
    assert (again.counts, again.volumes, again.content_sha256) == (
        found.counts, found.volumes, found.content_sha256,
    )  # fmt: skip


def test_decisions_are_read_as_written() -> None:
    both = [decide(ONE, TWO), decide(OTHER, ONE, identifier="a")]
    document = decisions_document(both)
    assert list(read_decisions(document).values()) == [both[1], both[0]]
    twice = canonical.loads(canonical.dumps(document))
    assert isinstance(twice, dict)
    twice["decisions"].append(twice["decisions"][0])
    with pytest.raises(Refusal, match="one decision a key"):
        read_decisions(twice)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"content": "0" * 64}, "one of decision.contents"),
        ({"contents": ["0" * 64]}, "two or more, ascending"),
        ({"contents": ["x" * 64, "y" * 64]}, "SHA-256"),
        ({"reason": " "}, "say why"),
        ({"weight": 2}, "a field this version does not know"),
    ],
)
def test_a_decision_that_is_none_is_refused(changed: dict[str, object], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        Decision.from_json({**decide(ONE, TWO).to_json(), **changed})


def test_the_command_reads_the_decisions_of_an_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, decided = tmp_path / "events.jsonl", tmp_path / "decisions.json"
    usage.write_bytes(b"\n".join([ONE, TWO, OTHER]))
    decided.write_bytes(canonical.dumps(decisions_document([decide(TWO, ONE)])))
    asked = ["usage", "check", str(usage), "--period", "2026-11", "--zone", ZONE, "--json"]
    main([*asked, "--decisions", str(decided)])
    assert json.loads(capsys.readouterr().out)["samples"] == 100
    decided.write_text('{"schema": "other"}')
    assert main([*asked, "--decisions", str(decided)]) == 2
    assert "decisions.schema" in capsys.readouterr().err
