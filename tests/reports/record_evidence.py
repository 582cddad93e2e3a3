"""Record a small, real evidence folder: a sweep, an A/A, an uplift and an accuracy run.

`python -m tests.reports.record_evidence OUT.tar.xz` measures for some minutes with LoadGen, a stock
ONNX Runtime and a kernel package searched for ten seconds, and packs what the verifier needs. The
report tests read that recording, so that they are fast and always look at genuine logs.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from kernelgen import describe, optimize, workload, zoo
from kernelgen.package import copy_evidence
from metering import canonical
from metering.baseline import freeze, save, sweep
from metering.evidence import recompute
from metering.plan import CosineFloor, MeasurementPlan
from metering.plan.measurement import METHOD_VERSION, Seeds, SweepSpace
from metering.uplift.cache import measure_cache
from metering.uplift.measurement import (
    kernel_sut,
    measure_aa,
    measure_accuracy,
    measure_uplift,
)

ZONE = "Europe/Berlin"
SAMPLES = 32
PRICE_PER_CORE_HOUR = Decimal("0.048")


def plan() -> MeasurementPlan:
    """The shortest plan there is, on one core, against the slowest stock set-up there is:
    the gain must stand out of the noise of whatever machine records this."""
    return MeasurementPlan(
        plan_id="P-2026-11-A",
        method_version=METHOD_VERSION,
        option="B",
        scenario="Offline",
        precision="float32",
        cores=(0,),
        run_seconds=1,
        pairs=6,
        aa_pairs=6,
        minimum_effect=Decimal("0.02"),
        accuracy_floor=CosineFloor(Decimal("0.999")),
        seeds=Seeds(order=7, qsl=11, sample_index=13, schedule=17),
        sweep=SweepSpace(("onnxruntime",), (1,), ("padded",), (64,), ("none",)),
        held_out_fraction=Decimal("0.2"),
        search_budget_s=10,
        short_run=True,
        zone=ZONE,
        rounding="ROUND_HALF_UP",
    )


def record(evidence: Path, scratch: Path) -> None:
    """Measure into `evidence`; models and the package stay in `scratch`."""
    chosen = plan()
    model = zoo.fetch("paraphrase-minilm-l3", scratch / "cache")
    tokenizer = zoo.fetch("minilm-tokenizer", scratch / "cache")
    ids = workload.tokenize(workload.docstring_sentences(SAMPLES), tokenizer, max_tokens=64)
    samples = scratch / "samples.npz"
    workload.save_samples(samples, ids)
    evidence.mkdir(parents=True)
    (evidence / "plan.json").write_bytes(canonical.dumps(chosen.to_json()))
    machine = describe()
    system = {"name": "edge-box-7", "revision": "B", "machine": machine.to_dict()}
    (evidence / "system.json").write_text(json.dumps(system, sort_keys=True))
    mix = {"length_histogram": workload.length_histogram(ids), "samples": SAMPLES}
    (evidence / "mix.json").write_text(json.dumps(mix, sort_keys=True))
    measured = sweep(chosen, model, samples, evidence / "baseline")
    baseline = freeze(measured, frozen_at=datetime.now(UTC))
    save(baseline, evidence / "baseline")
    package = scratch / "package"
    optimize(
        model,
        out=package,
        budget_s=float(chosen.search_budget_s),
        samples=ids,
        machine=machine,
        price_per_core_hour=PRICE_PER_CORE_HOUR,
        currency="EUR",
    )
    copy_evidence(package, evidence / "kernel")
    candidate = kernel_sut(chosen, package)
    inputs = {"model": model, "samples": samples, "evidence": evidence}
    measure_aa(chosen, baseline, **inputs)
    measure_uplift(chosen, baseline, candidate, **inputs)
    measure_cache(chosen, baseline.sut, candidate, **inputs)
    measure_accuracy(chosen, baseline, candidate, **inputs)


def main() -> int:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        evidence = Path(temporary) / "evidence"
        record(evidence, Path(temporary) / "scratch")
        found = recompute(evidence)
        print(json.dumps(found.to_dict(), indent=1))
        with tarfile.open(target, "w:xz") as made:
            for path in sorted(evidence.rglob("*")):
                if path.is_file():
                    made.add(path, path.relative_to(evidence).as_posix())
    print(f"{target}: {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
