"""The whole search on a small real encoder: compiler, judge, races, package; resume; Ctrl-C."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import kernelgen
from kernelgen.agent.bench import Bench
from kernelgen.agent.gate import Gate, TrafficEncoder
from kernelgen.agent.ledger import Ledger
from kernelgen.agent.records import Records, read
from kernelgen.agent.traffic import model_points
from kernelgen.emit import MODEL
from kernelgen.graph.builders import build_encoder
from kernelgen.judge import sanitize
from kernelgen.judge.contest import Point
from kernelgen.judge.verdict import Candidate
from kernelgen.machine import Machine, describe
from kernelgen.ops import MeanPool
from kernelgen.package.manifest import check_files, read_manifest
from kernelgen.schedule import space

CORE = min(os.sched_getaffinity(0))
VOCABULARY = 120


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    return build_encoder(path, layers=1, heads=2, head_size=16, ffn=64, vocabulary=VOCABULARY)


@pytest.fixture(scope="module")
def samples() -> list[npt.NDArray[np.int64]]:
    rng = np.random.default_rng(4)
    return [rng.integers(0, VOCABULARY, size=int(n)) for n in rng.integers(3, 20, size=40)]


@pytest.mark.slow
def test_a_model_is_tuned_packaged_and_resumed(
    model: Path, samples: list[npt.NDArray[np.int64]], machine: Machine, tmp_path: Path
) -> None:
    events: list[kernelgen.TrialEvent] = []
    records = tmp_path / "trials.jsonl"
    result = kernelgen.optimize(
        model,
        out=tmp_path / "package",
        budget_s=5.0,
        samples=samples,
        seed=1,
        machine=machine,
        price_per_core_hour=Decimal("0.04"),
        currency="EUR",
        records=records,
        core=CORE,
        on_event=events.append,
    )
    assert result.model_gate.correct
    assert result.model_gate.rounds >= 12
    assert result.trials >= 1
    assert result.cost > 0
    assert sum(row.share for row in result.operators) == pytest.approx(1.0)
    assert events[0].kind == "started"
    assert events[-1].kind == "done"
    json.dumps(result.to_dict(), allow_nan=False)

    manifest = read_manifest(result.package)
    check_files(result.package, manifest)
    assert {"verdicts.json", "ledger.jsonl", "trials.jsonl"} <= set(manifest["files"])
    verdicts = json.loads((result.package / "verdicts.json").read_text())
    assert verdicts["model"]["accepted"] is True
    booked = [
        json.loads(line) for line in (result.package / "ledger.jsonl").read_text().splitlines()
    ]
    assert sum(Decimal(line["cost"]) for line in booked) == result.cost
    with kernelgen.load(result.package) as compiled:
        assert compiled.run(samples[:3]).shape == (3, 32)

    before = {trial.key for trial in read(records)}
    again = kernelgen.optimize(
        model,
        out=tmp_path / "package",
        budget_s=5.0,
        samples=samples,
        seed=1,
        machine=machine,
        records=records,
        core=CORE,
        on_event=events.append,
    )
    assert again.model_gate.correct
    assert before <= {trial.key for trial in read(records)}


def test_ctrl_c_still_leaves_a_judged_package(
    model: Path, samples: list[npt.NDArray[np.int64]], machine: Machine, tmp_path: Path
) -> None:
    kinds: list[str] = []

    def interrupt(event: kernelgen.TrialEvent) -> None:
        kinds.append(event.kind)
        if event.kind == "trial" and "interrupted" not in kinds:
            raise KeyboardInterrupt

    result = kernelgen.optimize(
        model,
        out=tmp_path / "package",
        budget_s=60.0,
        samples=samples,
        machine=machine,
        core=CORE,
        on_event=interrupt,
    )
    assert "interrupted" in kinds
    assert result.seconds < 60
    assert result.model_gate.correct
    check_files(result.package, read_manifest(result.package))


def test_no_budget_packages_the_judged_defaults(
    model: Path, samples: list[npt.NDArray[np.int64]], machine: Machine, tmp_path: Path
) -> None:
    result = kernelgen.optimize(
        model, out=tmp_path / "package", budget_s=0.0, samples=samples, machine=machine, core=CORE
    )
    assert result.trials == 0
    assert result.model_gate.correct
    assert result.model_gate.kept == ()
    assert all(row.schedule == row.default_schedule for row in result.operators)


def test_a_stock_choice_that_wins_inside_the_model_becomes_the_base(
    model: Path, samples: list[npt.NDArray[np.int64]], machine: Machine, tmp_path: Path
) -> None:
    encoder = TrafficEncoder(str(model), tuple(samples))
    usual = {name: space(op, machine) for name, op in encoder.graph.operators.items()}
    thin = {"vector": 8, "mr": 4, "nr": 1, "tiles": 0, "prefetch": 0}
    spaces = {
        name: replace(
            found,
            start={**found.start, **{axis: thin[axis] for axis in thin if axis in found.axes}},
            others={"usual": found.start},
        )
        for name, found in usual.items()
    }
    spaces[MODEL] = space(encoder, machine)
    gate = Gate(
        encoder,
        model_points(samples),
        machine=machine,
        core=CORE,
        work=tmp_path,
        ledger=Ledger(tmp_path / "ledger.jsonl", Decimal(0), "EUR"),
    )
    raced: list[str] = []
    chosen = gate.stock(spaces, budget_s=60.0, on_race=lambda name, _: raced.append(name))
    assert raced == ["usual"]
    assert (chosen.kept, chosen.dropped) == (("usual",), ())
    assert all(chosen.schedules[name] == found.default() for name, found in usual.items())
    turned = {
        name: replace(found, start=found.others["usual"], others={"thin": found.start})
        for name, found in spaces.items()
        if name != MODEL
    }
    turned[MODEL] = spaces[MODEL]
    chosen = gate.stock(turned, budget_s=60.0, on_race=lambda name, _: raced.append(name))
    assert (chosen.kept, chosen.dropped) == ((), ("thin",))
    late = gate.stock(turned, budget_s=0.0, on_race=lambda name, _: raced.append(name))
    assert (late.kept, late.dropped) == ((), ())
    assert all(late.schedules[name] == found.default() for name, found in turned.items())
    assert raced == ["usual", "thin"]


def test_wrong_use_is_named(
    model: Path, samples: list[npt.NDArray[np.int64]], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="budget_s"):
        kernelgen.optimize(model, out=tmp_path / "p", budget_s=-1, samples=samples)
    with pytest.raises(ValueError, match="samples"):
        kernelgen.optimize(model, out=tmp_path / "p", budget_s=1, samples=[])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("alone", [True, False])
def test_a_first_kernel_may_meet_the_sanitizers_inside_the_model(
    alone: bool, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[str] = []
    real = sanitize.check

    def check(candidate: Candidate, *rest: Any) -> None:
        met.append(candidate.name)
        real(candidate, *rest)

    monkeypatch.setattr(sanitize, "check", check)
    operator = MeanPool(48)
    bench = Bench(
        operator,
        (Point({"n": 3, "tokens": 40}),),
        machine=machine,
        core=CORE,
        work=tmp_path,
        ledger=Ledger(tmp_path / "ledger.jsonl", Decimal(1), "USD"),
        records=Records(tmp_path / "trials.jsonl"),
        first_alone=alone,
    )
    default = space(operator, machine).default()
    assert bench.evaluate(default, None, number=0, proposer="default").accepted
    assert met == ([operator.name] if alone else [])


def test_known_refusals_cost_nothing_and_wins_are_judged_again(
    machine: Machine, tmp_path: Path
) -> None:
    operator = MeanPool(48)
    records = Records(tmp_path / "trials.jsonl")

    def bench(number: int) -> Bench:
        return Bench(
            operator,
            (Point({"n": 3, "tokens": 40}),),
            machine=machine,
            core=CORE,
            work=tmp_path / f"work{number}",
            ledger=Ledger(tmp_path / f"ledger{number}.jsonl", Decimal(1), "USD"),
            records=records,
        )

    found = space(operator, machine)
    default = found.default()
    first = bench(0)
    won = first.evaluate(default, None, number=0, proposer="default")
    assert won.accepted, won
    lost = first.evaluate(default, default, number=1, proposer="again")
    assert not lost.accepted, "nothing is faster than itself"
    second = bench(1)
    repeated = second.evaluate(default, default, number=0, proposer="again")
    assert repeated.reason == lost.reason
    assert repeated.seconds == 0.0
    assert not (tmp_path / "ledger1.jsonl").exists()
