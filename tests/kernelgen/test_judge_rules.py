"""Rules of the judge that no single fixture shows: what the child holds, how sizes count together,
when contents appear, and what cannot be.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernelgen.attacks.scale import Scale
from kernelgen.attacks.suite import folder
from kernelgen.judge import Candidate, Verdict, clock, contest, roofline, trial
from kernelgen.judge.build import harness
from kernelgen.judge.clock import Effort, Match
from kernelgen.judge.contest import Point
from kernelgen.judge.session import Refusal, Region, Session, Window
from kernelgen.judge.trial import judge_points, race
from kernelgen.machine import Machine, describe
from kernelgen.ops.gemm import GemmBias
from kernelgen.ops.operator import Array, Operator, Tensor
from kernelgen.targets.cpu import compile_shared

CORE = min(os.sched_getaffinity(0))
PRELUDE = (folder() / "kernel.h").read_text()
HEAD = """NOTHING_PACKED
NO_SCRATCH
int kernel(const void *const *in, void *const *out, const int64_t *dim, const void *packed,
           void *scratch) {
  const float *x = in[0]; float *y = out[0]; int64_t n = dim[0]; (void)packed, (void)scratch;
"""
PLAIN = HEAD + "for (int64_t i = 0; i < n; i++) SCALE(i); return 0; }"
SLOW_AT_FIRST = HEAD + (
    "static int calls; for (volatile int w = 0; calls < 60 && w < 400000; w++) {} calls++;"
    "for (int64_t i = 0; i < n; i++) SCALE(i); return 0; }"
)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _built(text: str, place: Path, name: str) -> Candidate:
    source = PRELUDE + text
    outcome = compile_shared(source, ("-O2",), place / f"{name}.so")
    assert outcome.path is not None, outcome.stderr
    return Candidate(name, outcome.path, (source,), ("-O2",))


def _judge(
    mine: Candidate, points: tuple[Point, ...], machine: Machine, other: Candidate | None = None
) -> Verdict:
    return judge_points(
        mine,
        Scale(),
        points,
        incumbent=other,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
        limit_s=3.0,
    )


def test_a_failure_at_one_size_refuses_all(machine: Machine, tmp_path: Path) -> None:
    wrong = HEAD + "for (int64_t i = 0; i < n; i++) y[i] = n == 811 ? 0 : 1.5f * x[i] + 0.25f;"
    verdict = _judge(
        _built(wrong + "return 0; }", tmp_path, "wrong"),
        (Point({"n": 5000}, 100.0), Point({"n": 811}, 1.0)),
        machine,
    )
    assert verdict.reason == "wrong_output", verdict


def test_one_impossible_size_refuses_all(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = roofline.floor_ns

    def floor(operator: Operator, dims: Mapping[str, int], box: Machine) -> float:
        return 1e9 if dims["n"] == 811 else real(operator, dims, box)

    monkeypatch.setattr(contest.roofline, "floor_ns", floor)
    monkeypatch.setattr(contest, "_better_peaks", lambda box: box)
    verdict = _judge(
        _built(PLAIN, tmp_path, "plain"), (Point({"n": 5000}), Point({"n": 811})), machine
    )
    assert verdict.reason == "above_roofline", verdict


def test_a_slow_warm_up_gains_nothing(machine: Machine, tmp_path: Path) -> None:
    plain = _built(PLAIN, tmp_path, "plain")
    slow = _built(SLOW_AT_FIRST, tmp_path, "slow")
    result = race(
        slow,
        Scale(),
        (Point({"n": 9000}),),
        incumbent=plain,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=CORE,
        effort=Effort(fewest=8, most=8, hopeless=1e-9),
    )
    # As many passes as for anybody else, and no better a time than the same code without the trick.
    assert result.ratio is not None
    assert result.ratio < 1.1


def test_cpu_time_beyond_one_core_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.go

    def busy(self: Session, first: int, calls: int) -> Window:
        window = real(self, first, calls)
        return replace(window, cpu_ns=2 * window.wall_ns + 1_000_000)

    monkeypatch.setattr(Session, "go", busy)
    verdict = _judge(_built(PLAIN, tmp_path, "plain"), (Point({"n": 5000}),), machine)
    assert verdict.reason == "clock_mismatch", verdict


def test_work_after_the_answer_is_refused(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Session.go

    def late(self: Session, first: int, calls: int) -> Window:
        window = real(self, first, calls)
        return replace(window, after_ns=2_000_000 + 4 * window.wall_ns)

    monkeypatch.setattr(Session, "go", late)
    verdict = _judge(_built(PLAIN, tmp_path, "plain"), (Point({"n": 5000}),), machine)
    assert verdict.reason == "clock_mismatch", verdict


def test_contents_are_written_after_the_addresses_are_known(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every load the places of the coming inputs hold what they held before."""
    real_load, real_write = Match._load, Match._write
    order: list[str] = []

    def load(self: Match, side: Session, batch: clock._Batch) -> None:
        for (at, *_), content in zip(
            (inputs for inputs, _ in batch.calls), batch.contents, strict=True
        ):
            there = self._region.get(at, content[0].shape, "float32")
            assert not np.array_equal(there, content[0])
        order.append("load")
        real_load(self, side, batch)

    def write(self: Match, batch: clock._Batch, first: int, calls: int) -> None:
        order.append("write")
        real_write(self, batch, first, calls)

    monkeypatch.setattr(Match, "_load", load)
    monkeypatch.setattr(Match, "_write", write)
    plain = _built(PLAIN, tmp_path, "plain")
    race(
        plain,
        Scale(),
        (Point({"n": 300}),),
        incumbent=None,
        seed_bytes=b"s",
        machine=machine,
        core=CORE,
        effort=Effort(fewest=3, most=3),
    )
    assert order == ["load", "write", "write", "write", *(["load", "write", "write"] * 3)]


def test_two_sides_never_share_an_output(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    real = Session.__init__

    def start(self: Session, *args: object, **named: object) -> None:
        inputs, outputs = args[2], args[3]
        assert isinstance(inputs, Region)
        assert isinstance(outputs, Region)
        seen.append((inputs.descriptor, outputs.descriptor))
        real(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(trial.Session, "__init__", start)
    plain = _built(PLAIN, tmp_path, "plain")
    race(
        plain,
        Scale(),
        (Point({"n": 300}),),
        incumbent=plain,
        seed_bytes=b"s",
        machine=machine,
        core=CORE,
        effort=Effort(fewest=2, most=2),
    )
    assert len(seen) == 2
    assert seen[0][0] == seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_the_child_never_holds_an_oracle(tmp_path: Path) -> None:
    """Everything the child can map: inputs and the bytes of its own outputs."""
    candidate = _built(PLAIN, tmp_path, "plain")
    operator = Scale()
    inputs, outputs = Region(8192), Region(8192)
    with Session(candidate.library, operator, inputs, outputs, core=CORE, limit_s=5.0) as session:
        session.setup({"n": 10}, [])
        fds = Path(f"/proc/{session._child.pid}/fd")
        links = [os.readlink(fds / entry.name) for entry in fds.iterdir()]
    shared = [link for link in links if "memfd:kernelgen" in link]
    others = {link.partition(":")[0] for link in links if "memfd:kernelgen" not in link}
    assert len(shared) == 2
    assert others <= {"pipe", "/dev/null"}
    for region in (inputs, outputs):
        region.close()


def test_the_harness_belongs_to_the_judge() -> None:
    for sanitize in (False, True):
        path = harness(sanitize=sanitize)
        for place in (path, path.parent):
            found = place.stat()
            assert found.st_uid == os.getuid()
            assert not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH), place


def test_no_seed_comes_from_a_fixed_number() -> None:
    package = Path(trial.__file__).parents[1]
    callers = [*package.rglob("*.py")]
    calls = [
        f"{path.name}: {line.strip()}"
        for path in callers
        for line in path.read_text().splitlines()
        if "seed_bytes=" in line
        and not any(
            word in line for word in ("urandom", "token_bytes", "seed_bytes=seed", "seed_bytes: ")
        )
    ]
    assert [call for call in calls if "seed_bytes=b" in call] == []


def test_the_bound_grows_with_the_length_and_stays_below_the_output() -> None:
    worst = []
    for k in (16, 256, 4096):
        operator = GemmBias(k, 32)
        sample = operator.sample(np.random.default_rng(0), {"m": 8}, "nominal")
        bound = operator.error_bound(sample, {"m": 8})["out"]
        size = operator.oracle(sample, {"m": 8})["out"].std()
        worst.append(float(bound.max()))
        assert bound.max() < 0.01 * size
    assert worst[0] < worst[1] < worst[2]


class _Weights(Scale):
    """Reads a matrix of 4 GB once: a model of a thousand million numbers of 4 bytes, one token."""

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        return 4_000_000_000

    def flops(self, dims: Mapping[str, int]) -> int:
        return 2_000_000_000


def test_a_claim_beyond_memory_bandwidth_is_refused(machine: Machine) -> None:
    box = replace(
        machine,
        peak_gflops_per_core=100.0,
        peak_gbps_per_core=60.0,
        l2_bytes=1 << 21,
        isa=("avx2",),
    )
    claimed_ns = 4.0 / 458.0 * 1e9
    for l3 in (32 << 20, 300 << 20):
        floor = roofline.floor_ns(_Weights(), {"n": 1}, replace(box, l3_bytes=l3))
        assert claimed_ns < floor
        assert floor < 4.0 / 60.0 * 1e9, "the honest time at full bandwidth stays possible"
    assert roofline.floor_ns(_Weights(), {"n": 1}, box) > 0.0


def test_data_beyond_all_caches_comes_at_the_speed_of_memory(machine: Machine) -> None:
    box = replace(
        machine,
        peak_gflops_per_core=1e6,
        peak_gbps_per_core=10.0,
        l2_bytes=1 << 20,
        l3_bytes=1 << 25,
        isa=("avx2",),
    )
    inside = roofline.floor_ns(Scale(), {"n": 1 << 20}, box)
    beyond = roofline.floor_ns(Scale(), {"n": 1 << 26}, box)
    assert inside == pytest.approx((1 << 23) / 120.0)
    assert beyond == pytest.approx(((1 << 29) - (1 << 25) - (1 << 20)) / 13.5)


class _TieBreaks(Scale):
    """Allows either of two answers, as a tie does."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (Tensor("x", ("n",), "float32", "input"), Tensor("y", ("n",), "int32", "output"))

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": 10 + (arrays["x"] > 0).astype(np.int64)}

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"y": np.ones(dims["n"])}


@pytest.mark.parametrize(("value", "refused"), [("11", False), ("x[i] > 0 ? 11 : 8", True)])
def test_what_differs_from_the_incumbent_is_a_case_for_the_oracle(
    machine: Machine, tmp_path: Path, value: str, refused: bool
) -> None:
    head = HEAD.replace("float *y", "int32_t *y")
    loop = "for (int64_t i = 0; i < n; i++) y[i] = VALUE; return 0; }"
    plain = _built(head + loop.replace("VALUE", "x[i] > 0 ? 11 : 10"), tmp_path, "plain")
    other = _built(head + loop.replace("VALUE", value), tmp_path, "other")
    arguments = {
        "incumbent": plain,
        "seed_bytes": os.urandom(32),
        "machine": machine,
        "core": CORE,
        "effort": Effort(fewest=3, most=3, hopeless=1e-9),
    }
    if refused:
        with pytest.raises(Refusal, match="wrong_output"):
            race(other, _TieBreaks(), (Point({"n": 500}),), **arguments)  # type: ignore[arg-type]
    else:
        result = race(other, _TieBreaks(), (Point({"n": 500}),), **arguments)  # type: ignore[arg-type]
        assert result.ratio is not None


def test_noise_is_no_proof_of_an_impossible_time_but_a_steady_lie_is() -> None:
    steady = clock.Timing(mine_ns=[20.0, 20.5, 19.5] * 4, mine_total_ns=[30.0] * 12)
    noisy = clock.Timing(mine_ns=[20.0, 60.0, -10.0] * 4, mine_total_ns=[60.0] * 12)
    # A few slow passes on purpose move neither the median nor its spread.
    staged = clock.Timing(mine_ns=[20.0, 20.5, 19.5] * 3 + [900.0] * 3, mine_total_ns=[30.0] * 12)
    assert steady.most_ns < 22.0
    assert staged.most_ns < 22.0
    assert noisy.most_ns > 31.0
