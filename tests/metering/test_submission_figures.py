"""Relations between figures: every real log keeps them, an edited one breaks them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from metering.__main__ import main
from metering.loadgen import detail_log
from metering.loadgen.verdict import DETAIL, SUMMARY
from metering.submission import V6_1
from metering.submission.figures import disagreements, impossible
from metering.submission.logs import performance
from tests.metering.submission_cases import edit, log_value, request

EVIDENCE = Path(__file__).parent / "measure" / "recorded_evidence.tar.xz"


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evidence really measured once: Offline runs of a stock stack and of a kernel package."""
    folder = tmp_path_factory.mktemp("evidence")
    with tarfile.open(EVIDENCE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "evidence"


def test_every_recorded_run_keeps_every_relation(evidence: Path) -> None:
    checked = 0
    for path in sorted(evidence.rglob(DETAIL)):
        log = detail_log.parse(path.read_bytes())
        if log.values.get("result_validity") == "VALID":
            assert impossible(log) == []
            assert disagreements(log, path.with_name(SUMMARY).read_bytes()) == []
            checked += 1
    assert checked >= 20


OFFLINE = [
    ("result_samples_per_second", "99999", "result_samples_per_second 99999 does not follow from"),
    ("result_max_latency_ns", "1", "latency percentiles are not in order"),
    ("result_max_latency_ns", "9000000000000", "by its own clock"),
    ("result_mean_latency_ns", "1", "mean latency 1 ns is not between"),
    ("generated_samples_per_query", "999999", "does not follow from 999999 samples"),
    ("result_50.00_percentile_latency_ns", "1", "latency percentiles are not in order"),
    ("result_90.00_percentile_latency_ns", '"fast"', "a figure is missing or is no number"),
    ("power_end", '"yesterday"', "a figure is missing or is no number"),
]


@pytest.mark.parametrize(("key", "value", "reason"), OFFLINE)
def test_an_edited_offline_figure_breaks_a_relation(
    evidence: Path, key: str, value: str, reason: str
) -> None:
    # The research's own example: 407.5 samples/s became 99999 and the official check passed.
    path = evidence / "uplift/runs/uplift-p00-a0-base" / DETAIL
    edited = log_value({DETAIL: path.read_bytes()}, DETAIL, key, value)[DETAIL]
    found = impossible(detail_log.parse(edited))
    assert any(reason in line for line in found), found


def test_a_whole_data_set_goes_into_an_offline_query_of_the_round(evidence: Path) -> None:
    folder = evidence / "uplift/runs/uplift-p00-a0-base"
    files = {f"run_1/{name}": (folder / name).read_bytes() for name in (DETAIL, SUMMARY)}
    files = log_value(files, f"run_1/{DETAIL}", "effective_samples_per_query", "9000")
    wanted = {"bert-99": "wanted at least 10833", "resnet": "wanted at least 24576"}
    for name, reason in wanted.items():
        found, result = performance("run_1", "Offline", files, None, V6_1, V6_1.benchmarks[name])
        assert result is None
        assert any("effective_samples_per_query" in f.reason and reason in f.reason for f in found)


def test_a_missing_figure_is_a_reason(evidence: Path) -> None:
    path = evidence / "uplift/runs/uplift-p00-a0-base" / DETAIL
    gone = edit({DETAIL: path.read_bytes()}, DETAIL, "result_mean_latency_ns", "result_mean_l")
    assert "KeyError" in impossible(detail_log.parse(gone[DETAIL]))[0]


def test_an_evidence_folder_of_the_product_becomes_a_rehearsal(
    evidence: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {
        "performance": str(evidence / "uplift/runs/uplift-p00-a0-other"),
        "accuracy": str(evidence / "accuracy/runs/candidate"),
        "reference": str(evidence / "accuracy/runs/reference"),
    }
    path = request(
        tmp_path,
        benchmark="unlisted",
        rehearsal_plan=str(evidence / "plan.json"),
        results=[sources],
    )
    out = tmp_path / "folder"
    assert main(["submission", "build", str(path), "--out", str(out)]) == 0, capsys.readouterr()
    arguments = ["submission", "check", str(out), "--plan", str(evidence / "plan.json")]
    stored = [f"--run={sources[name]}" for name in ("performance", "accuracy")]
    assert main([*arguments, *stored]) == 0
    assert "Offline: result_samples_per_second" in capsys.readouterr().out
    # The plan's floor bounds a rehearsal's accuracy.
    text = next(out.rglob("accuracy.txt"))
    text.write_text(text.read_text().replace("worst=0.99", "worst=0.11", 1))
    assert main(arguments) == 1
    assert "the plan wants 0.9999" in capsys.readouterr().out
