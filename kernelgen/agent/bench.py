"""The live evaluator: source, compiler, judge, records, ledger, for one operator.

In: a schedule. Out: a `Trial`, written to the records and paid for in the ledger before it is
returned.
Never here: what to try next.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernelgen.agent.ledger import Booking, Ledger, Work
from kernelgen.agent.records import Records, Trial, key
from kernelgen.emit import flags, source
from kernelgen.judge.clock import Effort
from kernelgen.judge.contest import Point, Race
from kernelgen.judge.session import Refusal
from kernelgen.judge.trial import judge_points, race
from kernelgen.judge.verdict import Candidate, Verdict
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule, ScheduleError
from kernelgen.targets.cpu import compile_shared

SECRET_BYTES = 32
SHARE_EFFORT = Effort(fewest=3, most=3)
"""A share needs no interval: it only says where to look first."""
SHARE_ATTEMPTS = 4
"""A small kernel on a busy core is easily timed wrong, which the judge notices and refuses."""


class Bench:
    """Judges schedules of one operator at the traffic's sizes. What it builds stays in `work`."""

    def __init__(
        self,
        operator: Operator,
        points: Sequence[Point],
        *,
        machine: Machine,
        core: int,
        work: Path,
        ledger: Ledger,
        records: Records,
        secret: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.operator = operator
        self.points = tuple(points)
        self._machine = machine
        self._core = core
        self._work = work
        self._ledger = ledger
        self._records = records
        self._secret = secret
        self._built: dict[Schedule, Candidate] = {}
        self._beaten: set[str] = set()

    def evaluate(
        self, schedule: Schedule, incumbent: Schedule | None, *, number: int, proposer: str
    ) -> Trial:
        """One trial against `incumbent` (or for correctness alone). Known refusals are not
        repeated; wins always are.
        """
        text = source(self.operator, schedule)
        options = flags(self._machine, schedule)
        name = key(self.operator, self.points, text, options, self._machine)
        known = self._records.find(name)
        if known is not None and self._still_holds(known, incumbent):
            return replace(known, number=number, proposer=proposer, seconds=0.0)
        began = time.monotonic()
        draft = Trial(
            key=name,
            operator=self.operator.name,
            number=number,
            proposer=proposer,
            schedule=schedule.text(),
            incumbent=None if incumbent is None else incumbent.text(),
            source_sha256=hashlib.sha256(text.encode()).hexdigest(),
            reason="not_compiled",
            detail="",
            seconds=0.0,
        )
        candidate, complaint = self._compile(schedule, text, options)
        if candidate is None:
            trial = replace(draft, detail=complaint[:2000])
        else:
            trial = self._judged(draft, candidate, incumbent)
        trial = replace(trial, seconds=time.monotonic() - began)
        if trial.accepted:
            self._beaten.add(trial.schedule)
        elif candidate is not None:
            candidate.library.unlink(missing_ok=True)
            self._built.pop(schedule, None)
        return self._records.add(trial)

    def time(self, schedule: Schedule) -> Race:
        """Times of a schedule at every point, without a verdict.

        A disturbed timing is taken again; Refusal when it does not compile, run or, after
        `SHARE_ATTEMPTS` times, hold still.
        """
        candidate, complaint = self._compile(
            schedule, source(self.operator, schedule), flags(self._machine, schedule)
        )
        if candidate is None:
            raise Refusal("not_compiled", complaint[:2000])
        for _ in range(SHARE_ATTEMPTS - 1):
            with contextlib.suppress(Refusal):
                return self._timed(candidate)
        return self._timed(candidate)

    def _timed(self, candidate: Candidate) -> Race:
        began = time.monotonic()
        outcome = "done"
        try:
            return race(
                candidate,
                self.operator,
                self.points,
                incumbent=None,
                seed_bytes=self._secret(SECRET_BYTES),
                machine=self._machine,
                core=self._core,
                effort=SHARE_EFFORT,
            )
        except Refusal as refusal:
            outcome = refusal.reason
            raise
        finally:
            self._book("share", outcome, time.monotonic() - began)

    def _still_holds(self, known: Trial, incumbent: Schedule | None) -> bool:
        if known.accepted:
            return False
        if known.reason != "slower":
            return True
        # Slower than something that the incumbent has beaten, or than the incumbent itself.
        against = {None if incumbent is None else incumbent.text(), *self._beaten}
        return known.incumbent in against

    def _compile(
        self, schedule: Schedule, text: str, options: tuple[str, ...]
    ) -> tuple[Candidate | None, str]:
        if schedule in self._built:
            return self._built[schedule], ""
        stem = hashlib.sha256(f"{text}\0{options}".encode()).hexdigest()[:24]
        outcome = compile_shared(text, options, self._work / f"{stem}.so")
        self._book("compile", "done" if outcome.path else "not_compiled", outcome.seconds)
        if outcome.path is None:
            return None, outcome.stderr
        self._built[schedule] = Candidate(schedule.operator, outcome.path, (text,), options)
        return self._built[schedule], ""

    def _judged(self, draft: Trial, candidate: Candidate, incumbent: Schedule | None) -> Trial:
        other: Candidate | None = None
        if incumbent is not None:
            other, complaint = self._compile(
                incumbent, source(self.operator, incumbent), flags(self._machine, incumbent)
            )
            if other is None:
                raise ScheduleError(f"the incumbent no longer compiles: {complaint[:500]}")
        verdict = judge_points(
            candidate,
            self.operator,
            self.points,
            incumbent=other,
            seed_bytes=self._secret(SECRET_BYTES),
            machine=self._machine,
            core=self._core,
        )
        self._book("judge", verdict.reason, verdict.seconds)
        return with_verdict(draft, verdict)

    def _book(self, work: Work, outcome: str, seconds: float) -> None:
        self._ledger.book(Booking(self.operator.name, work, outcome, seconds))


def with_verdict(draft: Trial, verdict: Verdict) -> Trial:
    """The draft with what the judge said."""
    return replace(
        draft,
        reason=verdict.reason,
        detail=verdict.detail[:2000],
        ratio=verdict.ratio_vs_incumbent,
        ratio_lo=verdict.ratio_lo,
        ratio_hi=verdict.ratio_hi,
        time_ns=verdict.time_ns,
        roofline_fraction=verdict.roofline_fraction,
    )
