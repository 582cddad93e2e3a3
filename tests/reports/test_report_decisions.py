"""A conflict that a person decided: the bundle holds with the decision, and with no other."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from metering import canonical
from metering.contract import Contract
from metering.usage import Decision, UsageTotals, aggregate, decisions_document, read_events
from reports.canonical import strict_json
from reports.verify import verify
from tests.reports.bundles import edited
from tests.reports.parties import Sides
from tests.reports.story import LABEL, MODEL, SYSTEM, Story, forge


@pytest.fixture
def contested(story: Story, tmp_path: Path) -> tuple[Story, Decision]:
    """The story with a rival of its first event, decided for what was there: money as before."""
    changed = edited(story, tmp_path)
    folder = changed.evidence / "usage" / LABEL
    lines = (folder / "events.jsonl").read_bytes().splitlines()
    rival = json.loads(lines[0])
    rival["data"]["samples"] += 1_000_000
    lines.append(json.dumps(rival).encode())
    first, *_, last = read_events(lines).events
    decision = Decision(
        source=first.source, id=first.id, content=first.content,
        contents=tuple(sorted((first.content, last.content))), decided_by="ann (customer)",
        decided_at=datetime(2026, 12, 1, 9, tzinfo=UTC), reason="the gateway counted a retry",
    )  # fmt: skip
    stated = UsageTotals.from_json(strict_json((folder / "totals.json").read_bytes()))
    terms = Contract.from_json(strict_json((changed.evidence / "contract.json").read_bytes()))
    totals = aggregate(
        read_events(lines), stated.period, terms.zone, known={(MODEL, SYSTEM)},
        not_before=terms.valid_from, decisions={decision.key: decision},
    )  # fmt: skip
    assert (totals.samples, totals.conflicts) == (stated.samples, stated.conflicts + 1)
    (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (folder / "totals.json").write_bytes(canonical.dumps(totals.to_json()))
    return changed, decision


def one_more(facts: dict[str, Any]) -> None:
    facts["usage"]["conflicts"] = str(int(facts["usage"]["conflicts"]) + 1)


CHANGES: list[tuple[str, Callable[[Decision], dict[str, object] | None], tuple[str, ...]]] = [
    ("as decided", lambda it: decisions_document([it]), ()),
    ("left out", lambda it: None, ("fee-recomputed",)),
    ("turned round", lambda it: decisions_document([
        Decision(**{**vars(it), "content": next(c for c in it.contents if c != it.content)})
    ]), ("fee-recomputed",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "failed"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES]
)
def test_a_bundle_holds_with_its_decision_alone(
    contested: tuple[Story, Decision], sides: Sides, tmp_path: Path,
    change: Callable[[Decision], dict[str, object] | None], failed: tuple[str, ...],
) -> None:  # fmt: skip
    story, decision = contested
    document = change(decision)
    if document is not None:
        path = story.evidence / "usage" / LABEL / "decisions.json"
        path.write_bytes(canonical.dumps(document))
    bundle = forge(story, sides, tmp_path / "folder", tmp_path / "b.zip", change=one_more)
    assert verify(bundle, sides.trust_dir).failed == failed
