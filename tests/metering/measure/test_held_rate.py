"""Server compared by the rate each arm holds: ladder, climbs, an honest interval, evidence.

The archive was really measured once on the small encoder, one by one against batches, with rungs
half as far again from each other so that it stays small.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metering.__main__ import main
from metering.baseline.plan_specs import server_spec
from metering.loadgen import EvidenceError, SutSpec
from metering.loadgen.calibrate import probe_rate
from metering.plan import MeasurementPlan, Seeds, ServerBounds, short_run_plan
from metering.uplift import PairsRefused, estimate, held_pairs, held_rate
from metering.uplift.held_pairs import load_held, measure_held
from metering.uplift.held_rate import Bracket, bracket, climb, ladder
from metering.uplift.server import NOT_BILLED, measure_server, recompute_server
from tests.metering.measure.test_evidence import document, edit
from tests.quick import some

ARCHIVE = Path(__file__).with_name("recorded_server.tar.xz")
CORE = min(os.sched_getaffinity(0))
BASE = SutSpec("onnxruntime", arrangement="single")


def served_plan() -> MeasurementPlan:
    plan = short_run_plan(
        "p", cores=(CORE,), zone="UTC", seeds=Seeds(1, 2, 3, 4), run_seconds=1, pairs=6
    )
    return dataclasses.replace(plan, scenario="Server", bounds=ServerBounds(100_000_000))


def in_logs(rate: float) -> float:
    return float(f"{rate:.6g}")


def test_a_ladder_spans_both_arms_in_equal_steps() -> None:
    rates = ladder(1000.0, 200.0)
    assert rates[0] <= 50
    assert rates[-1] == 4000
    steps = np.diff(np.log(rates))
    assert steps == pytest.approx(math.log(1.03), abs=1e-5)
    assert [in_logs(rate) for rate in rates] == list(rates)
    for wrong in ((0.0, 0.0), (100.0, 200.0), (math.inf, 1.0)):
        with pytest.raises(ValueError, match="wanted both above 0"):
            ladder(*wrong)


@pytest.mark.parametrize("count", range(1, 20))
def test_a_climb_finds_the_last_rung_that_holds_and_asks_its_neighbour(count: int) -> None:
    for last in range(-1, count):
        found, asked = climb(count, lambda rung, last=last: rung <= last)  # type: ignore[misc]
        assert found == last
        assert len(set(asked)) == len(asked) <= count.bit_length() + 1
        assert {last, last + 1} & set(range(count)) <= set(asked)


def test_the_ends_of_the_ladder_are_no_answer() -> None:
    rates = (10.0, 20.0, 30.0)
    assert bracket(rates, 1) == Bracket(20.0, 30.0)
    with pytest.raises(ValueError, match="not hold even at 10"):
        bracket(rates, -1)
    with pytest.raises(ValueError, match="held at 30 queries/s, the top"):
        bracket(rates, 2)


def test_less_than_a_rung_is_never_shown() -> None:
    """A true difference of next to nothing that straddles a rung in every single pair."""
    below, above = Bracket(100.0, 103.0), Bracket(103.0, 106.09)
    straddling = held_rate.held_rate([(below, above)] * 10)
    assert straddling.lower_95 == pytest.approx(0.0)
    assert straddling.point == pytest.approx(0.03)
    same = held_rate.held_rate([(below, below)] * 10)
    assert (same.lo, same.hi) == (pytest.approx(1 / 1.03 - 1), pytest.approx(0.03))
    two = held_rate.held_rate([(below, Bracket(106.09, 109.2727))] * 10)
    assert two.lower_95 == pytest.approx(0.03)


def test_bounds_hold_whatever_the_rates_between_the_rungs_are() -> None:
    rng = np.random.default_rng(0)
    for _ in range(some_times := 100):
        held = rng.uniform(100, 200, size=(10, 2))
        steps = rng.uniform(1.01, 1.2, size=(10, 2))
        true = held * steps ** rng.uniform(0, 1, size=(10, 2))
        brackets = [
            tuple(Bracket(*pair) for pair in zip(row, row * step, strict=True))
            for row, step in zip(held, steps, strict=True)
        ]
        found = held_rate.held_rate(brackets)  # type: ignore[arg-type]
        exact = estimate([math.log(other / base) for base, other in true])
        assert found.lo <= exact.lo <= exact.hi <= found.hi
        assert found.lower_95 <= exact.lower_95
    assert some_times == 100


# Evidence


@pytest.fixture(scope="session")
def served_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "evidence"


@pytest.fixture
def served(served_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(served_once, tmp_path / "served"))


def test_a_recorded_comparison_comes_out_of_its_logs(
    served_once: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = recompute_server(served_once)
    assert found.accuracy.passed
    assert found.timed_accuracy.passed
    assert found.timed_accuracy.samples > 100
    # Whether the recording machine was quiet enough is its own affair; the answer is one.
    assert found.shown == (not found.reasons)
    assert main(["server", "show", str(served_once), "--json"]) == (0 if found.shown else 1)
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(found.to_dict()))
    assert told["billed"] == NOT_BILLED
    assert main(["server", "show", str(served_once)]) == (0 if found.shown else 1)
    assert "p99 within 100 ms" in capsys.readouterr().out


def first_run(pairs: Any, arm: str) -> list[Any]:
    found: list[Any] = pairs[2][arm]
    return found


EDITS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("held/held.json", lambda d: d.update(seed="8"), "order is not what seed"),
    ("held/held.json", lambda d: d.update(planned=7), "order is not what seed"),
    ("held/held.json", lambda d: d["pairs"].pop(), "not the runs"),
    ("held/held.json", lambda d: first_run(d["pairs"], "base").pop(), "not the runs"),
    ("held/held.json", lambda d: d["rates"].reverse(), "out of order"),
    ("held/held.json", lambda d: d.update(rates=[f"{float(r) / 2:.6g}" for r in d["rates"]]),
     "not that of its arm"),
    ("held/held.json", lambda d: d["pairs"].reverse(), "did not start in the order"),
    ("held/held.json", lambda d: d["base_spec"].update(target_latency_ns=5), "not that of its arm"),
    ("held/held.json", lambda d: d.update(schema="x"), "cannot be used"),
    ("plan.json", lambda d: d["bounds"].update(target_latency_ns=10**9), "not those of the plan"),
    ("plan.json", lambda d: d.update(pairs=7), "not those of the plan"),
    ("plan.json", lambda d: d.update(cores=[5]), "task or cores"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "reason"), EDITS, ids=range(len(EDITS)))
def test_an_edited_comparison_is_refused(
    served: Path, name: str, change: Callable[[Any], Any], reason: str
) -> None:
    edit(served / name, change)
    with pytest.raises(EvidenceError, match=reason):
        recompute_server(served)


def test_a_climb_that_ended_early_would_hold_the_baseline_back(served: Path) -> None:
    """The last, highest rung that a baseline was asked is taken out, and its folder with it."""
    path = served / "held/held.json"
    pairs = document(path)["pairs"]
    _, gone, _ = pairs[2]["base"][-1]
    shutil.rmtree(served / "held/runs" / gone)
    edit(path, lambda told: told["pairs"][2]["base"].pop())
    with pytest.raises(EvidenceError, match="leaves out rung"):
        recompute_server(served)


def test_a_measurement_that_broke_off_shows_nothing(served: Path) -> None:
    path = served / "held/held.json"
    last = document(path)["pairs"][-1]
    for arm in ("base", "other"):
        for _, name, _ in last[arm]:
            shutil.rmtree(served / "held/runs" / name)
    edit(path, lambda told: told["pairs"].pop())
    found = recompute_server(served)
    assert found.held is None
    assert any("only 5 of 6 pairs" in reason or "pair" in reason for reason in found.reasons)
    assert not found.shown


def test_wrong_use_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = short_run_plan("p", cores=(CORE,), zone="UTC", seeds=Seeds(1, 2, 3, 4))
    request = {"plan": plan.to_json(), "model": "m", "samples": "s",
               "base": {"stack": "onnxruntime"}, "other": {"stack": "onnxruntime"}}  # fmt: skip
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(request))
    asked = ["server", "measure", str(spec), "--out", str(tmp_path / "out")]
    assert main(asked) == 2
    assert "got Offline, wanted Server with its bounds" in capsys.readouterr().err
    spec.write_text(json.dumps({"plan": {}}))
    assert main(asked) == 2
    assert "wanted ('plan', 'model'" in capsys.readouterr().err
    assert main(["server", "show", str(tmp_path)]) == 1
    assert "evidence does not hold" in capsys.readouterr().err


def test_a_bound_that_nothing_holds_ends_the_measurement(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real runs far above what the system does, with a bound that lets few queries wait."""
    monkeypatch.setattr(held_rate, "HEADROOM", 2.0)
    monkeypatch.setattr(held_rate, "DEPTH", 0.6)
    monkeypatch.setattr(held_rate, "STEP", 3.0)
    plan = dataclasses.replace(served_plan(), bounds=ServerBounds(1_000_000))
    spec = server_spec(plan, BASE, run_id="base", model=inputs["model"], samples=inputs["samples"])
    found = measure_held(
        spec, spec, (5e4, 5e4), run_seconds=1, pairs=6, seed=1, out=tmp_path / "held"
    )
    assert found.fault.startswith("pair 0: the bound does not hold even at")
    assert found.pairs == ()
    with pytest.raises(ValueError, match="does not hold even"):
        found.estimate()
    with pytest.raises(PairsRefused, match="choose a new folder"):
        measure_held(spec, spec, (5e4, 5e4), run_seconds=1, pairs=6, seed=1, out=tmp_path / "held")


@pytest.mark.slow
@pytest.mark.parametrize("whole", some([False, True], 1))
def test_two_systems_climb_for_real(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """A whole comparison; the quick form climbs one counted pair, which no interval rests on."""
    monkeypatch.setattr(held_rate, "STEP", 3.0)
    plan, other = served_plan(), SutSpec("onnxruntime", batch=32)
    paths = {"model": inputs["model"], "samples": inputs["samples"]}
    if whole:
        found = measure_server(plan, BASE, other, **paths, out=tmp_path / "out")
        assert found.accuracy.passed
        assert found.shown == (not found.reasons)
        assert recompute_server(tmp_path / "out") == found
        return
    monkeypatch.setattr(held_pairs, "MINIMUM_PAIRS", 1)
    specs = [server_spec(plan, sut, run_id="r", **paths) for sut in (BASE, other)]
    rates = [float(probe_rate(spec, tmp_path / "probe")) for spec in specs]
    pair = measure_held(
        specs[0], specs[1], (rates[0], rates[1]),
        run_seconds=1, pairs=1, seed=1, out=tmp_path / "held",
    )  # fmt: skip
    # A climb that met an end of the ladder is a result too, and says so.
    assert bool(pair.fault) == (len(pair.pairs) < 1)
    assert load_held(tmp_path / "held") == pair
    runs = [path.name for path in (tmp_path / "held" / "runs").iterdir()]
    assert len(runs) >= 4
