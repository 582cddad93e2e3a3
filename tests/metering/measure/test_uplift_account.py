"""Order bias, and runs dropped after looking: played on really recorded logs, refused from them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from metering.evidence import recompute
from metering.loadgen import EvidenceError
from metering.uplift import draw_order, load_paired
from metering.uplift.order import WARM_UP_PAIRS, leans

LOG = "mlperf_log_detail.txt"


def document(out: Path) -> Any:
    return json.loads((out / "pairs.json").read_text())


def edit(out: Path, **fields: object) -> None:
    (out / "pairs.json").write_text(json.dumps({**document(out), **fields}))


def resign(run: Path, **fields: object) -> None:
    """Change a result and make every digest of the run fit its files: a careful forger."""
    result = {**json.loads((run / "result.json").read_text()), **fields}
    for name in result["files"]:
        result["files"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
    result["spec_sha256"] = result["files"]["spec.json"]
    (run / "result.json").write_text(json.dumps(result))


def rename(out: Path, old: str, new: str) -> None:
    run = (out / "runs" / old).rename(out / "runs" / new)
    (run / "spec.json").write_text((run / "spec.json").read_text().replace(old, new))
    resign(run, run_id=new)


def shift(run: Path, seconds: int, *, log: bool = True) -> None:
    """The run as if it had started later: in the record, and in LoadGen's log too."""
    moment = datetime.fromisoformat(json.loads((run / "result.json").read_text())["started_at"])
    if log:
        text = (run / LOG).read_text()
        step = timedelta(seconds=seconds)
        for pattern, form in (
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "%Y-%m-%dT%H:%M:%SZ"),
            (r"\d\d-\d\d-\d{4} \d\d:\d\d:\d\d\.\d{3}", "%m-%d-%Y %H:%M:%S.%f"),
        ):

            def later(found: re.Match[str], form: str = form) -> str:
                told = (datetime.strptime(found[0], form).replace(tzinfo=UTC) + step).strftime(form)
                return told[: len(found[0])]

            text = re.sub(pattern, later, text)
        (run / LOG).write_text(text)
    resign(run, started_at=(moment + timedelta(seconds=seconds)).isoformat())


def test_honest_evidence_is_accounted_for(recorded: Path) -> None:
    for part in ("aa", "uplift"):
        assert load_paired(recorded / part).complete


def test_no_seed_favours_one_arm() -> None:
    """The candidate always second, on a warm machine: among so many seeds a coin would do it."""
    for pairs in (6, 10, 24):
        for seed in range(1000):
            counted = draw_order(seed, pairs + WARM_UP_PAIRS)[WARM_UP_PAIRS:]
            assert pairs / 6 <= counted.count("base") <= pairs * 5 / 6
    # Drawn again only where it leans, and then each time from another name.
    assert draw_order(7, 4) == draw_order(7, 7)[:4]
    assert leans(("base",) * 7)
    assert not leans(("base",) * 3)


def test_an_order_with_a_lean_is_refused(evidence: Path) -> None:
    out = evidence / "uplift"
    edit(out, order=["base"] * len(document(out)["order"]))
    with pytest.raises(EvidenceError, match="order is not what seed"):
        load_paired(out)


def test_an_order_other_than_the_drawn_one_is_refused_whatever_the_record_says(
    evidence: Path,
) -> None:
    """The arms of a pair ran in the favourable order; record and results were made to fit."""
    out = evidence / "uplift"
    pair = document(out)["pairs"][3]
    second = "other" if pair["first"] == "base" else "base"
    first_run, second_run = (out / "runs" / pair[arm] for arm in (pair["first"], second))
    times = [json.loads((run / "result.json").read_text()) for run in (first_run, second_run)]
    resign(first_run, started_at=times[1]["started_at"])
    with pytest.raises(EvidenceError, match=r"LoadGen's log says|did not start in the order"):
        load_paired(out)
    resign(second_run, started_at=times[0]["started_at"])
    with pytest.raises(EvidenceError, match=r"LoadGen's log says|ran before the one"):
        load_paired(out)
    # With the logs' own clocks turned as well, the runs no longer fit between their neighbours.
    for run, seconds in ((first_run, 3600), (second_run, -3600)):
        shift(run, seconds)
    with pytest.raises(EvidenceError):
        load_paired(out)


def test_a_pair_dropped_after_looking_is_missed(evidence: Path) -> None:
    out = evidence / "uplift"
    *kept, last = document(out)["pairs"]
    edit(out, pairs=kept)
    for arm in ("base", "other"):
        shutil.rmtree(out / "runs" / last[arm])
    found = recompute(evidence)
    assert not found.decision.kept
    assert found.uplift is None
    assert "only 6 of 7 pairs were measured" in found.decision.reasons


def test_a_second_attempt_that_is_not_on_record_is_refused(evidence: Path) -> None:
    """A pair was measured again because the first result did not please."""
    out = evidence / "uplift"
    pairs = document(out)["pairs"]
    for arm in ("base", "other"):
        old = pairs[4][arm]
        pairs[4][arm] = old.replace("-a0-", "-a1-")
        rename(out, old, pairs[4][arm])
    edit(out, pairs=pairs)
    with pytest.raises(EvidenceError, match="is not attempt 0 of arm"):
        load_paired(out)
    edit(out, abandoned=["pair 4 attempt 0"])
    assert load_paired(out).abandoned == ("pair 4 attempt 0",)
    # On record it is allowed, but not at will.
    edit(out, abandoned=["pair 4 attempt 0"], resumed=[1, 2, 3, 5, 6])
    assert "wanted at most 5" in load_paired(out).faults[0]


def test_an_attempt_taken_off_the_record_is_refused(evidence: Path) -> None:
    out = evidence / "uplift"
    edit(out, abandoned=["pair 2 attempt 0"])
    with pytest.raises(EvidenceError, match="is not attempt 1 of arm"):
        load_paired(out)
    edit(out, abandoned=["pair 2 attempt 1"])
    with pytest.raises(EvidenceError, match="attempts on record"):
        load_paired(out)


def test_time_for_a_run_that_is_not_there_must_be_explained(evidence: Path) -> None:
    """Pair 3 was measured, looked at, deleted and measured again under the same name."""
    out = evidence / "uplift"
    pairs = document(out)["pairs"]
    for entry in pairs[3:]:
        for arm in ("base", "other"):
            shift(out / "runs" / entry[arm], 60)
    with pytest.raises(EvidenceError, match=r"s without a run before uplift-p03.*dropped there"):
        load_paired(out)
    # A worker that was stopped between two pairs says so when it goes on.
    edit(out, resumed=[3])
    assert load_paired(out).resumed == (3,)
    edit(out, resumed=[4])
    with pytest.raises(EvidenceError, match="dropped there"):
        load_paired(out)


def test_a_pause_inside_a_pair_is_never_explained(evidence: Path) -> None:
    out = evidence / "uplift"
    pairs = document(out)["pairs"]
    late = "other" if pairs[3]["first"] == "base" else "base"
    for entry in (pairs[3], *pairs[4:]):
        for arm in ("base", "other"):
            if entry is not pairs[3] or arm == late:
                shift(out / "runs" / entry[arm], 60)
    edit(out, resumed=[3])
    with pytest.raises(EvidenceError, match="dropped there"):
        load_paired(out)


def test_a_run_from_another_day_with_a_new_date_is_refused(evidence: Path) -> None:
    """The best of many later runs, its record backdated; LoadGen's log keeps the real time."""
    out = evidence / "uplift"
    run = out / "runs" / document(out)["pairs"][2]["other"]
    shift(run, 86_400)
    with pytest.raises(EvidenceError, match=r"in the order recorded|ran before|without a run"):
        load_paired(out)
    shift(run, -86_400, log=False)
    with pytest.raises(EvidenceError, match="but LoadGen's log says"):
        load_paired(out)
    text = (run / LOG).read_text().replace("power_begin", "power_began")
    (run / LOG).write_text(text)
    resign(run)
    with pytest.raises(EvidenceError, match="no time in its log"):
        load_paired(out)
