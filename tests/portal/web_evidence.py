"""What engines would have left behind: a machine, runs with their logs, pairs, trials, usage lines.

In: a folder, chosen figures. Out: files and rows in the engines' own shape, for the pages to show.
Nothing here is measured.
"""

import json
import math
from pathlib import Path
from typing import Any

from kernelgen.machine import Machine
from portal import workspace
from portal.runs.models import Tuning, TuningEvent
from portal.runs.services import tuning_events_add

RATES = (
    (1, "padded", 16, "612.4"), (2, "padded", 16, "884.1"), (1, "single", 1, "401.9"),
    (2, "single", 1, "655.0"), (1, "grouped", 16, "703.6"), (2, "grouped", 16, "1012.5"),
)  # fmt: skip


def machine(mark: str, l3_mebibytes: int) -> Machine:
    return Machine.from_dict(
        {
            "cpu_model": "Example CPU 6430 @ 2.10GHz", "architecture": "x86_64",
            "isa": ["avx2", "avx512f", "avx512vnni", "fma"], "cores": 2, "l1d_bytes": 49152,
            "l2_bytes": 2097152, "l3_bytes": l3_mebibytes * 2**20, "memory_bytes": 24 * 2**30,
            "kernel": "6.1.0-27-amd64", "gpus": [], "fingerprint": mark * 32,
            "peak_gflops_per_core": 118.4, "peak_gbps_per_core": 12.7,
        }
    )  # fmt: skip


def run(folder: Path, run_id: str, rate: float, at: str = "2026-08-03T09:20:12Z") -> None:
    """A run's files in the shape LoadGen leaves them; `at` is what its log says of the time."""
    values = {
        "loadgen_version": "5.1.3 @ 0123456789", "effective_scenario": "Offline",
        "test_datetime": at, "effective_min_duration_ms": 2000,
        "result_validity": "VALID",
        "result_samples_per_second": rate, "result_query_count": 1, "num_errors": 0,
        "num_warnings": 0,
    }  # fmt: skip
    lines = [
        ":::MLLOG " + json.dumps({"key": key, "value": value, "metadata": {"is_error": False}})
        for key, value in values.items()
    ]
    result = {"run_id": run_id, "state": "VALID", "samples_per_second": str(rate),
              "started_at": at}  # fmt: skip
    base = folder / "runs" / run_id
    workspace.write(base / "mlperf_log_detail.txt", ("\n".join(lines) + "\n").encode())
    workspace.write(base / "result.json", json.dumps(result).encode())


def baseline_document(evidence: Path) -> dict[str, Any]:
    table, accuracy = [], {"min_cosine": "0.99999991", "mean_cosine": "0.99999999",
                           "max_abs_error": "0.0000011", "samples": 320, "floor": "0.9999",
                           "passed": True}  # fmt: skip
    ranked = sorted(RATES, key=lambda row: -float(row[3]))[:3]
    for number, row in enumerate(RATES):
        threads, arrangement, batch, rate = row
        finals = [f"final-{number:02d}-r{turn}" for turn in range(3)] if row in ranked else []
        checked = f"accuracy-{number:02d}" if row in ranked else None
        names = [f"screen-{number:02d}", *finals, *([checked] if checked else [])]
        for run_id in names:
            run(evidence / "baseline", run_id, float(rate))
        table.append(
            {
                "sut": {"stack": "onnxruntime", "threads": threads, "instances": 1,
                        "arrangement": arrangement, "batch": batch, "graph_optimization": "all",
                        "precision": "float32", "package": None},
                "state": "VALID", "samples_per_second": rate,
                "screening_run": f"screen-{number:02d}", "final_runs": finals,
                "accuracy_run": checked, "accuracy": accuracy if finals else None,
            }
        )  # fmt: skip
    best = table[-1]
    return {
        "schema": "ignition.baseline.v1", "stack": "onnxruntime", "version": "1.24.1",
        "digest": "0c" * 32, "sut": best["sut"], "samples_per_second": "1012.5",
        "runs": best["final_runs"], "accuracy": accuracy, "accuracy_run": best["accuracy_run"],
        "reference_run": "reference", "policy": "fixed", "table": table, "stacks": [],
        "frozen_at": "2026-08-03T09:30:00Z", "as_found": table[0],
    }  # fmt: skip


def pairs(evidence: Path, part: str, gains: tuple[float, ...]) -> list[dict[str, Any]]:
    rows, entries = [], []
    for number, gain in enumerate((0.21, *gains)):
        arms = {}
        for arm, rate in (("base", 1010.0 + number), ("other", (1010.0 + number) * (1 + gain))):
            arms[arm] = f"{part}-p{number:02d}-a0-{arm}"
            run(evidence / part, arms[arm], round(rate, 4))
        entries.append({"pair": number, "warm_up": number == 0, "first": "base", **arms})
        if number:
            rows.append({**arms, "log_ratio": f"{math.log1p(gain):.12g}"})
    workspace.write(evidence / part / "pairs.json", json.dumps({"pairs": entries}).encode())
    return rows


def trials(tuning: Tuning) -> None:
    operators = ("gemm_bias", "attention", "gemm_bias_gelu")
    rows = [
        TuningEvent(tuning=tuning, seq=0, kind="started", trial=0, text="search", elapsed_s=0.0)
    ]
    for trial in range(1, 61):
        operator = operators[trial % 3]
        ratio = (1.0 + 0.11 * math.exp(-trial / 17)) if trial % 4 != 1 else 0.93
        wrong = trial % 7 == 5
        seen = {"tuning": tuning, "operator": operator, "trial": trial, "elapsed_s": 1.5 * trial}
        text = "refused: wrong output" if wrong else f"tile {4 + trial % 4}x{16 * (1 + trial % 2)}"
        rows.append(
            TuningEvent(
                seq=len(rows), kind="trial", ratio=None if wrong else ratio, text=text, **seen
            )
        )
        if ratio > 1.004 and not wrong:
            rows.append(
                TuningEvent(seq=len(rows), kind="kept", ratio=ratio, text="new incumbent", **seen)
            )
    tuning_events_add(tuning=tuning, events=rows)


def usage_lines() -> list[str]:
    lines = [
        json.dumps(
            {
                "specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1",
                "id": f"2026-09-{day:02d}", "time": f"2026-09-{day:02d}T10:00:00Z",
                "data": {"model": "text-encoder", "system": "search-eu-1",
                         "samples": 61_000_000_000 + 1_000_003 * day},
            }
        )
        for day in range(1, 29)
    ]  # fmt: skip
    changed = json.loads(lines[4])
    changed["data"]["samples"] = 5
    return [*lines, lines[3], json.dumps(changed), "not an event"]
