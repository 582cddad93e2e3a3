"""Pairs of real runs: drawn order, resumption after a kill, no second roll, and refusals."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from metering.loadgen import EvidenceError, RunResult, RunSpec, SutSpec
from metering.loadgen.calibrate import matched
from metering.loadgen.settings import samples_per_query
from metering.uplift import PairsRefused, draw_order, load_paired, measure_pairs, pairs

SEED, PAIRS = 20, 6


def arms(inputs: dict[str, Any], **fields: Any) -> tuple[RunSpec, RunSpec]:
    base = RunSpec(
        run_id="base",
        scenario="Offline",
        mode="performance",
        sut=SutSpec("onnxruntime", arrangement="single"),
        model=str(inputs["model"]),
        samples=str(inputs["samples"]),
        min_duration_ms=1,
        target_qps=1.0,
        min_query_count=200,
        warmup_ms=0,
        **fields,
    )
    other = SutSpec("onnxruntime", arrangement="grouped", batch=16)
    return base, dataclasses.replace(base, run_id="other", sut=other)


@pytest.fixture(scope="module")
def measured(inputs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One measurement, cut off twice on the way: between the arms of pair 2, and after pair 3."""
    out = tmp_path_factory.mktemp("measured") / "uplift"
    base, other = arms(inputs)
    real, calls = pairs.run, iter(range(1000))

    def cut_off(spec: RunSpec, folder: Path) -> RunResult:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return real(spec, folder)

    def stop(pair: pairs.Pair) -> None:
        if pair.pair == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "run", cut_off)
        with pytest.raises(KeyboardInterrupt):
            measure_pairs(base, other, pairs=PAIRS, seed=SEED, out=out)
    assert len(json.loads((out / "pairs.json").read_text())["pairs"]) == 2
    with pytest.raises(KeyboardInterrupt):
        measure_pairs(base, other, pairs=PAIRS, seed=SEED, out=out, on_pair=stop)
    first = json.loads((out / "pairs.json").read_text())["pairs"]
    assert len(first) == 4
    found = measure_pairs(base, other, pairs=PAIRS, seed=SEED, out=out)
    assert found.complete, found.faults
    # Whole pairs were kept, not measured again.
    assert json.loads((out / "pairs.json").read_text())["pairs"][:4] == first
    return out


@pytest.fixture
def copy(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured, tmp_path / measured.name))


def edit(out: Path, **fields: object) -> None:
    path = out / "pairs.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_measurement_loads_and_counts_its_pairs(measured: Path) -> None:
    found = load_paired(measured)
    assert [pair.pair for pair in found.pairs] == list(range(PAIRS + 1))
    assert [pair.warm_up for pair in found.pairs] == [True] + [False] * PAIRS
    assert len(found.log_ratios()) == PAIRS
    assert found.estimate().n == PAIRS
    assert tuple(pair.first for pair in found.pairs) == draw_order(SEED, PAIRS + 1)
    for pair in found.pairs:
        times = {"base": pair.base.started_at, "other": pair.other.started_at}
        assert min(times, key=times.__getitem__) == pair.first


def test_the_cut_off_attempt_is_on_record_and_its_files_are_gone(measured: Path) -> None:
    found = load_paired(measured)
    assert found.abandoned == ("pair 2 attempt 0",)
    # The stop after pair 3 cut nothing off, but the pause it made is on record too.
    assert found.resumed == (4,)
    assert found.pairs[2].base.run_id == "uplift-p02-a1-base"
    listed = {r.run_id for pair in found.pairs for r in (pair.base, pair.other)}
    assert {path.name for path in (measured / "runs").iterdir()} == listed


def test_calling_again_measures_nothing_and_gives_the_same(
    measured: Path, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(spec: RunSpec, folder: Path) -> RunResult:
        raise AssertionError("a finished measurement was run again")

    monkeypatch.setattr(pairs, "run", forbidden)
    base, other = arms(inputs)
    again = measure_pairs(base, other, pairs=PAIRS, seed=SEED, out=measured)
    assert again.estimate() == load_paired(measured).estimate()


@pytest.mark.parametrize("change", ["seed", "planned", "settings"])
def test_a_folder_of_another_measurement_is_refused(
    copy: Path, inputs: dict[str, Any], change: str
) -> None:
    base, other = arms(inputs)
    if change == "settings":
        base, other = (dataclasses.replace(spec, min_query_count=201) for spec in (base, other))
    seed = SEED + (change == "seed")
    count = PAIRS + (change == "planned")
    with pytest.raises(PairsRefused, match="another"):
        measure_pairs(base, other, pairs=count, seed=seed, out=copy)


def test_arms_that_differ_in_more_than_the_system_are_refused(
    inputs: dict[str, Any], tmp_path: Path
) -> None:
    base, other = arms(inputs)
    for fields, reason in (
        ({"min_query_count": 300}, "min_query_count"),
        ({"warmup_ms": 5}, "warmup_ms"),
        ({"sut": SutSpec("null")}, "null"),
    ):
        changed = dataclasses.replace(other, **fields)
        with pytest.raises(PairsRefused, match=reason):
            measure_pairs(base, changed, pairs=6, seed=1, out=tmp_path / "x")
    with pytest.raises(PairsRefused, match="at least 6"):
        measure_pairs(base, other, pairs=5, seed=1, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_run_that_is_not_valid_ends_the_measurement_for_good(
    inputs: dict[str, Any], tmp_path: Path
) -> None:
    base, other = arms(inputs)
    base, other = (dataclasses.replace(spec, min_duration_ms=5000) for spec in (base, other))
    out = tmp_path / "aa"
    found = measure_pairs(base, base, pairs=PAIRS, seed=1, out=out)
    assert len(found.pairs) == 1
    assert "INVALID" in found.faults[0]
    with pytest.raises(ValueError, match="INVALID"):
        found.log_ratios()
    # Asking again is no second roll of the dice.
    record = (out / "pairs.json").read_bytes()
    assert measure_pairs(base, base, pairs=PAIRS, seed=1, out=out).faults == found.faults
    assert (out / "pairs.json").read_bytes() == record
    assert load_paired(out).faults == found.faults


def test_edits_of_the_record_are_refused(copy: Path) -> None:
    document = json.loads((copy / "pairs.json").read_text())
    swapped = [{**document["pairs"][0]}, *document["pairs"][1:]]
    swapped[1] = {**swapped[1], "base": swapped[1]["other"], "other": swapped[1]["base"]}
    dropped = document["pairs"][:-1]
    repeated = [*dropped, {**document["pairs"][-1], "base": document["pairs"][1]["base"]}]
    flipped = ["other" if arm == "base" else "base" for arm in document["order"]]
    wider = {**document["other_spec"], "warmup_ms": 1}
    for fields, reason in (
        ({"pairs": swapped}, "not that of its arm"),
        ({"pairs": dropped}, "not the runs"),
        ({"pairs": repeated}, "not the runs"),
        ({"order": flipped}, "draws"),
        ({"seed": "21"}, "draws"),
        ({"planned": 5}, "draws"),
        ({"other_spec": wider}, "not that of its arm"),
        ({"schema": "x"}, "schema"),
        ({"pairs": [{**document["pairs"][0], "base": "../../etc"}]}, "not a run id"),
    ):
        edit(copy, **{**document, **fields})
        with pytest.raises(EvidenceError, match=reason):
            load_paired(copy)
    edit(copy, **document)
    assert load_paired(copy).complete


def test_a_run_copied_over_another_is_refused(copy: Path) -> None:
    """The fastest run of an arm, put in the place of the slowest."""
    runs = copy / "runs"
    shutil.rmtree(runs / "uplift-p01-a0-other")
    shutil.copytree(runs / "uplift-p04-a0-other", runs / "uplift-p01-a0-other")
    with pytest.raises(EvidenceError, match="holds another run"):
        load_paired(copy)


def test_matched_arms_do_the_same_work(inputs: dict[str, Any], tmp_path: Path) -> None:
    base, other = matched(*arms(inputs), tmp_path / "probe", run_seconds=0.3)
    assert base.comparable() == other.comparable()
    assert samples_per_query(base) == samples_per_query(other) > 0
    assert not (tmp_path / "probe").exists()
