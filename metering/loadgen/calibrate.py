"""Sizes a run before it counts: short probes give the rate, the rate gives target and duration.

In: a spec whose ``target_qps`` nobody knows yet. Out: specs that last about as long as asked, for
one arm or for two that must do identical work. A wrong guess makes Offline four times too long or
invalid, and SingleStream allocate gigabytes of queries. Probes are kept apart from measured runs
and never become a result.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path

from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run

# LoadGen requires the minimum duration. A run sized to four times that stays VALID when the probe
# was slowed down by a busy machine and the run was not.
MARGIN = 4
_OFFLINE_HEADROOM = 1.1
_PROBE_SAMPLES = 192
_PROBE_MS = 400
_FLOOR_FACTOR = 2
_FLOOR_PROBES = 3
_MOST_QUERIES = 2_000_000


class CalibrationError(RuntimeError):
    """A probe that was not VALID; the message carries its reasons."""


class FloorError(RuntimeError):
    """The system is too fast for the Python path: the harness would be measured, not the system."""


@dataclass(frozen=True)
class Calibration:
    """A probe's rate in samples per second, and the spec sized with it."""

    samples_per_second: Decimal
    spec: RunSpec


def six_digits(value: float) -> float:
    """The nearest value LoadGen's log can repeat exactly."""
    return float(f"{value:.6g}")


def probe_spec(spec: RunSpec, samples: int = _PROBE_SAMPLES) -> RunSpec:
    """A run of a fixed number of samples and no minimum time: VALID however fast the system is."""
    return dataclasses.replace(
        spec,
        run_id=f"{spec.run_id}-probe"[:120],
        mode="performance",
        min_duration_ms=1,
        target_qps=1.0 if spec.scenario == "Offline" else 100.0,
        min_query_count=samples,
    )


def sized(spec: RunSpec, samples_per_second: float, run_seconds: float) -> RunSpec:
    """``spec`` sized to last about ``run_seconds`` at the given rate."""
    if samples_per_second <= 0 or run_seconds <= 0:
        raise ValueError(
            f"got {samples_per_second} samples/s for {run_seconds} s, wanted both above 0"
        )
    if spec.scenario == "SingleStream":
        # LoadGen pre-generates twice duration x target queries, and needs 64 for its estimate.
        if 2 * MARGIN * samples_per_second * run_seconds > _MOST_QUERIES:
            raise FloorError("SingleStream would pre-generate too many queries; use Offline")
        return dataclasses.replace(
            spec,
            min_duration_ms=max(1, round(run_seconds * 1000)),
            target_qps=six_digits(samples_per_second * MARGIN),
            min_query_count=max(64, spec.min_query_count),
        )
    return dataclasses.replace(
        spec,
        min_duration_ms=max(1, round(run_seconds * 1000 / MARGIN)),
        target_qps=six_digits(samples_per_second * MARGIN / _OFFLINE_HEADROOM),
        min_query_count=1,
    )


def probe_rate(spec: RunSpec, out: Path) -> Decimal:
    """Samples per second of ``spec``, probed in the scratch folder ``out``.

    The folder is removed when a probe was VALID. Raises CalibrationError.
    """
    samples = max(_PROBE_SAMPLES, spec.min_query_count)
    rate = _probe(probe_spec(spec, samples), out)
    wanted = int(rate * _PROBE_MS // 1000)
    if wanted > 2 * samples:
        # So short a probe says little; the faster of the two keeps the run above its minimum.
        rate = max(rate, _probe(probe_spec(spec, min(wanted, _MOST_QUERIES)), out))
    return rate


def _probe(spec: RunSpec, out: Path) -> Decimal:
    if out.exists():
        shutil.rmtree(out)
    result = run(spec, out)
    if not result.valid or result.samples_per_second is None:
        reasons = "; ".join(result.reasons)
        raise CalibrationError(f"probe {spec.run_id}: {result.state}: {reasons} (kept in {out})")
    shutil.rmtree(out)
    return result.samples_per_second


def calibrate(spec: RunSpec, out: Path, *, run_seconds: float) -> Calibration:
    """Probe once in ``out`` and size ``spec``. Raises CalibrationError, FloorError."""
    rate = probe_rate(spec, out)
    check_floor(spec, rate, out)
    return Calibration(rate, sized(spec, float(rate), run_seconds))


def matched(
    base: RunSpec, other: RunSpec, out: Path, *, run_seconds: float
) -> tuple[RunSpec, RunSpec]:
    """Both arms with the same settings: the same samples in the same order, sized by the faster.

    The slower arm therefore runs longer than ``run_seconds``. Raises CalibrationError, FloorError.
    """
    rates = [probe_rate(spec, out / spec.run_id) for spec in (base, other)]
    fastest = other if rates[1] > rates[0] else base
    check_floor(fastest, max(rates), out / "floor")
    shutil.rmtree(out)
    # The slower arm needs its own time, and the limit of both must allow it.
    slowdown = float(max(rates) / min(rates))
    limit = max(base.wall_limit_s, other.wall_limit_s, float(ceil(10 * slowdown * run_seconds)))
    first, second = (
        dataclasses.replace(sized(spec, float(max(rates)), run_seconds), wall_limit_s=limit)
        for spec in (base, other)
    )
    return first, second


def floor_spec(spec: RunSpec) -> RunSpec:
    """The same batches through a system that computes nothing."""
    sut = SutSpec(
        stack="null",
        threads=spec.sut.threads,
        instances=spec.sut.instances,
        arrangement=spec.sut.arrangement,
        batch=spec.sut.batch,
    )
    samples = 20_000 if spec.scenario == "Offline" else 1_000
    probe = probe_spec(dataclasses.replace(spec, sut=sut, package_sha256=""), samples)
    return dataclasses.replace(probe, run_id=f"{spec.run_id}-floor"[:120], warmup_ms=0)


def check_floor(spec: RunSpec, rate: Decimal, out: Path) -> None:
    """Refuse a system whose ``rate`` is within twice the floor of its own batches.

    Raises FloorError, CalibrationError.
    """
    floor = Decimal(0)
    for _ in range(_FLOOR_PROBES):
        # The floor is what the machine can do, so the best of a few tries is the one that counts.
        floor = max(floor, _probe(floor_spec(spec), out))
        if rate * _FLOOR_FACTOR <= floor:
            break
    else:
        raise FloorError(
            f"{spec.sut.stack}: {rate} samples/s is within {_FLOOR_FACTOR}x of the {floor} of a "
            "system that computes nothing; hand it larger batches"
        )
