"""Whole judgements on small kernels: acceptance, races, the roofline, the judge's own troubles."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelgen.attacks.scale import Scale
from kernelgen.attacks.suite import folder
from kernelgen.judge import Candidate, JudgeError, judge, roofline
from kernelgen.judge import symbols as symbol_check
from kernelgen.judge.clock import Effort, ratio_interval
from kernelgen.judge.contest import Point
from kernelgen.judge.feed import Feed
from kernelgen.judge.session import Refusal
from kernelgen.judge.trial import judge_points, race
from kernelgen.machine import Machine, describe
from kernelgen.ops import Attention, MeanPool
from kernelgen.ops.operator import Array
from kernelgen.targets.cpu import compile_shared

CORE = min(os.sched_getaffinity(0))
PRELUDE = (folder() / "kernel.h").read_text()
SIGNATURE = """NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
           void *scratch) {
  const float *x = in[0];
  float *y = out[0];
  int64_t n = dim[0];
  (void)packed, (void)scratch;
"""
ONCE = SIGNATURE + "for (int64_t i = 0; i < n; i++) SCALE(i); return 0; }"
FOUR_TIMES = (
    SIGNATURE + "for (volatile int r = 0; r < 4; r++)"
    "for (int64_t i = 0; i < n; i++) *(volatile float *)&y[i] = 1.5f * x[i] + 0.25f; return 0; }"
)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _build(text: str, folder: Path, name: str) -> Candidate:
    source = PRELUDE + text
    outcome = compile_shared(source, ("-O2",), folder / f"{name}.so")
    assert outcome.path is not None, outcome.stderr
    return Candidate(name, outcome.path, (source,), ("-O2",))


def test_a_correct_kernel_is_accepted_with_everything_measured(
    machine: Machine, tmp_path: Path
) -> None:
    verdict = judge(
        _build(ONCE, tmp_path, "once"),
        Scale(),
        {"n": 5000},
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
    )
    assert verdict.accepted, verdict
    assert verdict.rounds >= 12
    assert 0 <= verdict.max_error_ratio <= 1
    assert verdict.time_ns is not None
    assert 100 < verdict.time_ns < 1e6
    assert verdict.timed_calls >= 36
    assert verdict.sandbox.split()[0] in ("bubblewrap+rlimits+seccomp", "rlimits+seccomp")


def test_the_faster_wins_and_the_slower_loses(machine: Machine, tmp_path: Path) -> None:
    fast, slow = _build(ONCE, tmp_path, "fast"), _build(FOUR_TIMES, tmp_path, "slow")
    won, lost = (
        judge(
            mine,
            Scale(),
            {"n": 20_000},
            incumbent=other,
            seed_bytes=os.urandom(32),
            machine=machine,
            core=CORE,
        )
        for mine, other in ((fast, slow), (slow, fast))
    )
    assert won.accepted, won
    assert won.ratio_lo is not None
    assert won.ratio_lo > 1.5
    assert lost.reason == "slower"
    assert lost.ratio_hi is not None
    assert lost.ratio_hi < 0.7
    assert lost.rounds < won.rounds, "a lost cause does not deserve all rounds"


def test_several_sizes_weigh_in_one_ratio(machine: Machine, tmp_path: Path) -> None:
    fast, slow = _build(ONCE, tmp_path, "fast"), _build(FOUR_TIMES, tmp_path, "slow")
    points = (Point({"n": 700}, 3.0), Point({"n": 9000}, 1.0))
    verdict = judge_points(
        fast,
        Scale(),
        points,
        incumbent=slow,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
    )
    assert verdict.accepted, verdict
    result = race(
        fast,
        Scale(),
        points,
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
        effort=Effort(fewest=6, most=6),
    )
    assert len(result.time_ns) == 2
    assert result.time_ns[0] < result.time_ns[1]
    assert result.ratio is None


def test_a_time_above_the_roofline_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only the vector units' peak counts where the words for the matrix unit are missing.
    slow_machine = replace(
        machine, isa=("avx2",), peak_gflops_per_core=1e-3, peak_gbps_per_core=1e-3
    )
    monkeypatch.setattr("kernelgen.judge.contest.describe", lambda *, measure: slow_machine)
    verdict = judge(
        _build(ONCE, tmp_path, "once"),
        Scale(),
        {"n": 5000},
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=slow_machine,
        core=CORE,
    )
    assert verdict.reason == "above_roofline"


class _Forgiving(Scale):
    """Its bound lets everything through, so its rounds prove nothing."""

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": np.full(dims["n"], np.inf)}


def test_a_test_set_that_proves_nothing_is_the_judges_trouble(
    machine: Machine, tmp_path: Path
) -> None:
    with pytest.raises(JudgeError, match="rounds refuse a no-op"):
        judge(
            _build(ONCE, tmp_path, "once"),
            _Forgiving(),
            {"n": 300},
            incumbent=None,
            seed_bytes=os.urandom(32),
            machine=machine,
            core=CORE,
        )


def test_points_without_weight_are_wrong_use(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="weights above 0"):
        judge_points(
            Candidate("none", tmp_path / "none.so"),
            Scale(),
            (Point({"n": 3}, 0.0),),
            incumbent=None,
            seed_bytes=b"s",
            machine=machine,
            core=CORE,
        )


def test_a_file_that_is_no_object_is_not_loadable(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("not an object")
    with pytest.raises(Refusal, match="not_loadable"):
        symbol_check.check(path)


def test_the_roof_is_the_faster_of_vector_and_matrix_unit(machine: Machine) -> None:
    plain = replace(machine, isa=("avx2",), peak_gflops_per_core=100.0)
    assert roofline.peak_gflops(plain) == 100.0
    matrix = replace(plain, isa=("amx_bf16", "amx_tile"))
    assert roofline.peak_gflops(matrix) >= 100.0
    assert roofline.floor_ns(Scale(), {"n": 10**6}, matrix) > 0
    unmeasured = replace(matrix, peak_gflops_per_core=None, peak_gbps_per_core=None)
    assert roofline.floor_ns(Scale(), {"n": 10**6}, unmeasured) == 0
    assert roofline.fraction(Scale(), {"n": 10**6}, unmeasured, 5.0) is None


def test_feed_never_repeats_floats_and_keeps_structure() -> None:
    rng = np.random.default_rng(5)
    feed = Feed(Attention(2, 8, 0.35), {"n": 3, "tokens": 20}, rng)
    seen = [feed.next() for _ in range(20)]
    assert len({contents[0].tobytes() for contents in seen}) == 20
    for _, offsets in seen:
        assert offsets[0] == 0
        assert offsets[-1] == 20
        assert (np.diff(offsets) > 0).all()
    pool = Feed(MeanPool(4), {"n": 2, "tokens": 6}, rng)
    assert pool.next()[0].dtype == np.float32


def test_the_interval_covers_the_ratio_and_narrows_with_passes() -> None:
    rng = np.random.default_rng(3)
    logs = math.log(1.1) + 0.02 * rng.standard_normal(200)
    few, many = ratio_interval(logs[:12], rng), ratio_interval(logs, rng)
    for ratio, low, high in (few, many):
        assert low <= ratio <= high
    assert many[1] < 1.1 < many[2]
    assert many[2] - many[1] < few[2] - few[1]
