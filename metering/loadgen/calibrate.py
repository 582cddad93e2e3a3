"""Sizes a run before it counts: short probes give the rate, the rate gives target and duration.

In: a spec whose ``target_qps`` nobody knows yet. Out: specs that last about as long as asked, for
one arm or for two that must do identical work; for Server, the highest rate of arrival found whose
latency bound holds. A wrong guess makes Offline four times too long or invalid, and SingleStream
allocate gigabytes of queries. Probes are kept apart from measured runs
and never become a result.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from pathlib import Path

from metering.loadgen.early_stopping import OTHERS, SINGLE_STREAM, least_queries
from metering.loadgen.result import RunResult
from metering.loadgen.settings import MULTI_STREAM_SAMPLES
from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run

# LoadGen requires the minimum duration. A run sized to four times that stays VALID when the probe
# was slowed down by a busy machine and the run was not.
MARGIN = 4
_OFFLINE_HEADROOM = 1.1
# By the time a sample of each task takes.
_PROBE_SAMPLES = {"embedding": 192, "text_recognition": 24, "generation": 16}
_PROBE_MS = 400
_FLOOR_FACTOR = 2
_FLOOR_PROBES = 3
_MOST_QUERIES = 2_000_000
_PEAK_STEPS = 5
# A run of so many times its length has stopped answering.
_LONGEST = 4
# Queries that wait for longer than this many bounds are lost anyhow.
_WAITING_BOUNDS = 8


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


def probe_spec(spec: RunSpec, samples: int) -> RunSpec:
    """A run of a fixed number of samples and no minimum time: VALID however fast the system is.

    MultiStream and Server are probed with one Offline query of the same samples: theirs would need
    hundreds of queries before any rate is VALID.
    """
    offline = spec.scenario != "SingleStream"
    return dataclasses.replace(
        spec,
        run_id=f"{spec.run_id}-probe"[:120],
        scenario="Offline" if offline else "SingleStream",
        mode="performance",
        min_duration_ms=1,
        target_qps=1.0 if offline else 100.0,
        min_query_count=samples,
        target_latency_ns=0,
        ttft_latency_ns=0,
        tpot_latency_ns=0,
        max_async_queries=0,
        max_duration_ms=0,
    )


def sized(spec: RunSpec, samples_per_second: float, run_seconds: float) -> RunSpec:
    """``spec`` sized to last about ``run_seconds`` at the given rate; in Server, of arrival."""
    if samples_per_second <= 0 or run_seconds <= 0:
        raise ValueError(
            f"got {samples_per_second} samples/s for {run_seconds} s, wanted both above 0"
        )
    if spec.scenario == "Offline":
        return dataclasses.replace(
            spec,
            min_duration_ms=max(1, round(run_seconds * 1000 / MARGIN)),
            target_qps=six_digits(samples_per_second * MARGIN / _OFFLINE_HEADROOM),
            min_query_count=1,
        )
    if spec.scenario == "Server":
        return _sized_server(spec, samples_per_second, run_seconds)
    multi = spec.scenario == "MultiStream"
    # LoadGen pre-generates twice duration x target queries, and needs 64 or 662 for its estimate.
    if 2 * MARGIN * samples_per_second * run_seconds > _MOST_QUERIES:
        raise FloorError(f"{spec.scenario} would pre-generate too many queries; use Offline")
    least = least_queries(1, OTHERS if multi else SINGLE_STREAM)
    stream = dataclasses.replace(
        spec,
        min_duration_ms=max(1, round(run_seconds * 1000)),
        target_qps=six_digits(samples_per_second * MARGIN),
        min_query_count=max(least, spec.min_query_count),
    )
    if not multi:
        return stream
    needed_s = stream.min_query_count * MULTI_STREAM_SAMPLES / samples_per_second
    return _limited(stream, max(run_seconds, needed_s))


def _sized_server(spec: RunSpec, rate: float, run_seconds: float) -> RunSpec:
    """Queries arrive at ``rate``; enough of them for one over the bound, all limits set."""
    queries = max(least_queries(1, OTHERS), spec.min_query_count)
    bound_ns = spec.target_latency_ns
    if spec.task == "generation":
        bound_ns = spec.ttft_latency_ns + spec.max_new_tokens * spec.tpot_latency_ns
    # Rate times latency is what is under way (Little's law); the systems may hold a batch each.
    waiting = ceil(_WAITING_BOUNDS * rate * bound_ns / 1e9)
    held = 2 * spec.sut.batch * spec.sut.instances
    asked = dataclasses.replace(
        spec,
        min_duration_ms=max(1, round(run_seconds * 1000)),
        target_qps=six_digits(rate),
        min_query_count=queries,
        max_async_queries=waiting + held,
    )
    return _limited(asked, max(run_seconds, queries / rate))


def _limited(spec: RunSpec, seconds: float) -> RunSpec:
    """A run of about ``seconds`` that asks no more after four times that, and may end by itself."""
    longest = ceil(_LONGEST * seconds) + 1
    return dataclasses.replace(
        spec,
        max_duration_ms=1000 * longest,
        wall_limit_s=max(spec.wall_limit_s, six_digits(2 * longest)),
    )


def probe_rate(spec: RunSpec, out: Path) -> Decimal:
    """Samples per second of ``spec``, probed in the scratch folder ``out``.

    The folder is removed when a probe was VALID. Raises CalibrationError.
    """
    samples = _PROBE_SAMPLES[spec.task]
    if spec.scenario in ("Offline", "SingleStream"):
        samples = max(samples, spec.min_query_count)
    if spec.scenario == "SingleStream":
        samples = max(samples, least_queries(1, SINGLE_STREAM))
    rate = _probe(probe_spec(spec, samples), out)
    wanted = int(rate * _PROBE_MS // 1000)
    if wanted > 2 * samples:
        # So short a probe says little; the faster of the two keeps the run above its minimum.
        rate = max(rate, _probe(probe_spec(spec, min(wanted, _MOST_QUERIES)), out))
    return rate


def _probe(spec: RunSpec, out: Path) -> Decimal:
    result = _finished(spec, out)
    if not result.valid or result.samples_per_second is None:
        reasons = "; ".join(result.reasons)
        raise CalibrationError(f"probe {spec.run_id}: {result.state}: {reasons} (kept in {out})")
    shutil.rmtree(out)
    return result.samples_per_second


def _finished(spec: RunSpec, out: Path) -> RunResult:
    if out.exists():
        shutil.rmtree(out)
    return run(spec, out)


def calibrate(spec: RunSpec, out: Path, *, run_seconds: float) -> Calibration:
    """Probe in ``out`` and size ``spec``. Raises CalibrationError, FloorError."""
    rate = probe_rate(spec, out)
    check_floor(spec, rate, out)
    if spec.scenario == "Server":
        rate = server_peak(spec, float(rate), out)
    return Calibration(rate, sized(spec, float(rate), run_seconds))


def server_peak(spec: RunSpec, capacity: float, out: Path) -> Decimal:
    """The highest rate of arrival found, up to ``capacity``, at which the bounds of ``spec`` hold.

    Halves the interval between a rate that holds and one that does not, ``_PEAK_STEPS`` times, so
    the answer is within a thirty-second of ``capacity``. Raises CalibrationError.
    """
    held, failed, reasons = 0.0, capacity, ""
    for _ in range(_PEAK_STEPS):
        rate = (held + failed) / 2
        probe = sized(dataclasses.replace(spec, mode="performance"), rate, _PROBE_MS / 1000)
        result = _finished(dataclasses.replace(probe, run_id=f"{spec.run_id}-peak"[:120]), out)
        if result.state == "VALID":
            held = rate
        elif result.state == "INVALID":
            failed, reasons = rate, "; ".join(result.reasons)
        else:
            raise CalibrationError(f"{result.state}: {'; '.join(result.reasons)} (kept in {out})")
        shutil.rmtree(out)
    if not held:
        raise CalibrationError(f"the bounds do not hold even at {failed:.6g} queries/s: {reasons}")
    return Decimal(f"{held:.6g}")


def matched(
    base: RunSpec, other: RunSpec, out: Path, *, run_seconds: float
) -> tuple[RunSpec, RunSpec]:
    """Both arms with the same settings: the same samples in the same order, sized by the faster.

    The slower arm therefore runs longer than ``run_seconds``. Two Server arms of one rate complete
    the same number of queries; what differs is the rate each holds, which :func:`calibrate` finds.
    Raises CalibrationError, FloorError.
    """
    if base.scenario == "Server":
        raise CalibrationError("Server arms are compared by the rate each holds; calibrate each")
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
    few = spec.scenario == "SingleStream" or spec.task == "generation"
    samples = 1_000 if few else 20_000
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
