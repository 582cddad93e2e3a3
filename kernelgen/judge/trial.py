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
from dataclasses import dataclass, field

from kernelgen.judge import claims, rounds, sandbox, sanitize, symbols
from kernelgen.judge.clock import Effort, room
from kernelgen.judge.compare import Comparison, compare, poison_word, poisoned
from kernelgen.judge.contest import Contest, Point, Race
from kernelgen.judge.quiet import one_blas_thread
from kernelgen.judge.session import Refusal, Region, Session, bytes_for
from kernelgen.judge.verdict import ACCEPTED, Candidate, JudgeError, Verdict
from kernelgen.machine import Machine
from kernelgen.ops.operator import Array, Operator

CALL_LIMIT_S = 10.0
PROVEN_ROUNDS = 10
SMALL_BYTES = 4 << 20
"""Rounds up to this size meet the guard pages at both ends; larger ones take turns."""


@dataclass
class _Findings:
    error_ratio: float = 0.0
    rounds: int = 0
    proven: int = 0
    told: set[str] = field(default_factory=set)
    packed_bytes: int = 0
    scratch_bytes: int = 0


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
        with one_blas_thread():
            trial.hold(timed=timed)
    except Refusal as refusal:
        reason, detail = refusal.reason, refusal.detail
    return trial.verdict(reason, detail, time.monotonic() - began)


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
    with one_blas_thread():
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
        self._effort = effort
        self._seed = seed
        self._machine = machine
        self._core = core
        self._limit_s = limit_s
        self._must_win = must_win
        self._found = _Findings()
        self._contest = Contest(operator, self._points, effort, seed, machine)

    def hold(self, *, timed: bool) -> None:
        symbols.check(self._candidate.library)
        claims.check(self._candidate.library, self._candidate.claims)
        timed_sizes = [point.dims for point in self._points]
        plan = rounds.plan(self._operator, timed_sizes, self._seed)
        with ExitStack() as stack:
            mine = self._open(stack, plan)
            for test in plan[: rounds.SCREENING]:
                self._round(mine, test)
            if timed:
                self._time(mine, stack)
                if self._incumbent is not None and self._must_win:
                    self._confirm()
            for test in plan[rounds.SCREENING :]:
                self._round(mine, test)
            mine.finish()
        if self._found.proven < PROVEN_ROUNDS:
            raise JudgeError(
                f"{self._operator.name}: only {self._found.proven} rounds refuse a no-op, a zero "
                f"and a copy kernel, wanted {PROVEN_ROUNDS}; samples or bound prove too little"
            )
        untold = {t.name for t in self._operator.by_role("output")} - self._found.told
        if untold:
            raise JudgeError(
                f"{self._operator.name}: no round refuses zeros in {', '.join(sorted(untold))}"
            )
        if timed:
            self._found.error_ratio = max(self._found.error_ratio, self._contest.recheck())
        if self._candidate.sources:
            self._sanitize(plan)

    def _confirm(self) -> None:
        """The win once more in two fresh processes: where the system puts code and data is luck
        that lasts as long as a process and looks like speed.
        """
        first = self._contest
        self._contest = Contest(
            self._operator, self._points, self._effort, self._seed + b"again", self._machine
        )
        with ExitStack() as stack:
            self._time(self._open(stack, ()), stack)
        self._contest.recheck()
        first.extend(self._contest)
        self._contest = first

    def hold_race(self) -> None:
        symbols.check(self._candidate.library)
        with ExitStack() as stack:
            self._time(self._open(stack, ()), stack)

    def race(self, points: Sequence[Point]) -> Race:
        return self._contest.race(points)

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
            self._found.told |= rounds.tells(self._operator, want, bound, exact=exact)
            if rounds.proves(self._operator, sample, want, bound, exact=exact):
                self._found.proven += 1
                break
            if not any(array.size for array in want.values()):
                break  # an empty answer proves nothing, however often it is drawn
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
        self._contest.run(mine, other)
        if other is not None and self._must_win:
            self._contest.require_win()

    def _sanitize(self, plan: Sequence[rounds.Round]) -> None:
        # The lightest timed size and a tail: memory errors live at edges, not in volume.
        cases = [(test.dims, rounds.arrays(self._operator, test, self._seed)) for test in plan[:2]]
        sanitize.check(self._candidate, self._operator, cases)

    def verdict(self, reason: str, detail: str, seconds: float) -> Verdict:
        found = self._found
        contest = self._contest
        ratio, low, high = contest.ratio()
        return Verdict(
            accepted=reason == ACCEPTED,
            reason=reason,
            detail=detail,
            max_error_ratio=found.error_ratio,
            time_ns=contest.time_ns,
            ratio_vs_incumbent=ratio,
            ratio_lo=low,
            ratio_hi=high,
            roofline_fraction=contest.roofline_fraction,
            rounds=found.rounds,
            timed_calls=contest.calls,
            prepare_ns=contest.prepare_ns,
            packed_bytes=found.packed_bytes,
            scratch_bytes=found.scratch_bytes,
            sandbox=sandbox.protection().text(),
            seconds=seconds,
        )
