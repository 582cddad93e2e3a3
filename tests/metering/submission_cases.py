"""Inputs of the submission tests: a registry record, recorded runs, and a forger's best work.

``recorded_round_runs.tar.xz`` holds two runs really made once with the settings of MLPerf Inference
v6.1: a SingleStream performance run of 600 seconds and an accuracy run, of a sentence encoder on 43
sentences. 43 is the size of the round's smallest data set, so the round's own rules can be met in a
test; the sentences are not that data set, and nothing made from them is a submission.
"""

from __future__ import annotations

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelgen.machine import Machine, fingerprint_of
from metering.loadgen.files import sha256_bytes

RECORDED = Path(__file__).with_name("recorded_round_runs.tar.xz")
RESULT = "open/Lumen/results/search-node-r3/minilm/SingleStream"
PERFORMANCE, ACCURACY = f"{RESULT}/performance/run_1", f"{RESULT}/accuracy"
DETAIL, SUMMARY = f"{PERFORMANCE}/mlperf_log_detail.txt", f"{PERFORMANCE}/mlperf_log_summary.txt"
DESCRIPTION = "open/Lumen/systems/search-node-r3.json"
SOURCE = "open/Lumen/src/minilm/README.md"
MAPPING = "open/Lumen/model_mapping.json"

Files = dict[str, bytes]


def system_record() -> dict[str, Any]:
    """What the registry exports of a system."""
    machine = Machine(
        cpu_model="Example CPU",
        architecture="x86_64",
        isa=("avx2", "fma"),
        cores=2,
        l1d_bytes=49152,
        l2_bytes=2097152,
        l3_bytes=0,
        memory_bytes=25 * 2**30,
        kernel="6.1.0",
        gpus=(),
        fingerprint="",
        peak_gflops_per_core=184.25,
        peak_gbps_per_core=None,
    )
    machine = replace(machine, fingerprint=fingerprint_of(machine))
    return {"name": "search node", "revision": 3, "machine": machine.to_dict()}


def extract_recorded(folder: Path) -> Path:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder


def request(folder: Path, **fields: Any) -> Path:
    """Write a request for the recorded runs in ``folder``; keyword arguments replace fields."""
    (folder / "system.json").write_text(json.dumps(system_record()))
    (folder / "accuracy.txt").write_text("Accuracy: mean = 0.8600, kidney = 0.9300\n")
    value = {
        "schema": "ignition.submission.v1",
        "round": "v6.1",
        "submitter": "Lumen",
        "system": "system.json",
        "model": "minilm",
        "benchmark": "3d-unet-99",
        "status": "available",
        "system_type": "edge",
        "input_data_types": "int64 token ids",
        "retraining": "no",
        "weight_transformations": "none",
        "results": [
            {
                "performance": "performance",
                "accuracy": "accuracy",
                "accuracy_report": "accuracy.txt",
            }
        ],
        **fields,
    }
    path = folder / "request.json"
    path.write_text(json.dumps({name: item for name, item in value.items() if item is not None}))
    return path


def edit(files: Files, path: str, pattern: str, replacement: str) -> Files:
    """``files`` with one place of one file changed; fails when there is no such place."""
    text, count = re.subn(pattern, replacement, files[path].decode(), count=1)
    assert count == 1, f"{path}: nothing matches {pattern}"
    return {**files, path: text.encode()}


def log_value(files: Files, path: str, key: str, value: str) -> Files:
    """Give one key of a detail log another value, as JSON text."""
    return edit(files, path, rf'("key": "{re.escape(key)}", "value": )[^,]+', rf"\g<1>{value}")


def field(files: Files, path: str, name: str, value: Any) -> Files:
    """Give one field of a JSON file another value; None removes it."""
    document = json.loads(files[path])
    document[name] = value
    if value is None:
        del document[name]
    return {**files, path: json.dumps(document).encode()}


def without(files: Files, path: str) -> Files:
    assert path in files
    return {name: data for name, data in files.items() if name != path}


def forge(files: Files, result: str = RESULT) -> Files:
    """Write the digests in the README anew, so that no edit is found by its digest alone."""
    readme = f"{result}/README.md"
    if not files.get(readme):
        return files

    def digest(match: re.Match[str]) -> str:
        path = match[2]
        return f"{sha256_bytes(files[path])}  {path}" if path in files else match[0]

    text = re.sub(r"^([0-9a-f]{64})  (\S+)$", digest, files[readme].decode(), flags=re.M)
    return {**files, readme: text.encode()}
