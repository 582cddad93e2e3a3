"""One judgement from start to end: symbols, screening, timing, all rounds, timed outputs, roofline,
sanitizers.

In: a candidate, its operator, one or several weighted sizes, an incumbent or none, a secret seed.
Out: a `Verdict`. The candidate always runs before the oracle. Cheap gates come first so that a
search loses little on bad candidates; acceptance needs every gate. Never here: a proposal, a file
of records, a budget.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace

import numpy as np

from kernelgen.judge import roofline, rounds, sandbox, sanitize, symbols
from kernelgen.judge.clock import Effort, Match, Timing, ratio_interval, room
from kernelgen.judge.compare import Comparison, compare, poison_word, poisoned
from kernelgen.judge.session import Refusal, Region, Session, bytes_for
from kernelgen.judge.verdict import ACCEPTED, Candidate, JudgeError, Verdict
from kernelgen.machine import Machine, describe
from kernelgen.ops.operator import Array, Operator

CALL_LIMIT_S = 10.0
PROVEN_ROUNDS = 10
SMALL_BYTES = 4 << 20
"""Rounds up to this size meet the guard pages at both ends; larger ones take turns."""


@dataclass(frozen=True)
class Point:
    """One size to time, and how many calls at it the traffic makes."""

    dims: Mapping[str, int]
    weight: float = 1.0


@dataclass
class _Findings:
    error_ratio: float = 0.0
    rounds: int = 0
    proven: int = 0
    prepare_ns: list[int] = field(default_factory=list)
    packed_bytes: int = 0
    scratch_bytes: int = 0
    timings: list[Timing] = field(default_factory=list)
    log_ratios: list[float] = field(default_factory=list)


def judge(
    candidate: Candidate,
    operator: Operator,
    dims: Mapping[str, int],
    *,
    incumbent: Candidate | None,
    seed_bytes: bytes,
    machine: Machine,
    core: int,
    limit_s: float = CALL_LIMIT_S,
) -> Verdict:
    """Decide whether `candidate` is a correct kernel for `operator`, and faster than `incumbent` at
    `dims`.

    Without an incumbent the candidate only has to be correct. `seed_bytes` is the judge's secret:
    the same seed gives the same test set. `core` is where both sides run. Raises `JudgeError` when
    no verdict is possible here.
    """
    return judge_points(
        candidate,
        operator,
        (Point(dims),),
        incumbent=incumbent,
        seed_bytes=seed_bytes,
        machine=machine,
        core=core,
        limit_s=limit_s,
    )


def judge_points(
    candidate: Candidate,
    operator: Operator,
    points: Sequence[Point],
    *,
    incumbent: Candidate | None,
    seed_bytes: bytes,
    machine: Machine,
    core: int,
    limit_s: float = CALL_LIMIT_S,
    effort: Effort | None = None,
    timed: bool = True,
    must_win: bool = True,
) -> Verdict:
    """`judge` over several weighted sizes: rounds at the heaviest, timing at all, one ratio of
    weighted times.

    With `must_win` false the candidate is compared with the incumbent and accepted on correctness
    alone.
    """
    if not points or any(point.weight <= 0 for point in points):
        raise ValueError(f"points: got {points!r}, wanted at least one size, all weights above 0")
    began = time.monotonic()
    trial = _Trial(
        candidate,
        operator,
        points,
        incumbent,
        seed_bytes,
        machine,
        core,
        limit_s,
        effort or Effort(),
        must_win,
    )
    reason, detail = ACCEPTED, ""
    try:
        trial.hold(timed=timed)
    except Refusal as refusal:
        reason, detail = refusal.reason, refusal.detail
    return trial.verdict(reason, detail, time.monotonic() - began)


@dataclass(frozen=True)
class Race:
    """Interleaved times without a verdict: where a search looks first, never a reason to accept.

    `time_ns` has one entry per point. The ratio compares weighted times; None without an incumbent.
    """

    time_ns: tuple[float, ...]
    ratio: float | None
    ratio_lo: float | None
    ratio_hi: float | None


def race(
    candidate: Candidate,
    operator: Operator,
    points: Sequence[Point],
    *,
    incumbent: Candidate | None,
    seed_bytes: bytes,
    machine: Machine,
    core: int,
    limit_s: float = CALL_LIMIT_S,
    effort: Effort | None = None,
) -> Race:
    """Time `candidate` (against `incumbent`) as `judge_points` does, without rounds or sanitizers.

    Raises `Refusal` when the candidate fails while it is timed. `time_ns` follows the order of
    `points`.
    """
    trial = _Trial(
        candidate,
        operator,
        points,
        incumbent,
        seed_bytes,
        machine,
        core,
        limit_s,
        effort or Effort(),
        False,
    )
    trial.hold_race()
    return trial.race(points)


class _Trial:
    def __init__(
        self,
        candidate: Candidate,
        operator: Operator,
        points: Sequence[Point],
        incumbent: Candidate | None,
        seed: bytes,
        machine: Machine,
        core: int,
        limit_s: float,
        effort: Effort,
        must_win: bool,
    ) -> None:
        self._candidate = candidate
        self._operator = operator
        self._points = sorted(points, key=lambda p: p.weight * operator.flops(p.dims), reverse=True)
        self._incumbent = incumbent
        self._seed = seed
        self._machine = machine
        self._core = core
        self._limit_s = limit_s
        self._effort = effort
        self._must_win = must_win
        self._found = _Findings()

    def hold(self, *, timed: bool) -> None:
        symbols.check(self._candidate.library)
        plan = rounds.plan(self._operator, self._points[0].dims, self._seed)
        with ExitStack() as stack:
            mine = self._open(stack, plan)
            for test in plan[: rounds.SCREENING]:
                self._round(mine, test)
            if timed:
                self._time(mine, stack)
            for test in plan[rounds.SCREENING :]:
                self._round(mine, test)
            mine.finish()
        if self._found.proven < PROVEN_ROUNDS:
            raise JudgeError(
                f"{self._operator.name}: only {self._found.proven} rounds refuse a no-op, a zero "
                f"and a copy kernel, wanted {PROVEN_ROUNDS}; samples or bound prove too little"
            )
        if timed:
            self._check_timed_outputs()
        if self._candidate.sources:
            self._sanitize(plan)

    def hold_race(self) -> None:
        symbols.check(self._candidate.library)
        with ExitStack() as stack:
            self._time(self._open(stack, ()), stack)

    def race(self, points: Sequence[Point]) -> Race:
        times = {id(p): t.time_ns for p, t in zip(self._points, self._found.timings, strict=True)}
        ratio = self._ratio()
        return Race(tuple(times[id(point)] for point in points), *ratio)

    def _ratio(self) -> tuple[float | None, float | None, float | None]:
        if not self._found.log_ratios:
            return None, None, None
        return ratio_interval(self._found.log_ratios, rounds.generator(self._seed, "interval"))

    def _open(self, stack: ExitStack, plan: Sequence[rounds.Round]) -> Session:
        regions = [stack.enter_context(closing(Region(size))) for size in self._sizes(plan)]
        return stack.enter_context(
            Session(
                self._candidate.library,
                self._operator,
                regions[0],
                regions[1],
                core=self._core,
                limit_s=self._limit_s,
            )
        )

    def _sizes(self, plan: Sequence[rounds.Round]) -> tuple[int, int]:
        sizes = [room(self._operator, point.dims) for point in self._points]
        for test in plan:
            sizes.append(
                (
                    bytes_for(self._operator, test.dims, ("input", "weight")) + 8192,
                    bytes_for(self._operator, test.dims, ("output",)) + 8192,
                )
            )
        return max(size[0] for size in sizes), max(size[1] for size in sizes)

    def _round(self, session: Session, test: rounds.Round) -> None:
        """One test set: candidate first, then the oracle; drawn again when it would not refuse a
        cheat.
        """
        for attempt in range(rounds.ATTEMPTS):
            sample = rounds.arrays(self._operator, test, self._seed, attempt)
            rng = rounds.generator(self._seed, "poison", test.number, attempt)
            word = poison_word(rng)
            small = sum(array.nbytes for array in sample.values()) <= SMALL_BYTES
            first = bool(test.number % 2)
            sides = [first, not first] if small else [first]
            results = [self._run(session, test.dims, sample, word, left=left) for left in sides]
            want = self._operator.oracle(sample, test.dims)
            bound = self._operator.error_bound(sample, test.dims)
            exact = test.regime == "integer_exact"
            for got in results:
                self._note(compare(got, want, bound, poison=word, exact=exact), test)
            if rounds.proves(self._operator, sample, want, bound, exact=exact):
                self._found.proven += 1
                break
        self._found.rounds += 1

    def _run(
        self,
        session: Session,
        dims: Mapping[str, int],
        sample: Mapping[str, Array],
        word: int,
        *,
        left: bool,
    ) -> dict[str, Array]:
        operator = self._operator
        session.inputs.rewind()
        session.outputs.rewind()
        weights = [session.inputs.put(sample[t.name]) for t in operator.by_role("weight")]
        took = session.setup(dims, weights, left=left)
        self._found.packed_bytes, self._found.scratch_bytes = took.packed_bytes, took.scratch_bytes
        sources = [session.inputs.put(sample[t.name]) for t in operator.by_role("input")]
        outputs = operator.by_role("output")
        targets = [session.outputs.put(poisoned(t.sizes(dims), t.dtype, word)) for t in outputs]
        session.call(sources, targets, left=left)
        return {
            t.name: session.outputs.get(at, t.sizes(dims), t.dtype)
            for t, at in zip(outputs, targets, strict=True)
        }

    def _note(self, result: Comparison, test: rounds.Round) -> None:
        if result.reason is not None:
            where = f"round {test.number} ({test.regime}, {dict(test.dims)})"
            self._found.error_ratio = max(self._found.error_ratio, result.error_ratio)
            raise Refusal(result.reason, f"{where}: {result.detail}")
        self._found.error_ratio = max(self._found.error_ratio, result.error_ratio)

    def _time(self, mine: Session, stack: ExitStack) -> None:
        other: Session | None = None
        if self._incumbent is not None:
            outputs = stack.enter_context(closing(Region(mine.outputs.size)))
            try:
                other = stack.enter_context(
                    Session(
                        self._incumbent.library,
                        self._operator,
                        mine.inputs,
                        outputs,
                        core=self._core,
                        limit_s=self._limit_s,
                    )
                )
            except Refusal as refusal:
                raise JudgeError(f"the incumbent does not start: {refusal}") from refusal
        rng = rounds.generator(self._seed, "clock")
        for point in self._points:
            match = Match(self._operator, point.dims, mine, other, rng)
            timing = match.run(
                self._effort, prepare=self._found.prepare_ns.append, go_on=self._goes_on
            )
            self._found.timings.append(timing)
            self._check_roofline(point, timing)
        if other is not None:
            self._compare_times(rng)

    def _goes_on(self, timing: Timing) -> bool:
        """Stop early on a lost cause; never stop early on a win, which needs the fewest passes in
        full.
        """
        passes = len(timing.mine_ns)
        if not timing.other_ns:
            return passes < self._effort.fewest
        if passes < self._effort.look:
            return True
        logs = np.log(np.divide(timing.other_total_ns, timing.mine_total_ns))
        if (
            len(self._points) == 1
            and self._must_win
            and float(np.exp(logs.max())) < self._effort.hopeless
        ):
            return False
        if passes < self._effort.fewest:
            return True
        spread = 1.5 * float(logs.std()) / np.sqrt(passes)
        return bool(abs(float(np.median(logs))) < 2 * spread)

    def _compare_times(self, rng: np.random.Generator) -> None:
        passes = min(len(timing.mine_ns) for timing in self._found.timings)
        weights = [point.weight for point in self._points]
        mine, other = (
            sum(
                weight * np.asarray(getattr(timing, side)[:passes])
                for weight, timing in zip(weights, self._found.timings, strict=True)
            )
            for side in ("mine_total_ns", "other_total_ns")
        )
        self._found.log_ratios = list(np.log(other / mine))
        ratio, low, high = ratio_interval(self._found.log_ratios, rng)
        if self._must_win and not (low > 1.0 and passes >= self._effort.fewest):
            raise Refusal(
                "slower", f"ratio {ratio:.3f} [{low:.3f}, {high:.3f}] after {passes} passes"
            )

    def _check_roofline(self, point: Point, timing: Timing) -> None:
        for again in range(3):
            floor = roofline.floor_ns(self._operator, point.dims, self._machine)
            if timing.time_ns >= floor:
                return
            if again < 2:
                # The peaks may have been measured beside a noisy neighbour: the better of two
                # measurements counts.
                self._machine = _better_peaks(self._machine)
        raise Refusal(
            "above_roofline", f"{timing.time_ns:.0f} ns a call, this machine needs {floor:.0f} ns"
        )

    def _check_timed_outputs(self) -> None:
        """The oracle's word on the copies taken while the clock ran, after the candidate is gone.
        """
        rng = rounds.generator(self._seed, "recheck")
        for point, timing in zip(self._points, self._found.timings, strict=True):
            weights = timing.weights
            wanted = max(3, timing.calls // 10)
            chosen = rng.permutation(len(timing.snapshots))[:wanted]
            deadline = time.monotonic() + 1.5
            for number, at in enumerate(chosen):
                if number >= 3 and time.monotonic() > deadline:
                    break
                snap = timing.snapshots[int(at)]
                sample = {**weights, **snap.inputs}
                want = self._operator.oracle(sample, point.dims)
                bound = self._operator.error_bound(sample, point.dims)
                result = compare(snap.outputs, want, bound, poison=snap.poison)
                if result.reason is not None:
                    raise Refusal(result.reason, f"a timed call: {result.detail}")
                self._found.error_ratio = max(self._found.error_ratio, result.error_ratio)

    def _sanitize(self, plan: Sequence[rounds.Round]) -> None:
        # A tail and the timed sizes shrunk to the next test: memory errors live at edges, not in
        # volume.
        cases = [
            (test.dims, rounds.arrays(self._operator, test, self._seed))
            for test in (plan[1], plan[-2])
        ]
        sanitize.check(self._candidate, self._operator, cases)

    def verdict(self, reason: str, detail: str, seconds: float) -> Verdict:
        found = self._found
        time_ns = fraction = None
        if found.timings:
            time_ns = found.timings[0].time_ns
            fraction = roofline.fraction(
                self._operator, self._points[0].dims, self._machine, time_ns
            )
        ratio, low, high = self._ratio()
        return Verdict(
            accepted=reason == ACCEPTED,
            reason=reason,
            detail=detail,
            max_error_ratio=found.error_ratio,
            time_ns=time_ns,
            ratio_vs_incumbent=ratio,
            ratio_lo=low,
            ratio_hi=high,
            roofline_fraction=fraction,
            rounds=found.rounds,
            timed_calls=sum(timing.calls for timing in found.timings),
            prepare_ns=float(np.median(found.prepare_ns)) if found.prepare_ns else None,
            packed_bytes=found.packed_bytes,
            scratch_bytes=found.scratch_bytes,
            sandbox=sandbox.protection().text(),
            seconds=seconds,
        )


def _better_peaks(machine: Machine) -> Machine:
    again = describe(measure=True)
    return replace(
        machine,
        peak_gflops_per_core=max(
            machine.peak_gflops_per_core or 0, again.peak_gflops_per_core or 0
        ),
        peak_gbps_per_core=max(machine.peak_gbps_per_core or 0, again.peak_gbps_per_core or 0),
    )
