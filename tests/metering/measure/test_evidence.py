"""Figures come out of the logs alone, and edited evidence is refused wherever it was edited."""

from __future__ import annotations

import hashlib
import json
import shutil
import statistics
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering.evidence import recompute
from metering.loadgen import EvidenceError
from metering.uplift import estimate, fresh_inputs
from tests.metering.measure import evidence_chain as chain
from tests.metering.measure.tiny_recogniser import glyph_lines, write_lines, write_recogniser
from tests.quick import some


def rates(evidence: Path, part: str) -> list[tuple[Decimal, Decimal]]:
    """(base, other) of each counted pair, read from the detail logs without the product's code."""
    found = []
    for entry in json.loads((evidence / part / "pairs.json").read_text())["pairs"]:
        if entry["warm_up"]:
            continue
        pair = []
        for arm in ("base", "other"):
            log = evidence / part / "runs" / entry[arm] / "mlperf_log_detail.txt"
            key = '"key": "result_samples_per_second", "value": '
            pair.append(Decimal(log.read_text().split(key)[1].split(",")[0]))
        found.append((pair[0], pair[1]))
    return found


def document(path: Path) -> Any:
    return json.loads(path.read_text())


def edit(path: Path, change: Callable[[Any], None]) -> None:
    value = document(path)
    change(value)
    path.write_text(json.dumps(value))


def test_the_recorded_measurement_comes_out_of_its_logs(recorded: Path) -> None:
    found = recompute(recorded)
    pairs = rates(recorded, "uplift")
    assert found.uplift is not None
    assert found.uplift.n == len(pairs) == 6
    logs = [float((other / base).ln()) for base, other in pairs]
    assert found.uplift.to_dict() == estimate(logs).to_dict()
    # The bound lies among the ratios seen; it is no artefact of the method.
    ratios = sorted(other / base - 1 for base, other in pairs)
    assert ratios[0] <= Decimal(found.uplift.lower_95) <= ratios[-1]
    assert found.aa.passed
    assert found.accuracy.passed
    assert found.decision.kept
    frozen = document(recorded / "baseline/baseline.json")
    runs = [
        document(recorded / "baseline/runs" / run_id / "result.json")["samples_per_second"]
        for run_id in frozen["runs"]
    ]
    assert found.baseline_samples_per_second == statistics.median(Decimal(rate) for rate in runs)


def test_recomputing_twice_gives_the_same_bytes(recorded: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(recorded, tmp_path / "elsewhere"))
    first, second = recompute(recorded).to_dict(), recompute(moved).to_dict()
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


def test_the_evidence_names_no_folder_of_the_machine(recorded: Path) -> None:
    for path in recorded.rglob("*.json"):
        text = path.read_text()
        assert "/tmp/" not in text, path  # noqa: S108
        assert "/home/" not in text, path


def test_every_file_of_a_run_is_held_by_a_digest_or_by_its_logs(evidence: Path) -> None:
    """One byte in the middle of each file of one run in each part; and of each document."""
    recompute(evidence)
    folders = [
        next((evidence / part / "runs").iterdir())
        for part in ("baseline", "aa", "uplift", "accuracy")
    ]
    files = [path for folder in folders for path in sorted(folder.iterdir())]
    assert len(files) >= 16
    for path in files:
        data = path.read_bytes()
        middle = len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        if path.name == "result.json":
            # Not every byte of it bears a figure; those that do are covered below and in verify.
            path.write_bytes(data[:-20])
        with pytest.raises(EvidenceError):
            recompute(evidence)
        path.write_bytes(data)
    recompute(evidence)


EDITS: list[tuple[str, Callable[[Any], None], str]] = [
    ("plan.json", lambda d: d.update(pairs=7), "plan_digest"),
    ("baseline/baseline.json", lambda d: d.update(samples_per_second="1.0"), "samples_per_second"),
    ("baseline/baseline.json", lambda d: d.update(plan_digest="0" * 64), "plan_digest"),
    ("baseline/baseline.json", lambda d: d.update(version="9"), "version"),
    ("baseline/baseline.json", lambda d: d.update(model_sha256="0" * 64), "another model"),
    ("baseline/baseline.json", lambda d: d.update(reference_run="../x"), "not a run id"),
    ("baseline/baseline.json", lambda d: d["accuracy"].update(min_cosine="0.5"), "accuracy"),
    ("baseline/baseline.json", lambda d: d["table"].pop(), "not the runs"),
    ("baseline/baseline.json", lambda d: d["table"][0].update(samples_per_second="9"), "say"),
    ("baseline/baseline.json", lambda d: d.update(schema="x"), "not a document"),
    ("baseline/baseline.json",
     lambda d: d.update(as_found={**d["table"][0], "samples_per_second": "9"}), "as_found"),
    ("uplift/pairs.json", lambda d: d.update(seed="8"), "seed"),
    ("uplift/pairs.json", lambda d: d["pairs"].pop(), "not the runs"),
    ("aa/pairs.json", lambda d: d.update(order=d["order"][::-1]), "draws"),
    ("accuracy/accuracy.json", lambda d: d.update(min_cosine="1.000000000"), "accuracy logs"),
    ("accuracy/accuracy.json", lambda d: d.update(passed=False), "accuracy logs"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "reason"), EDITS, ids=range(len(EDITS)))
def test_an_edited_document_is_refused(
    evidence: Path, name: str, change: Callable[[Any], None], reason: str
) -> None:
    edit(evidence / name, change)
    with pytest.raises(EvidenceError, match=reason):
        recompute(evidence)


def test_a_slower_baseline_than_the_best_is_refused(evidence: Path) -> None:
    """Choosing a slow row of the honest table would raise every saving made from it."""
    path = evidence / "baseline/baseline.json"
    value = document(path)
    fit = [row for row in value["table"] if row["final_runs"]]
    slow = min(fit, key=lambda row: Decimal(row["samples_per_second"]))
    assert Decimal(slow["samples_per_second"]) < Decimal(value["samples_per_second"])
    for name in ("sut", "samples_per_second", "accuracy", "accuracy_run"):
        value[name] = slow[name]
    value["runs"] = slow["final_runs"]
    path.write_text(json.dumps(value))
    with pytest.raises(EvidenceError, match="a faster correct configuration"):
        recompute(evidence)


def test_a_fast_configuration_cannot_be_left_out_of_the_table(evidence: Path) -> None:
    path = evidence / "baseline/baseline.json"
    value = document(path)
    row = next(row for row in value["table"] if row["sut"]["stack"] == "openvino")
    value["table"].remove(row)
    path.write_text(json.dumps(value))
    with pytest.raises(EvidenceError, match="not the runs"):
        recompute(evidence)
    # Removing its runs too does not help: the plan says what had to be measured.
    for run_id in (row["screening_run"], row["accuracy_run"], *row["final_runs"]):
        shutil.rmtree(evidence / "baseline/runs" / str(run_id), ignore_errors=True)
    with pytest.raises(EvidenceError, match="1 rows more"):
        recompute(evidence)


def test_a_system_that_answers_otherwise_when_timed_is_not_kept(evidence: Path) -> None:
    """Outputs sampled from one timed run are exchanged, every digest made to fit."""
    assert recompute(evidence).timed_accuracy.samples > 100
    entry = document(evidence / "uplift/pairs.json")["pairs"][2]
    run = evidence / "uplift/runs" / entry["other"]
    path = run / "mlperf_log_accuracy.json"
    records = document(path)
    records[0]["data"], records[1]["data"] = records[1]["data"], records[0]["data"]
    path.write_text(json.dumps(records))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(run / "result.json", lambda d: d["files"].update({path.name: digest}))
    found = recompute(evidence)
    assert found.accuracy.passed
    assert not found.timed_accuracy.passed
    assert not found.decision.kept
    assert "answers otherwise when timed" in found.decision.reasons[0]


def test_missing_parts_are_named(evidence: Path) -> None:
    for name in ("plan.json", "baseline/baseline.json", "aa/pairs.json", "accuracy/accuracy.json"):
        path = evidence / name
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(EvidenceError, match=path.name):
            recompute(evidence)
        path.write_bytes(data)


def test_the_aa_runs_in_the_place_of_the_uplift_are_refused(evidence: Path) -> None:
    shutil.rmtree(evidence / "uplift")
    shutil.copytree(evidence / "aa", evidence / "uplift")
    with pytest.raises(EvidenceError):
        recompute(evidence)


def slow_down(pairs: Any) -> None:
    """As if the machine had run at half its pace around each run of the baseline."""
    for pair in pairs["pairs"]:
        pair["conditions"]["base"]["pace_ns"] *= 2


@pytest.mark.slow
@pytest.mark.parametrize("task", some(["embedding", "text_recognition"], 1))
def test_a_whole_measurement_from_sweep_to_decision(
    inputs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    model, samples, plan = inputs["model"], inputs["samples"], chain.chain_plan(task)
    if task == "text_recognition":
        model, samples = tmp_path / "reader.onnx", tmp_path / "lines.npz"
        write_recogniser(model)
        write_lines(samples, seed=1, count=48)
        monkeypatch.setattr(fresh_inputs, "text_lines", glyph_lines)
    chain.build(tmp_path / "evidence", model, samples, plan)
    found = recompute(tmp_path / "evidence")
    assert found.accuracy.passed
    # Whether a busy machine is measurable is its own affair; either way there is one clear answer.
    assert found.decision.kept == (not found.decision.reasons)
    # The guards of the second method, from what was measured and from what was looked at.
    assert found.cache is not None
    assert found.second is not None
    assert found.second.precision.passed
    assert found.second.conditions.slower is not None
    assert {"cache", "precision", "conditions", "held_back"} <= set(found.to_dict())
    spoiled = shutil.copytree(tmp_path / "evidence", tmp_path / "spoiled")
    edit(spoiled / "uplift/pairs.json", slow_down)
    assert [text for text in recompute(spoiled).decision.reasons if "slower around" in text]
    edit(spoiled / "uplift/pairs.json", lambda pairs: pairs["pairs"][3].pop("conditions"))
    assert "1 pairs have none on record" in "; ".join(recompute(spoiled).decision.reasons)
    frozen = document(tmp_path / "evidence/baseline/baseline.json")
    assert frozen["as_found"]["sut"]["graph_optimization"] == "basic"
    assert {row["sut"]["stack"] for row in frozen["table"]} == {"onnxruntime", "openvino"}
    # A second build finds everything done and changes nothing that was measured.
    before = {p: p.read_bytes() for p in (tmp_path / "evidence").rglob("result.json")}
    chain.baseline.sweep(
        plan,
        model,
        samples,
        tmp_path / "evidence/baseline",
        as_found=chain.SutSpec(
            "onnxruntime", arrangement="padded", batch=2, graph_optimization="basic"
        ),
    )
    assert {p: p.read_bytes() for p in (tmp_path / "evidence").rglob("result.json")} == before
