"""The text recogniser in a real mix: measured, at uplift 1.0 without a candidate, judged with one.

The archive was really measured once on a small recogniser (see evidence_chain.py); the sweep here
is real too, on that one or, in the slow form, on PP-OCRv4.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from kernelgen import zoo
from metering.__main__ import main
from metering.baseline import candidates, sweeping
from metering.datasets.reading import ReadingFloor
from metering.datasets.text_lines import scaled, text_lines, write_text_lines
from metering.evidence import NO_CANDIDATE, Unclaimed, recompute, recompute_member
from metering.loadgen import EvidenceError
from metering.loadgen.library import LibraryError, load_images, load_texts, write_images
from metering.mix import NOT_KEPT, recompute_family
from metering.plan import MeasurementPlan, Seeds, short_run_plan
from metering.stacks import StackInfo
from metering.uplift.cache import CacheGuard
from metering.uplift.fresh_inputs import DISTINCT, make_lines
from metering.uplift.precision import pinned_precision
from metering.uplift.reading import Line, Reading, reading_guard, shown_worse
from tests.conftest import MODEL_CACHE
from tests.metering.measure.test_baseline_registry import registered
from tests.metering.measure.test_evidence import document, edit
from tests.metering.measure.tiny_recogniser import write_lines, write_recogniser
from tests.quick import some

ARCHIVE = Path(__file__).with_name("recorded_recogniser.tar.xz")
CORE = min(os.sched_getaffinity(0))
FLOOR = ReadingFloor(Decimal("0.8"), Decimal("0.05"), ignore_spaces=True)


@pytest.fixture(scope="session")
def read_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recogniser")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "evidence"


@pytest.fixture
def reading(read_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(read_once, tmp_path / "reading"))


def without_a_claim(evidence: Path) -> Path:
    """The recorded baseline under a plan that makes no claim, as if signed so."""
    for name in ("aa", "uplift", "accuracy", "cache"):
        shutil.rmtree(evidence / name)
    edit(evidence / "plan.json", lambda plan: plan.update(claim=False))
    digest = MeasurementPlan.from_json(document(evidence / "plan.json")).digest
    edit(evidence / "baseline/baseline.json", lambda frozen: frozen.update(plan_digest=digest))
    return evidence


# The sweep


def tiny(folder: Path) -> tuple[Path, Path]:
    write_recogniser(folder / "reader.onnx")
    write_lines(folder / "lines.npz", seed=1, count=24)
    return folder / "reader.onnx", folder / "lines.npz"


def pp_ocr(folder: Path) -> tuple[Path, Path]:
    write_text_lines(text_lines(11, 12), folder / "lines.npz")
    return zoo.fetch("pp-ocrv4-recogniser", MODEL_CACHE), folder / "lines.npz"


@pytest.mark.parametrize(
    "made", some([pytest.param(tiny), pytest.param(pp_ocr, marks=pytest.mark.slow)], 1)
)
def test_a_baseline_from_a_spec_file_is_registered_and_stands_at_one(
    made: Callable[[Path], tuple[Path, Path]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One configuration, one final; truth, accuracy, registry, comparability, and the mix."""
    monkeypatch.setattr(sweeping, "ROUNDS", 1)
    model, samples = made(tmp_path)
    plan = short_run_plan(
        "lines",
        cores=(CORE,),
        zone="UTC",
        seeds=Seeds(1, 2, 3, 4),
        stacks=("onnxruntime", "llama.cpp"),
        run_seconds=1,
        pairs=6,
        task="text_recognition",
        claim=False,
    ).to_json()
    plan["sweep"] = {
        **plan["sweep"],  # type: ignore[dict-item]
        "arrangements": ["single"],
        "batches": [1],
        "graph_optimizations": ["all"],
    }
    request = {"plan": plan, "model": str(model), "samples": str(samples)}
    (tmp_path / "spec.json").write_text(json.dumps(request))
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    (evidence / "plan.json").write_text(json.dumps(plan))
    out = str(evidence / "baseline")
    assert main(["baseline", "measure", str(tmp_path / "spec.json"), "--out", out]) == 0
    assert "onnxruntime" in capsys.readouterr().out
    found = recompute_member(evidence)
    assert isinstance(found, Unclaimed)
    accuracy = found.baseline.accuracy
    assert isinstance(accuracy, Reading)
    assert (accuracy.passed, accuracy.lost, accuracy.gained) == (True, 0, 0)
    assert accuracy.lines == len(load_texts(samples))
    assert {row.sut.stack for row in found.baseline.table} == {"onnxruntime"}
    key = tmp_path / "key.pem"
    key.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    registered(evidence)
    add = ["baseline", "add", str(tmp_path / "registry.jsonl"), str(evidence), "--key", str(key)]
    assert main(add) == 0
    assert main(["baseline", "compare", str(evidence), str(evidence)]) == 0
    assert main(["uplift", str(evidence)]) == 1
    assert f"factor 1.000: {NO_CANDIDATE}" in capsys.readouterr().out


def test_samples_without_texts_give_no_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_images(tmp_path / "lines.npz", [np.zeros((3, 48, 96), dtype=np.float32)])
    write_recogniser(tmp_path / "reader.onnx")
    plan = short_run_plan(
        "p", cores=(CORE,), zone="UTC", seeds=Seeds(1, 2, 3, 4), task="text_recognition"
    )
    request = {"plan": plan.to_json(), "model": "reader.onnx", "samples": "lines.npz"}
    (tmp_path / "spec.json").write_text(json.dumps(request))
    out = str(tmp_path / "out")
    assert main(["baseline", "measure", str(tmp_path / "spec.json"), "--out", out]) == 1
    assert "no truth to read against" in capsys.readouterr().err


def test_only_stacks_that_read_compete_for_lines() -> None:
    here = [
        StackInfo(name, "1", "d", True, "")
        for name in ("onnxruntime", "openvino", "torch", "llama.cpp")
    ]
    names = tuple(info.name for info in here)
    plan = short_run_plan(
        "p", cores=(0,), zone="UTC", seeds=Seeds(1, 2, 3, 4), stacks=names, task="text_recognition"
    )
    assert {sut.stack for sut in candidates(plan, here)} == set(names) - {"llama.cpp"}


# The mix


def test_a_model_without_a_candidate_counts_at_one_and_takes_nothing(
    recorded: Path, reading: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = recompute(recorded)
    assert alone.uplift is not None
    lines = without_a_claim(reading)
    folders = [str(recorded), str(lines)]
    assert main(["uplift", *folders, "--traffic", "1000", "500", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # One claim was planned, so the family is one: the bound is that of the claim alone.
    (claim,) = found["claims"]
    assert claim["bound"] == claim["lower_95"]
    assert claim["adjusted_p"] == claim["p_value"]
    assert found["kept"] == folders[:1]
    assert found["reasons"][folders[1]] == [NO_CANDIDATE]
    first, second = found["members"]
    assert first["note"] == "kept"
    assert second["note"] == NO_CANDIDATE
    assert (second["uplift"], second["factor"]) == ("0.000000000", "1.000000000")
    assert second["seconds_before"] == second["seconds_after"]
    assert second["energy"] == "not measured"
    read_s = 500 / float(second["baseline_samples_per_second"])
    sentences_s = 1000 / float(first["baseline_samples_per_second"])
    wanted = (sentences_s + read_s) / (sentences_s / (1 + alone.uplift.lower_95) + read_s) - 1
    assert float(found["mix_uplift"]) == pytest.approx(wanted, abs=1e-9)
    assert main(["uplift", *folders, "--traffic", "1000", "500"]) == 0
    printed = capsys.readouterr().out
    assert f"{folders[1]}: {NO_CANDIDATE}" in printed
    assert "0.00%  1.000" in printed
    # Nothing claimed at all: the answer is no, and the mix is what it was.
    assert main(["uplift", folders[1], "--traffic", "7", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["mix_uplift"] == "0.000000000"
    assert main(["uplift", folders[1], "--plots", str(reading / "plots")]) == 2
    assert "plans no claim" in capsys.readouterr().err


def test_whether_a_claim_is_made_is_in_the_signed_plan(reading: Path) -> None:
    """Neither can a failed claim be made none, nor one appear where none was planned."""
    kept = Path(shutil.copytree(reading, reading.with_name("kept")))
    shutil.rmtree(reading / "uplift")
    with pytest.raises(EvidenceError, match="uplift"):
        recompute_member(reading)
    edit(reading / "plan.json", lambda plan: plan.update(claim=False))
    with pytest.raises(EvidenceError, match="aa: was measured, but plan"):
        recompute_member(reading)
    with pytest.raises(EvidenceError, match="no uplift to work out"):
        recompute(reading)
    for name in ("aa", "accuracy", "cache"):
        shutil.rmtree(reading / name)
    with pytest.raises(EvidenceError, match="plan_digest is not that of"):
        recompute_member(reading)
    two = {"lines": recompute(kept), "sentences": recompute(kept)}
    family = recompute_family(two, [1, 1])
    assert all(claim.adjusted_p >= 2 * claim.p_value - 1e-12 for claim in family.claims)
    assert {member.note for member in family.members} <= {"kept", NOT_KEPT}


# A claim for lines, from the recording


def test_a_recorded_claim_for_lines_is_judged_by_reading(read_once: Path) -> None:
    found = recompute(read_once)
    for verdict in (found.accuracy, found.timed_accuracy):
        assert isinstance(verdict, Reading)
        assert verdict.passed
    assert found.timed_accuracy.samples > 100
    assert found.cache is not None
    assert isinstance(found.cache.answers, Reading)
    assert found.cache.answers.passed
    again = CacheGuard.from_dict(json.loads(json.dumps(found.cache.to_dict())))
    assert again.to_dict() == found.cache.to_dict()
    assert found.second is not None
    assert found.second.precision.passed
    assert found.second.conditions.slower is not None
    # No counter was there: said so, and no zero.
    assert found.to_dict()["energy"]["state"] == "not measured"
    # Whether the recording machine was quiet enough is its own affair; the answer is one.
    assert found.decision.kept == (not found.decision.reasons)
    assert len(found.log_ratios) == 6


def rewrite_answers(run: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Other answers in a run's log, every digest made to fit."""
    path = run / "mlperf_log_accuracy.json"
    records = document(path)
    change(records)
    path.write_text(json.dumps(records))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(run / "result.json", lambda result: result["files"].update({path.name: digest}))


def misread(records: list[dict[str, Any]]) -> None:
    for record in records:
        record["data"] = b"0".hex()


def test_a_recogniser_that_misreads_when_timed_is_not_kept(reading: Path) -> None:
    entries = document(reading / "uplift/pairs.json")["pairs"]
    for entry in entries[1:3]:
        rewrite_answers(reading / "uplift/runs" / entry["other"], misread)
    found = recompute(reading)
    assert found.accuracy.passed
    assert not found.timed_accuracy.passed
    assert any("answers otherwise when timed" in reason for reason in found.decision.reasons)


def test_a_recogniser_that_guesses_at_new_lines_is_not_kept(reading: Path) -> None:
    for entry in document(reading / "cache/pairs.json")["pairs"]:
        rewrite_answers(reading / "cache/runs" / entry["base"], misread)
    found = recompute(reading)
    assert any("does not answer what it has not seen" in text for text in found.decision.reasons)


def test_answers_that_cannot_be_compared_are_refused_with_a_reason(
    reading: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A truth of fewer lines than were read, every digest made to fit."""
    truth = reading / "accuracy/truth.json"
    edit(truth, lambda told: told["texts"].pop())
    digest = hashlib.sha256(truth.read_bytes()).hexdigest()
    edit(reading / "accuracy/accuracy.json", lambda told: told.update(truth_sha256=digest))
    assert main(["uplift", str(reading)]) == 1
    assert "accuracy: outputs cannot be compared (lines: got 48" in capsys.readouterr().err


EDITS: list[tuple[str, Callable[[Any], None], str]] = [
    ("baseline/truth.json", lambda d: d["texts"].__setitem__(0, "0"), "SHA-256 is not that of"),
    ("accuracy/truth.json", lambda d: d["texts"].__setitem__(0, "0"), "SHA-256 is not that of"),
    ("baseline/truth.json", lambda d: d.update(samples_sha256="0" * 64), "was asked from"),
    ("baseline/truth.json", lambda d: d.update(texts=[]), "not a document"),
    ("baseline/baseline.json", lambda d: d.pop("truth_sha256"), "truth_sha256 is not what"),
    ("baseline/baseline.json", lambda d: d["table"][0].update(accuracy=None), "not as recorded"),
    ("baseline/baseline.json", lambda d: d["accuracy"].update(lost=1), "accuracy"),
    ("accuracy/accuracy.json", lambda d: d.update(exact_lines=1), "accuracy logs say"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "reason"), EDITS, ids=range(len(EDITS)))
def test_edited_evidence_of_lines_is_refused(
    reading: Path, name: str, change: Callable[[Any], None], reason: str
) -> None:
    edit(reading / name, change)
    with pytest.raises(EvidenceError, match=reason):
        recompute(reading)


# The guards themselves


def test_five_lines_lost_and_none_gained_is_the_smallest_loss_shown() -> None:
    assert [shown_worse(lost, 0) for lost in range(7)] == [False] * 5 + [True] * 2
    assert not shown_worse(5, 1)
    assert shown_worse(7, 1)
    assert not shown_worse(0, 9)


def lines(*found: str, truth: str = "abcd", reference: str = "abcd") -> list[Line]:
    return [Line((0, place), truth, reference, text) for place, text in enumerate(found)]


def test_reading_is_held_to_the_truth_and_to_the_reference() -> None:
    good = reading_guard(lines(*["abcd"] * 30, *["abcx"] * 2), FLOOR)
    assert (good.exact_lines, good.character_errors, good.lost, good.gained) == (30, 2, 2, 0)
    assert good.passed
    # Within the floor, yet five lines worse than the reference and none better.
    worse = reading_guard(lines(*["abcd"] * 45, *["abcx"] * 5), FLOOR)
    assert worse.lost == 5
    assert worse.worse
    assert not worse.passed
    # As bad as the reference is still below the floor.
    same = reading_guard(lines(*["abxx"] * 9, reference="abxx"), FLOOR)
    assert (same.lost, same.gained, same.passed) == (0, 0, False)
    assert reading_guard(lines("ab cd"), FLOOR).passed
    assert not reading_guard((), FLOOR).passed
    assert Reading.from_dict(json.loads(json.dumps(worse.to_dict()))) == worse
    assert "45 of 50 lines exact" in worse.words


def test_a_line_asked_often_counts_once_against_the_reference() -> None:
    often = [Line((0, 0), "abcd", "abcd", text) for text in ("abcx",) * 9 + ("abcd",)]
    found = reading_guard(often, FLOOR)
    assert (found.lines, found.lost) == (10, 1)
    # Of two systems the same line is two.
    other = [Line((1, 0), "abcd", "abcd", "abcx")]
    assert reading_guard(often + other, FLOOR).lost == 2


def test_texts_show_no_rounding_so_only_a_pinned_stack_passes() -> None:
    assert pinned_precision("openvino").passed
    refused = pinned_precision("kernelgen")
    assert not refused.passed
    assert "how many bits" in refused.reason


def test_fresh_lines_are_new_words_of_the_same_width() -> None:
    held_out = text_lines(3, 10)
    images = [scaled(line) for line in held_out.lines]
    fresh, texts, repeated = make_lines(images, set(held_out.texts), 16)
    assert len(repeated) == DISTINCT
    assert {one.tobytes() for one in repeated} <= {one.tobytes() for one in images}
    assert [one.shape for one in fresh] == [repeated[i % DISTINCT].shape for i in range(16)]
    assert len({one.tobytes() for one in fresh}) == len(set(texts)) == 16
    assert not set(texts) & set(held_out.texts)
    again = make_lines(images, set(held_out.texts), 16)
    assert again[1] == texts
    assert all(np.array_equal(one, two) for one, two in zip(fresh, again[0], strict=True))
    with pytest.raises(LibraryError, match="wanted 8"):
        make_lines(images[:7], set(), 8)
    with pytest.raises(LibraryError, match="wanted \\(3, 48\\)"):
        make_lines([np.zeros((3, 32, 9), dtype=np.float32)] * 9, set(), 8)


def test_one_image_may_be_asked_many_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = [rng.random((3, 4, width), dtype=np.float32) for width in (5, 7)]
    write_images(tmp_path / "l.npz", images, ["a", "b", "a"], picks=[0, 1, 0], compressed=True)
    found = load_images(tmp_path / "l.npz")
    assert [one.tobytes() for one in found] == [images[pick].tobytes() for pick in (0, 1, 0)]
    assert load_texts(tmp_path / "l.npz") == ["a", "b", "a"]
    write_images(tmp_path / "l.npz", images, picks=[2])
    with pytest.raises(LibraryError, match="picks an image"):
        load_images(tmp_path / "l.npz")
    with pytest.raises(LibraryError, match="wanted 1, as samples"):
        write_images(tmp_path / "l.npz", images, ["a", "b"], picks=[0])
