"""The live evaluator: source, compiler, judge, records, ledger, for one operator.

In: a schedule, a written kernel or an unusable answer. Out: a `Trial`, written to the records and
paid for in the ledger before it is returned. When the machine fails (a full disk, a killed compiler
or candidate) the trial says so, is never held against the candidate, and the search goes on.
Never here: what to try next.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from kernelgen.agent.assembly import Assembly
from kernelgen.agent.knowledge import context
from kernelgen.agent.ledger import Booking, Ledger, Work
from kernelgen.agent.proposals import (
    FAULT,
    Offer,
    Proposal,
    Unusable,
    Written,
    kernel_digest,
)
from kernelgen.agent.records import Records, Trial, fresh, key
from kernelgen.agent.reduce import smallest
from kernelgen.emit import flags, source
from kernelgen.judge.clock import Effort
from kernelgen.judge.contest import Point, Race
from kernelgen.judge.intake import compile_closed
from kernelgen.judge.session import Refusal
from kernelgen.judge.trial import judge_points, race
from kernelgen.judge.verdict import Candidate, JudgeError, Verdict
from kernelgen.machine import Machine, isa_flags, vector_floats
from kernelgen.ops.operator import Operator
from kernelgen.schedule import Schedule, ScheduleError
from kernelgen.targets.cpu import CompileOutcome, compile_shared

SECRET_BYTES = 32
SHARE_EFFORT = Effort(fewest=3, most=3)
"""A share needs no interval: it only says where to look first."""
SHARE_ATTEMPTS = 4
"""A small kernel on a busy core is easily timed wrong, which the judge notices and refuses."""

REDUCED = ("wrong_output", "not_finite", "not_written", "crashed", "out_of_bounds", "sanitizer")
"""Refusals that an input shows best."""

_COMPILER_FAILED = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|[Kk]illed signal|signal 9\b"
    r"|Killed|Cannot allocate memory|cannot execute|Read-only file system|Input/output error"
)
_KILLED = "signal SIGKILL"
"""Only somebody outside can do that: the filter ends a kernel that tries it by itself."""

_MACHINE_FAILED = (OSError, JudgeError, subprocess.SubprocessError)


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
        first_alone: bool = True,
        parts: Assembly | None = None,
    ) -> None:
        """`first_alone`: whether the kernel a search begins with meets the sanitizers by itself.
        Inside a model it may wait: what replaces it meets them alone, and if nothing does, it meets
        them in the closing judgement of the model. `parts`: where a model's kernels come from, so
        that none is compiled once for its own trial and again for a race inside the model.
        """
        self.operator = operator
        self.points = tuple(points)
        self._machine = machine
        self._core = core
        self._work = work
        self._ledger = ledger
        self._records = records
        self._secret = secret
        self._first_alone = first_alone
        self._parts = parts
        self._built: dict[Proposal, Candidate] = {}
        self._beaten: set[str] = set()
        self.run = os.urandom(8).hex()
        """Names this search in the records."""
        self._context = context(operator, self.points, machine)
        self._owed = Decimal(0)
        self.unwritten = 0
        """Trials that no disk took."""

    def evaluate(
        self,
        offer: Offer,
        incumbent: Proposal | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial:
        """One trial against `incumbent` (or for correctness alone). Known refusals are not
        repeated; wins always are.
        """
        began = time.monotonic()
        draft = Trial(
            key="",
            operator=self.operator.name,
            number=number,
            proposer=proposer,
            schedule=offer.text(),
            incumbent=None if incumbent is None else incumbent.text(),
            source_sha256="",
            reason=FAULT,
            detail="",
            seconds=0.0,
            proposing_s=proposing_s,
            run=self.run,
            context=self._context,
        )
        try:
            if proposing_s:
                self._book("propose", "done", proposing_s)
            if isinstance(offer, Unusable):
                trial = replace(draft, reason=offer.reason, detail=offer.detail)
            else:
                trial = self._tried(draft, offer, incumbent)
        except _MACHINE_FAILED as error:
            trial = replace(draft, reason=FAULT, detail=f"{type(error).__name__}: {error}"[:2000])
        spared = bool(trial.at)  # stamped before: an old record stands for the trial
        return self._kept(replace(trial, seconds=0.0 if spared else time.monotonic() - began))

    def _tried(self, draft: Trial, offer: Proposal, incumbent: Proposal | None) -> Trial:
        try:
            text, options = self._text(offer), self._flags(offer)
        except ScheduleError as error:
            return replace(draft, reason="not_compiled", detail=str(error)[:2000])
        name = key(self.operator, self.points, text, options, self._machine)
        known = self._records.find(name)
        if known is not None and self._still_holds(known, incumbent):
            return replace(
                known,
                number=draft.number,
                proposer=draft.proposer,
                incumbent=draft.incumbent,
                proposing_s=draft.proposing_s,
                run=draft.run,
            )
        draft = replace(draft, key=name, source_sha256=hashlib.sha256(text.encode()).hexdigest())
        candidate, complaint = self._compile(offer)
        if candidate is None:
            return replace(draft, reason="not_compiled", detail=complaint[:2000])
        trial = self._judged(draft, offer, candidate, incumbent)
        if trial.accepted:
            self._beaten.add(trial.schedule)
            if isinstance(offer, Written):
                self._records.keep_source(offer)
            return trial
        if isinstance(offer, Written) and trial.reason in REDUCED:
            trial = replace(trial, evidence=self._smallest(candidate))
        candidate.library.unlink(missing_ok=True)
        self._built.pop(offer, None)
        return trial

    def _smallest(self, candidate: Candidate) -> str:
        began = time.monotonic()
        heaviest = max(self.points, key=lambda p: p.weight * self.operator.flops(p.dims))
        try:
            return smallest(candidate.library, self.operator, heaviest.dims)
        finally:
            self._book("judge", "reduced", time.monotonic() - began)

    def _kept(self, trial: Trial) -> Trial:
        """The trial with its price, on disk when the disk takes it."""
        trial, self._owed = replace(trial, cost=str(self._owed)), Decimal(0)
        try:
            return self._records.add(trial)
        except OSError as error:
            # The verdict stands, only its record is lost: an accepted kernel stays accepted.
            self.unwritten += 1
            if trial.accepted:
                return trial
            return replace(trial, reason=FAULT, detail=f"{type(error).__name__}: {error}"[:2000])

    def time(self, schedule: Schedule) -> Race:
        """Times of a schedule at every point, without a verdict.

        A disturbed timing is taken again; Refusal when it does not compile, run or, after
        `SHARE_ATTEMPTS` times, hold still.
        """
        candidate, complaint = self._compile(schedule)
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

    def _still_holds(self, known: Trial, incumbent: Proposal | None) -> bool:
        if known.accepted or known.reason == FAULT or not fresh(known, datetime.now(UTC)):
            return False
        if known.reason != "slower":
            return True
        # Slower than something that the incumbent has beaten, or than the incumbent itself.
        against = {None if incumbent is None else incumbent.text(), *self._beaten}
        return known.incumbent in against

    def _text(self, offer: Proposal) -> str:
        return offer.source if isinstance(offer, Written) else source(self.operator, offer)

    def _flags(self, offer: Proposal) -> tuple[str, ...]:
        if isinstance(offer, Schedule):
            return flags(self._machine, offer)
        isa = self._machine.isa
        plain = ("-O3", "-fno-math-errno", "-fno-trapping-math")
        return (*plain, *isa_flags(isa, vector_floats(isa)))

    def _compile(self, offer: Proposal) -> tuple[Candidate | None, str]:
        if offer in self._built:
            return self._built[offer], ""
        text, options = self._text(offer), self._flags(offer)
        stem = hashlib.sha256(f"{text}\0{options}".encode()).hexdigest()[:24]
        path = self._work / f"{stem}.so"
        for last in (False, True):
            outcome = self._build(offer, text, options, path)
            self._book("compile", "done" if outcome.path else "not_compiled", outcome.seconds)
            failed = isinstance(offer, Schedule) and _COMPILER_FAILED.search(outcome.stderr)
            if outcome.path is not None or not failed:
                break
            if last:  # twice: it is the machine and not a moment of it
                raise JudgeError(f"the compiler failed: {outcome.stderr[:1000]}")
        if outcome.path is None:
            return None, outcome.stderr
        self._built[offer] = Candidate(offer.operator, outcome.path, (text,), options)
        return self._built[offer], ""

    def _build(
        self, offer: Proposal, text: str, options: tuple[str, ...], path: Path
    ) -> CompileOutcome:
        if isinstance(offer, Schedule):
            if self._parts is not None:
                return self._parts.kernel(self.operator, offer, options, path)
            return compile_shared(text, options, path)
        try:
            return compile_closed(text, options, path)
        except Refusal as refused:
            return CompileOutcome(None, refused.detail, 0.0)

    def _judged(
        self, draft: Trial, offer: Proposal, candidate: Candidate, incumbent: Proposal | None
    ) -> Trial:
        other: Candidate | None = None
        if incumbent is not None:
            other, complaint = self._compile(incumbent)
            if other is None:
                raise JudgeError(f"the incumbent no longer compiles: {complaint[:500]}")
        later = incumbent is None and not self._first_alone and isinstance(offer, Schedule)
        verdict = judge_points(
            replace(candidate, sources=()) if later else candidate,
            self.operator,
            self.points,
            incumbent=other,
            seed_bytes=self._secret(SECRET_BYTES),
            machine=self._machine,
            core=self._core,
        )
        self._book("judge", verdict.reason, verdict.seconds)
        killed = verdict.reason == "crashed" and verdict.detail.startswith(_KILLED)
        # Our own text compiled a moment ago: that its sanitizer build does not is the machine's.
        broken = verdict.reason == "not_compiled" and _COMPILER_FAILED.search(verdict.detail)
        if killed or (broken and kernel_digest(draft.schedule) is None):
            return replace(draft, reason=FAULT, detail=verdict.detail[:2000])
        return with_verdict(draft, verdict)

    def book_tokens(self, outcome: str, tokens_in: int, tokens_out: int) -> None:
        """Tokens of one exchange; the seconds it took are booked as proposing."""
        self._charge(Booking(self.operator.name, "tokens", outcome, 0.0, tokens_in, tokens_out))

    def _book(self, work: Work, outcome: str, seconds: float) -> None:
        self._charge(Booking(self.operator.name, work, outcome, seconds))

    def _charge(self, booking: Booking) -> None:
        before = self._ledger.cost
        try:
            self._ledger.book(booking)
        finally:
            self._owed += self._ledger.cost - before


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
