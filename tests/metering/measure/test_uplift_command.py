"""``python -m metering uplift``: the stored figures to the last digit, from logs alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metering.__main__ import main
from metering.evidence import recompute
from metering.mix import recompute_family
from metering.uplift import estimate

ROOT = Path(__file__).resolve().parents[3]
STORED = Path(__file__).with_name("recorded_uplift.json")


def test_it_prints_the_stored_result_to_the_last_digit(recorded: Path) -> None:
    """A program of its own, in an empty environment: no database, no network, no working folder."""
    done = subprocess.run(
        [sys.executable, "-m", "metering", "uplift", str(recorded), "--json"],
        cwd=recorded,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == STORED.read_text()


def test_nothing_but_logs_and_plan_is_read(recorded: Path, tmp_path: Path) -> None:
    """Figures the product wrote down play no part: there are none to read but those checked."""
    names = {path.name for path in recorded.rglob("*") if path.is_file()}
    assert names == {
        "plan.json", "baseline.json", "sweep.json", "pairs.json", "accuracy.json", "result.json",
        "spec.json", "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json",
    }  # fmt: skip
    copy = Path(shutil.copytree(recorded, tmp_path / "copy"))
    (copy / "baseline/sweep.json").unlink()
    assert recompute(copy).to_dict() == json.loads(STORED.read_text())


def rate(run: Path) -> None:
    log = run / "mlperf_log_detail.txt"
    told = log.read_text().split('"result_samples_per_second", "value": ')[1].split(",")[0]
    log.write_text(log.read_text().replace(told, f"{float(told) * 1.1:.6g}"))


def error_line(run: Path) -> None:
    log = run / "mlperf_log_detail.txt"
    log.write_text(log.read_text().replace('"is_error": false', '"is_error": true', 1))


def cut(run: Path) -> None:
    log = run / "mlperf_log_detail.txt"
    log.write_text(log.read_text()[:-300])


def result(run: Path) -> None:
    document = json.loads((run / "result.json").read_text())
    document["samples_per_second"] = "99999.9"
    (run / "result.json").write_text(json.dumps(document))


def gone(run: Path) -> None:
    shutil.rmtree(run)


@pytest.mark.parametrize("part", ["baseline", "aa", "uplift"])
@pytest.mark.parametrize("change", [rate, error_line, cut, result, gone])
def test_an_edited_log_ends_with_one_and_a_reason(
    evidence: Path,
    part: str,
    change: Callable[[Path], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = sorted(path for path in (evidence / part / "runs").iterdir())
    run = next(path for path in reversed(runs) if not path.name.startswith(("acc", "ref")))
    change(run)
    assert main(["uplift", str(evidence), "--json"]) == 1
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert told["kept"] is False
    assert told["reasons"][0].startswith("evidence: ")
    assert part in told["reasons"][0] or run.name in told["reasons"][0]
    assert printed.err.count("\n") == 1


def slower(folder: Path, by: float) -> None:
    """Another model's evidence: all candidate runs slower, every figure and digest made to fit."""
    import hashlib

    for entry in json.loads((folder / "uplift/pairs.json").read_text())["pairs"]:
        run = folder / "uplift/runs" / entry["other"]
        log = run / "mlperf_log_detail.txt"
        stored: dict[str, Any] = json.loads((run / "result.json").read_text())
        text = log.read_text()
        old = stored["latency"]["max_ns"]
        new = round(old * by)
        told = f"{stored['sample_count'] * 1e9 / new:.6g}"
        text = text.replace(f'"value": {old}', f'"value": {new}')
        text = text.replace(stored["samples_per_second"], told)
        log.write_text(text)
        stored["latency"] = {
            name: new if value == old else value for name, value in stored["latency"].items()
        }
        stored["samples_per_second"] = told
        stored["files"][log.name] = hashlib.sha256(log.read_bytes()).hexdigest()
        (run / "result.json").write_text(json.dumps(stored))


def test_several_folders_are_one_family(
    recorded: Path, evidence: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The honest 1.0 of a second model counts in the correction and in the mix."""
    single = recompute(recorded)
    assert single.uplift is not None
    slower(evidence, 1 + single.uplift.point)
    assert main(["uplift", str(recorded), str(evidence), "--traffic", "1000", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["claims"]
    assert found["kept"] == [str(recorded)]
    assert first["billable"]
    assert not second["shown"]
    assert float(first["bound"]) <= float(first["lower_95"])
    assert float(first["adjusted_p"]) == pytest.approx(2 * float(first["p_value"]))
    assert found["mix_uplift"] == first["bound"]
    assert "no claim among 2" in found["reasons"][str(evidence)][-1]
    assert main(["uplift", str(recorded), str(evidence), "--traffic", "1000", "1000"]) == 0
    printed = capsys.readouterr().out
    mix = float(printed.split("mix")[1].split("%")[0]) / 100
    assert 0 < mix < float(first["bound"])


def test_a_measurement_that_broke_off_still_counts_as_a_claim(
    recorded: Path, evidence: Path
) -> None:
    document = json.loads((evidence / "uplift/pairs.json").read_text())
    last = document["pairs"].pop()
    (evidence / "uplift/pairs.json").write_text(json.dumps(document))
    for arm in ("base", "other"):
        shutil.rmtree(evidence / "uplift/runs" / last[arm])
    whole, broken = recompute(recorded), recompute(evidence)
    found = recompute_family({"whole": whole, "broken": broken}, [1, 1])
    (claim,) = found.claims
    assert claim.adjusted_p == pytest.approx(2 * claim.p_value)
    assert "broken" not in found.kept
    assert claim.estimate == estimate(whole.log_ratios)


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (["{}", "{}"], "named twice"),
        (["{}", "--traffic", "1", "2"], "for each of 1 folders"),
        (["{}", "--traffic", "0"], "not all 0"),
        (["{}", "--traffic", "-1"], "from 0"),
    ],
)
def test_wrong_use_is_named(
    recorded: Path, extra: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["uplift", *[word.format(recorded) for word in extra]]) == 2
    assert reason in capsys.readouterr().err
