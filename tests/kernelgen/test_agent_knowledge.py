"""Records under several writers, transfer between shapes and machines, the learned cost model."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from kernelgen.agent.costmodel import CostModel, Example, operator_facts
from kernelgen.agent.knowledge import Knowledge, context, landscapes, machine_distance
from kernelgen.agent.predict import Predict
from kernelgen.agent.proposals import Unusable, Written
from kernelgen.agent.proposers import History
from kernelgen.agent.records import HOLDS_FOR, Records, Trial, fresh, key, read
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine, describe
from kernelgen.ops import GemmBias
from kernelgen.schedule import Schedule, SearchSpace, space

ROOT = Path(__file__).parents[2]
POINTS = (Point({"m": 32}),)
LINES = 500


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe(measure=False)


def _trial(schedule: str, **changes: object) -> Trial:
    first = Trial(
        key=schedule,
        operator="x",
        number=0,
        proposer="default",
        schedule=schedule,
        incumbent=None,
        source_sha256="",
        reason="accepted",
        detail="",
        seconds=0.5,
    )
    return replace(first, **changes)  # type: ignore[arg-type]


WRITER = """
import sys
from pathlib import Path
from kernelgen.agent.records import Records, Trial
records = Records(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    records.add(Trial(f"{sys.argv[2]}-{number}", "x", number, "p", "x: a=1", None, "", "slower",
                      "d" * (number * 37 % 12000), 0.1))
"""


def test_two_processes_append_and_lose_nothing(tmp_path: Path) -> None:
    """Lines up to 12 kB, above what one buffered write would carry."""
    path = tmp_path / "trials.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(LINES)], cwd=ROOT)
        for name in ("a", "b")
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    keys = [trial.key for trial in read(path)]
    assert sorted(keys) == sorted(f"{name}-{n}" for name in ("a", "b") for n in range(LINES))
    for name in ("a", "b"):
        assert [k for k in keys if k[0] == name] == [f"{name}-{n}" for n in range(LINES)]


def test_an_old_record_is_judged_again() -> None:
    now = datetime.now(UTC)
    stamp = "%Y-%m-%dT%H:%M:%SZ"
    assert fresh(_trial("x: a=1", at=now.strftime(stamp)), now)
    old = (now - HOLDS_FOR - timedelta(days=1)).strftime(stamp)
    assert not fresh(_trial("x: a=1", at=old), now)
    assert not fresh(_trial("x: a=1", at=""), now)
    assert not fresh(_trial("x: a=1", at="yesterday"), now)


def test_a_switch_of_the_compiler_makes_another_key(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tinygrad#11908: a cache that ignores environment switches returns the other setting's
    kernels."""
    plain = key(GemmBias(8, 16), POINTS, "int x;", (), machine)
    monkeypatch.setenv("CPATH", "/elsewhere")
    assert key(GemmBias(8, 16), POINTS, "int x;", (), machine) != plain


def test_a_written_kernel_is_kept_and_a_changed_one_is_not_found(tmp_path: Path) -> None:
    records = Records(tmp_path / "trials.jsonl")
    kernel = Written("x", "int kernel;")
    records.keep_source(kernel)
    assert records.source("x", kernel.sha256) == kernel
    path = tmp_path / "kernels" / f"{kernel.sha256}.c"
    path.write_text("int changed;")
    assert records.source("x", kernel.sha256) is None
    assert records.source("x", "../../etc/passwd") is None


def _run(
    operator: GemmBias, points: tuple[Point, ...], machine: Machine, run: str, **won: object
) -> list[Trial]:
    """A search that accepted the default and then one change of it."""
    facts = json.loads(json.dumps(context(operator, points, machine)))
    default = space(operator, machine).default()
    winner = default
    for axis, value in won.items():
        winner = winner.with_choice(axis, value)  # type: ignore[arg-type]
    common = {"operator": operator.name, "context": facts, "run": run}
    return [
        _trial(default.text(), **common),
        _trial(winner.text(), incumbent=default.text(), ratio=1.25, **common),
        _trial(default.text() + " ", reason="wrong_output", **common),
    ]


def test_the_nearest_shape_and_machine_come_first(machine: Machine, tmp_path: Path) -> None:
    near, far = GemmBias(384, 768), GemmBias(64, 64)
    other = replace(machine, fingerprint="other", isa=("avx2",), l2_bytes=machine.l2_bytes // 2)
    trials = [
        *_run(far, POINTS, machine, "1", order="rows"),
        *_run(near, POINTS, other, "2", prefetch=512),
        *_run(near, POINTS, machine, "3", tail="last"),
    ]
    path = tmp_path / "folder" / "trials.jsonl"
    records = Records(path)
    for trial in trials:
        records.add(trial)
    (path.parent / "ledger.jsonl").write_text("{}\n")
    known = Knowledge.load(path.parent)
    mine, choices = GemmBias(384, 1152), space(GemmBias(384, 1152), machine)
    found = known.near(mine, POINTS, machine)
    assert [other.operator.name for _, other in found] == [near.name, near.name, far.name]
    assert found[0][1].machine["fingerprint"] == machine.fingerprint
    starts = known.starts(choices, mine, POINTS, machine)
    first = next(iter(starts.values()))
    assert isinstance(first, Schedule)
    assert first.word("tail") == "last"
    assert all(choices.legal(start) is None for start in starts.values() if start)
    assert len(starts) == 3
    speeds = sorted(example.log_speed for example in known.examples(choices, mine, POINTS, machine))
    assert speeds[-1] == pytest.approx(math.log(1.25))
    assert machine_distance({"fingerprint": "a"}, {"fingerprint": "a"}) == 0.0


def test_knowledge_of_what_this_version_does_not_know_is_left_out(machine: Machine) -> None:
    facts = context(GemmBias(8, 16), POINTS, machine)
    trials = [
        _trial("x: a=1"),
        _trial("x: a=1", context={**facts, "spec": {"family": "gone"}}),
        _trial("x: a=1", context={"spec": facts["spec"], "points": "none"}),
    ]
    assert landscapes(trials) == []


HILL = SearchSpace(
    operator="hill",
    axes={"a": tuple(range(12)), "b": tuple(range(12)), "kind": ("plain", "odd")},
    start={"a": 1, "b": 1, "kind": "plain"},
    rule=lambda choices: None,
)


def _speed(schedule: Schedule) -> float:
    a, b = schedule.number("a"), schedule.number("b")
    return math.exp(-0.1 * (abs(a - 8) + abs(b - 3)) + 0.2 * (schedule.word("kind") == "odd"))


def test_the_cost_model_ranks_what_it_has_not_seen() -> None:
    rng = np.random.default_rng(0)
    drawn = list(dict.fromkeys(HILL.sample(rng) for _ in range(140)))
    seen, unseen = drawn[:60], drawn[60:]
    model = CostModel(HILL.axes)
    model.fit([Example(s, math.log(_speed(s)), (1.0,)) for s in seen], seed=1)
    mean, spread = model.predict(unseen, (1.0,))
    truth = np.array([math.log(_speed(s)) for s in unseen])
    rank = np.corrcoef(np.argsort(np.argsort(mean)), np.argsort(np.argsort(truth)))[0, 1]
    assert rank > 0.8
    assert spread.mean() > 0
    again = CostModel(HILL.axes)
    again.fit([Example(s, math.log(_speed(s)), (1.0,)) for s in seen], seed=1)
    assert (again.predict(unseen, (1.0,))[0] == mean).all()


def test_predict_proposes_better_than_chance_and_only_what_is_new() -> None:
    rng = np.random.default_rng(2)
    history = History(HILL.default(), {})
    for schedule in dict.fromkeys(HILL.sample(rng) for _ in range(40)):
        history.speed[schedule] = _speed(schedule)
    history.incumbent = max(history.speed, key=lambda s: history.speed[s] or 0.0)
    drawn = float(np.median([_speed(HILL.sample(rng)) for _ in range(200)]))
    proposer, speeds = Predict((1.0,)), []
    for _ in range(20):
        schedule = proposer.propose(HILL, history, rng)
        assert schedule is not None
        assert schedule not in history.speed
        assert HILL.legal(schedule) is None
        history.speed[schedule] = _speed(schedule)
        speeds.append(_speed(schedule))
    assert np.median(speeds) > 1.3 * drawn


def test_predict_waits_until_it_knows_something_and_uses_what_others_found() -> None:
    rng = np.random.default_rng(0)
    history = History(HILL.default(), {HILL.default(): 1.0})
    assert Predict((1.0,)).propose(HILL, history, rng) is None
    history.speed[HILL.sample(rng)] = None
    drawn = dict.fromkeys(HILL.sample(rng) for _ in range(60))
    similar = [Example(s, math.log(_speed(s)), (1.0,), 0.5) for s in drawn]
    schedule = Predict((1.0,), similar).propose(HILL, history, rng)
    assert schedule is not None
    assert _speed(schedule) > float(np.median([_speed(s) for s in drawn]))


def test_importing_kernelgen_loads_no_learner() -> None:
    program = (
        "import sys, kernelgen, kernelgen.agent.predict, kernelgen.agent.single; "
        "print(any(name.startswith('sklearn') for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_operator_facts_hold_sizes_and_intensity() -> None:
    small, large = (operator_facts(GemmBias(384, n), POINTS) for n in (384, 1536))
    assert len(small) == len(large)
    assert large[-3] - small[-3] == pytest.approx(2.0, abs=0.01)  # four times the work
    assert Unusable("x", 3, "no_answer", "").text() == "x: answer=n3"
