"""Step "measure": A/A gate, interleaved pairs, cache test, accuracy; then all figures from logs.

In: the frozen baseline, a kernel package, held-out samples. Out: one Measurement row whose
figures are recomputed from the evidence folder exactly as a verifier does it. A host that is too
noisy and a kernel that is no faster are results too: not kept, with the reason.
"""

import math
import shutil
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from kernelgen.package import copy_evidence
from metering.baseline import load
from metering.evidence import Recomputed, demands_cache_test, recompute
from metering.plan import MeasurementPlan
from metering.uplift import Pair, PairedRuns, load_paired
from metering.uplift.cache import cache_pairs, measure_cache
from metering.uplift.measurement import kernel_sut, measure_aa, measure_accuracy, measure_uplift
from portal.accounts.access import Actor
from portal.runs.models import KernelPackage, Measurement
from portal.runs.pipeline.baseline import require_this_machine
from portal.runs.pipeline.evidence import measurement_id, write_agreement
from portal.runs.services import MeasuredFigures, measurement_open, measurement_record
from portal.workspace import absolute, sha256_file

Line = Callable[[str], None]
ZERO = "0.000000000"


def measure_package(*, actor: Actor, package: KernelPackage, line: Line) -> Measurement:
    """Return the finished measurement of a package, doing what is still missing."""
    baseline = package.tuning.baseline
    version = baseline.contract_version
    evidence = write_agreement(version)
    measurement = measurement_open(
        actor=actor,
        contract_version=version,
        baseline=baseline,
        package=package,
        evidence=evidence,
        measurement_id=measurement_id(version),
    )
    if measurement.state != Measurement.State.DRAFT:
        return measurement
    require_this_machine(version)
    plan = MeasurementPlan.from_json(version.plan)
    folder = absolute(package.path)
    _copy_kernel(folder, evidence / "kernel", package.manifest_sha256)
    frozen = load(evidence / "baseline")
    candidate = kernel_sut(plan, folder)
    given: dict[str, Any] = {
        "model": absolute(version.mix.model.path),
        "samples": absolute(version.mix.held_out_path),
        "evidence": evidence,
    }
    measure_aa(plan, frozen, **given, on_pair=_told("A/A", plan.aa_pairs, line))
    measure_uplift(plan, frozen, candidate, **given, on_pair=_told("pair", plan.pairs, line))
    if demands_cache_test(plan):
        told = _told("cache test", cache_pairs(plan), line)
        measure_cache(plan, frozen.sut, candidate, **given, on_pair=told)
    line("accuracy against the baseline's outputs on held-out sentences")
    measure_accuracy(plan, frozen, candidate, **given)
    line("recomputing every figure from the logs")
    return measurement_record(
        actor=actor,
        measurement=measurement,
        figures=figures_of(evidence, recompute(evidence)),
        evidence=evidence,
    )


def _told(what: str, planned: int, line: Line) -> Callable[[Pair], None]:
    def told(pair: Pair) -> None:
        number = "warm-up" if pair.warm_up else f"{pair.pair}/{planned}"
        valid = pair.base.valid and pair.other.valid
        ratio = f"{math.expm1(pair.log_ratio):+.2%}" if valid else "not valid"
        line(f"{what} {number}: {ratio}")

    return told


def _copy_kernel(package: Path, target: Path, manifest_sha256: str) -> None:
    """Put the package without its weights into the evidence, whole or not at all."""
    if (target / "manifest.json").is_file() and (
        sha256_file(target / "manifest.json") == manifest_sha256
    ):
        return
    part = target.with_name("kernel.tmp")
    shutil.rmtree(part, ignore_errors=True)
    copy_evidence(package, part)
    shutil.rmtree(target, ignore_errors=True)
    part.replace(target)


def figures_of(evidence: Path, found: Recomputed) -> MeasuredFigures:
    """What the logs say, as the row stores it; fractions are the engine's own text."""
    uplift: Mapping[str, Any] = (
        {name: ZERO for name in ("point", "lo", "hi", "lower_95")} | {"n": 0, "flagged": True}
        if found.uplift is None
        else found.uplift.to_dict()
    )
    return MeasuredFigures(
        aa={**found.aa.to_dict(), "pairs": load_paired(evidence / "aa").planned},
        uplift={**uplift, "guards": _guards(found), "energy": found.energy.to_dict()},
        pairs=pair_rows(load_paired(evidence / "uplift")),
        accuracy=found.accuracy.to_dict(),
        uplift_point=Decimal(uplift["point"]),
        uplift_lower_95=Decimal(uplift["lower_95"]),
        kept=found.decision.kept,
        reason="; ".join(found.decision.reasons)[:300],
    )


def _guards(found: Recomputed) -> dict[str, bool]:
    """Whether each further guard of the plan's method was passed, by its name."""
    passed = {"p99": found.tail.passed}
    if found.cache is not None:
        passed["cache test"] = found.cache.passed
    if found.second is not None:
        passed |= {
            "precision": found.second.precision.passed,
            "machine alike": found.second.conditions.passed,
            "baseline not held back": found.second.held_back.passed,
        }
    return passed


def pair_rows(paired: PairedRuns) -> list[dict[str, object]]:
    """The counted pairs in order, for plot and table; those with a run that is not valid left out
    (the measurement's reason names such a run)."""
    return [
        {
            "pair": pair.pair,
            "first": pair.first,
            "base": pair.base.run_id,
            "other": pair.other.run_id,
            "base_samples_per_second": str(pair.base.samples_per_second),
            "other_samples_per_second": str(pair.other.samples_per_second),
            "log_ratio": f"{pair.log_ratio:.9f}",
        }
        for pair in paired.pairs
        if not pair.warm_up and pair.base.valid and pair.other.valid
    ]
