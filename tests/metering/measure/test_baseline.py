"""Which configurations compete, which one wins, and what freezing keeps."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering import baseline
from metering.baseline import (
    Baseline,
    BaselinePolicy,
    Cell,
    Sweep,
    SweepError,
    candidates,
    sweeping,
)
from metering.baseline.sweeping import fastest
from metering.loadgen import RunResult, RunSpec, SpecError, SutSpec
from metering.plan import MeasurementPlan, Seeds, ServerBounds, short_run_plan
from metering.stacks import StackInfo
from metering.uplift import Accuracy

GOOD = Accuracy(1.0, 1.0, 0.0, 96, 0.9999, passed=True)
BAD = Accuracy(0.5, 0.9, 1.0, 96, 0.9999, passed=False)
HERE = tuple(StackInfo(name, "1", "d", True, "") for name in ("onnxruntime", "openvino"))


def plan(cores: tuple[int, ...] = (0, 1), **space: Any) -> MeasurementPlan:
    made = short_run_plan(
        "p", cores=cores, zone="UTC", seeds=Seeds(1, 2, 3, 4), run_seconds=1, pairs=6
    )
    return dataclasses.replace(made, sweep=dataclasses.replace(made.sweep, **space))


def result(run_id: str, rate: str | None) -> RunResult:
    return RunResult(
        run_id=run_id,
        scenario="Offline",
        mode="performance",
        state="INVALID" if rate is None else "VALID",
        reasons=(),
        samples_per_second=None if rate is None else Decimal(rate),
        latency=None,
        sample_count=None,
        effective={},
        files={},
        spec_sha256="",
        started_at="2026-11-30T00:00:00.000Z",
        wall_s=1.0,
        cpu_s=1.0,
        load_average=(0.0, 0.0),
        stack_version="1",
        stack_digest="d",
    )


def cell(batch: int, accuracy: Accuracy | None, *finals: str | None) -> Cell:
    return Cell(
        sut=SutSpec("onnxruntime", batch=batch),
        screening=result(f"screen-{batch}", "50"),
        accuracy=accuracy,
        accuracy_run=None if accuracy is None else f"accuracy-{batch}",
        finals=tuple(result(f"final-{batch}-{i}", rate) for i, rate in enumerate(finals)),
    )


def swept(*cells: Cell, as_found: SutSpec | None = None) -> Sweep:
    return Sweep("p" * 64, "m" * 64, "s" * 64, "reference", HERE, cells, as_found)


def test_configurations_fill_the_cores_and_are_listed_once() -> None:
    found = candidates(
        plan(threads=(1, 2, 4), arrangements=("padded", "single", "grouped"), batches=(1, 16)), HERE
    )
    assert len(set(found)) == len(found)
    assert all(sut.threads * sut.instances == 2 for sut in found)
    # One by one is the same in every arrangement; two thread counts; three ways to batch.
    assert len([sut for sut in found if sut.stack == "openvino"]) == 2 * 3
    assert {sut.batch for sut in found if sut.arrangement == "single"} == {1}


def test_only_what_is_installed_and_planned_competes() -> None:
    missing = (HERE[0], StackInfo("openvino", "", "", False, "not installed"))
    assert {sut.stack for sut in candidates(plan(), missing)} == {"onnxruntime"}
    assert {sut.stack for sut in candidates(plan(stacks=("openvino",)), HERE)} == {"openvino"}


def test_levels_are_swept_where_a_stack_has_them() -> None:
    found = candidates(plan(graph_optimizations=("none", "all")), HERE)
    levels = {(sut.stack, sut.graph_optimization) for sut in found}
    assert levels == {("onnxruntime", "none"), ("onnxruntime", "all"), ("openvino", "default")}


def test_a_plan_nobody_can_measure_yet_is_refused(tmp_path: Path) -> None:
    server = dataclasses.replace(plan(), scenario="Server", bounds=ServerBounds(10**9))
    with pytest.raises(SpecError, match=r"plan\.scenario: .* the rates each holds"):
        baseline.run_spec(
            server, SutSpec("onnxruntime"), run_id="x", model=tmp_path, samples=tmp_path
        )


def test_a_spec_carries_the_plans_cores_seeds_and_scenario() -> None:
    spec = baseline.run_spec(
        plan((2, 3)), SutSpec("openvino"), run_id="x", model=Path("m"), samples=Path("s")
    )
    assert isinstance(spec, RunSpec)
    assert (spec.cores, spec.scenario) == ((2, 3), "Offline")
    assert (spec.seeds.qsl, spec.seeds.sample_index, spec.seeds.schedule) == (2, 3, 4)


def test_the_fastest_correct_configuration_wins_by_its_median() -> None:
    lucky = cell(1, GOOD, "90", "91", "500")
    steady = cell(2, GOOD, "99", "100", "101")
    wrong = cell(3, BAD)
    broken = cell(4, GOOD, "999", None, "999")
    assert fastest([lucky, steady, wrong, broken]) is steady
    with pytest.raises(SweepError, match="correct"):
        fastest([wrong, broken])


def test_freezing_keeps_the_table_and_what_was_found() -> None:
    best, other = cell(2, GOOD, "99", "100", "101"), cell(8, None)
    moment = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
    frozen = baseline.freeze(swept(best, other, as_found=other.sut), frozen_at=moment)
    assert frozen.samples_per_second == Decimal(100)
    assert frozen.runs == ("final-2-0", "final-2-1", "final-2-2")
    assert frozen.as_found is not None
    assert frozen.as_found.samples_per_second == Decimal(50)
    text = json.dumps(frozen.to_dict())
    assert json.loads(text)["frozen_at"] == "2026-11-30T08:00:00Z"
    assert Baseline.from_dict(json.loads(text)) == frozen


def test_freezing_needs_a_zone_and_records_the_policy() -> None:
    ready = swept(cell(2, GOOD, "100"))
    with pytest.raises(ValueError, match="zone"):
        baseline.freeze(ready, frozen_at=datetime(2026, 11, 30))  # noqa: DTZ001
    for policy in BaselinePolicy:
        frozen = baseline.freeze(ready, frozen_at=datetime.now(UTC), policy=policy)
        assert Baseline.from_dict(frozen.to_dict()).policy is policy


def test_a_frozen_baseline_is_not_replaced(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    first = baseline.freeze(swept(cell(2, GOOD, "100")), frozen_at=moment)
    path = baseline.save(first, tmp_path)
    assert baseline.save(first, tmp_path) == path
    with pytest.raises(SweepError, match="another frozen baseline"):
        baseline.save(dataclasses.replace(first, samples_per_second=Decimal(1)), tmp_path)
    assert baseline.load(tmp_path) == first


def test_a_real_sweep_is_resumed_and_gives_one_baseline(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two configurations on one core; cut off after three runs, then finished."""
    small = plan(
        (0,),
        stacks=("onnxruntime",),
        threads=(1,),
        batches=(16,),
        arrangements=("padded", "grouped"),
    )
    monkeypatch.setattr(sweeping, "ROUNDS", 1)
    steps: list[str] = []

    def stop(step: baseline.SweepStep) -> None:
        steps.append(step.result.run_id)
        if len(steps) == 3:
            raise KeyboardInterrupt

    out = tmp_path / "baseline"
    with pytest.raises(KeyboardInterrupt):
        baseline.sweep(small, inputs["model"], inputs["samples"], out, stop)
    kept = {path: path.read_bytes() for path in out.rglob("result.json")}
    assert len(kept) == 3
    found = baseline.sweep(small, inputs["model"], inputs["samples"], out)
    assert all(path.read_bytes() == data for path, data in kept.items())
    assert not (out / "probe").exists()
    assert found.best.accuracy is not None
    assert found.best.accuracy.passed
    assert len(found.best.finals) == 1
    # The same samples for every screening run.
    counts = {cell.screening.sample_count for cell in found.cells}
    assert len(counts) == 1
    frozen = baseline.freeze(found, frozen_at=datetime.now(UTC))
    again = baseline.sweep(small, inputs["model"], inputs["samples"], out)
    assert baseline.freeze(again, frozen_at=frozen.frozen_at) == frozen
    other = dataclasses.replace(small, pairs=8)
    with pytest.raises(SweepError, match="plan_digest"):
        baseline.sweep(other, inputs["model"], inputs["samples"], out)


def test_no_stack_at_all_is_said_plainly(inputs: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"none of .*torch"):
        baseline.sweep(
            plan(stacks=("torch",)), inputs["model"], inputs["samples"], tmp_path / "out"
        )
