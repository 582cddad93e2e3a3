"""Builds a whole evidence folder by really measuring: sweep, A/A, uplift, cache test, accuracy.

Used by the slow tests, and by ``python -m tests.metering.measure.evidence_chain OUT.tar.xz`` to
record the archive that the fast tests check, with ``recogniser`` after it the one of a model that
reads lines. It takes a minute of a quiet machine.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from metering import baseline
from metering.loadgen import SutSpec
from metering.plan import MeasurementPlan, Seeds, SweepSpace, short_run_plan
from metering.uplift import cache, fresh_inputs
from metering.uplift.cache import measure_cache
from metering.uplift.measurement import measure_aa, measure_accuracy, measure_uplift
from tests.metering.measure.conftest import write_encoder, write_samples
from tests.metering.measure.tiny_recogniser import glyph_lines, write_lines, write_recogniser

CANDIDATE = SutSpec("onnxruntime", arrangement="grouped", batch=64)
LINES = 48


def chain_plan(task: str = "embedding") -> MeasurementPlan:
    """The shortest plan there is, on one core. Its sweep knows single and padded batches only, so
    that a grouped one can stand in for a faster kernel."""
    import dataclasses

    seeds = Seeds(7, 2085463073848966840, 2747215439041700203, 16159082839903944936)
    plan = short_run_plan(
        "test-plan",
        cores=(0,),
        zone="UTC",
        seeds=seeds,
        run_seconds=1,
        pairs=6,
        aa_pairs=6,
        task=task,
    )
    space = SweepSpace(
        stacks=("onnxruntime", "openvino"),
        threads=(1,),
        arrangements=("single",),
        batches=(1,),
        graph_optimizations=("none", "all"),
    )
    return dataclasses.replace(plan, sweep=space)


def build(evidence: Path, model: Path, samples: Path, plan: MeasurementPlan | None = None) -> None:
    evidence.mkdir(parents=True, exist_ok=True)
    plan = plan or chain_plan()
    (evidence / "plan.json").write_text(json.dumps(plan.to_json(), indent=1))
    as_found = SutSpec("onnxruntime", arrangement="padded", batch=2, graph_optimization="basic")
    swept = baseline.sweep(plan, model, samples, evidence / "baseline", as_found=as_found)
    frozen = baseline.freeze(swept, frozen_at=datetime.now(UTC))
    baseline.save(frozen, evidence / "baseline")
    measure_aa(plan, frozen, model=model, samples=samples, evidence=evidence)
    measure_uplift(plan, frozen, CANDIDATE, model=model, samples=samples, evidence=evidence)
    measure_cache(plan, frozen.sut, CANDIDATE, model=model, samples=samples, evidence=evidence)
    measure_accuracy(plan, frozen, CANDIDATE, model=model, samples=samples, evidence=evidence)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def record(archive: Path, task: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, samples = folder / "model.onnx", folder / "samples.npz"
        if task == "text_recognition":
            write_recogniser(model)
            write_lines(samples, seed=1, count=LINES)
            # Few and small, since the inputs of the cache test lie in the archive.
            fresh_inputs.text_lines = glyph_lines
            cache._SAMPLES["text_recognition"] = (LINES // 2, LINES // 2)
        else:
            write_encoder(model)
            write_samples(samples)
        build(folder / "evidence", model, samples, chain_plan(task))
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(folder / "evidence", "evidence", filter=_plain)


if __name__ == "__main__":
    record(Path(sys.argv[1]), "text_recognition" if "recogniser" in sys.argv[2:] else "embedding")
