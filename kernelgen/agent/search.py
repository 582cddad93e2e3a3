"""The search over one operator: propose, evaluate, repair, keep what wins, adjust, stop.

In: a search space, an evaluator (live: compiler and judge; replay: a file of records), a generator,
proposers, a budget.
Out: `Found`. Time and money are what the trials say they took, so a replay takes the same decisions
without hardware.
Never here: compiling, judging, files, a clock of its own (live searches hand in a stopwatch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol

import numpy as np

from kernelgen.agent.proposals import FAULT, Offer, Proposal, Unusable
from kernelgen.agent.proposers import Bandit, History, Proposer, standard
from kernelgen.agent.records import Trial
from kernelgen.agent.worth import Worth
from kernelgen.schedule import Schedule, SearchSpace

PATIENCE = 40
"""Trials in a row without a gain after which an operator is left alone."""

FIRST_TRIES = 20
"""Random schedules tried when the default is refused, before the operator is given up."""

CLOSING = "closing"
"""Proposer of the trial in which the winner meets the first correct kernel."""

FAULTS_IN_A_ROW = 3
"""Failures of the machine (not of a candidate) in a row after which a search ends."""


class Evaluator(Protocol):
    """Turns an offer into a trial; `incumbent` is None while there is no correct kernel yet.

    `proposing_s` is what the offer took; a replay answers with the recorded time instead.
    """

    def evaluate(
        self,
        offer: Offer,
        incumbent: Proposal | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial: ...


@dataclass(frozen=True)
class Limits:
    """What ends a search beside its seconds; None is no limit."""

    trials: int | None = None
    money: Decimal | None = None
    worth: Worth | None = None
    patience: int = PATIENCE


@dataclass
class Found:
    """`best` is the best accepted proposal, None when nothing was correct. `ended` says in a word
    why the search stopped.

    `speed` is against the first correct kernel, mostly `default`: once the search is over, that of
    a direct race (`closing`), since a chain of wins proves no sum of them on a machine that changes
    meanwhile. After Ctrl-C it is the product of the chain.
    """

    default: Schedule
    best: Proposal | None = None
    schedule: Schedule | None = None
    """The best accepted schedule, the same as `best` unless a written kernel won."""
    speed: float = 1.0
    trials: list[Trial] = field(default_factory=list)
    closing: Trial | None = None
    """The last winner against the first correct kernel; None when it won directly, or did not."""
    interrupted: bool = False
    ended: str = ""

    @property
    def seconds(self) -> float:
        return sum(trial.seconds + trial.proposing_s for trial in self._paid)

    @property
    def cost(self) -> Decimal:
        return sum((Decimal(trial.cost) for trial in self._paid), Decimal(0))

    @property
    def _paid(self) -> list[Trial]:
        return self.trials if self.closing is None else [*self.trials, self.closing]

    @property
    def accepted(self) -> int:
        return sum(trial.accepted for trial in self.trials)


def _no_clock() -> float:
    return 0.0


def search(
    space: SearchSpace,
    evaluator: Evaluator,
    rng: np.random.Generator,
    *,
    budget_s: float,
    starts: Mapping[str, Proposal] | None = None,
    proposers: Sequence[Proposer] | None = None,
    limits: Limits | None = None,
    patience: int | None = None,
    stopwatch: Callable[[], float] = _no_clock,
    on_trial: Callable[[Trial], None] | None = None,
) -> Found:
    """Search until `budget_s` seconds of trials are spent, a limit is met or the space is tried.

    `starts` are proposals worth trying first, by where they come from: the winner of earlier
    records, what won for a similar operator. They are judged like any other. Ctrl-C ends the search
    and keeps the best so far (`interrupted` is then true). `proposers` are those of
    `kernelgen.agent.proposers` when None; `stopwatch` (seconds) times them.
    """
    found = Found(space.default())
    limits = limits or Limits()
    if patience is not None:
        limits = Limits(limits.trials, limits.money, limits.worth, patience)
    bandit = Bandit(standard() if proposers is None else proposers)
    run = _Search(space, evaluator, rng, found, budget_s, limits, bandit, stopwatch, on_trial)
    try:
        found.ended = run.run(starts or {})
        run.close()
    except KeyboardInterrupt:
        found.interrupted = True
        found.ended = "interrupted"
    return found


class _Search:
    def __init__(
        self,
        space: SearchSpace,
        evaluator: Evaluator,
        rng: np.random.Generator,
        found: Found,
        budget_s: float,
        limits: Limits,
        bandit: Bandit,
        stopwatch: Callable[[], float],
        on_trial: Callable[[Trial], None] | None,
    ) -> None:
        self._space = space
        self._evaluator = evaluator
        self._rng = rng
        self._found = found
        self._budget_s = budget_s
        self._limits = limits
        self._bandit = bandit
        self._stopwatch = stopwatch
        self._on_trial = on_trial
        self._history = History(found.default)
        self._first_correct: Proposal | None = None
        self._wins = 0
        self._faults = 0
        self._idle = 0

    def run(self, starts: Mapping[str, Proposal]) -> str:
        """The whole search; returns why it ended."""
        self._first(starts)
        while self._found.best is not None:
            if self._spent():
                return self._spent()
            if self._idle >= self._limits.patience:
                return "patience"
            began = self._stopwatch()
            try:
                proposal = self._bandit.propose(self._space, self._history, self._rng)
            except OSError as error:
                proposal = ("fault", self._fault(error))
            if proposal is None:
                return "space tried"
            name, offer = proposal
            self._settle(name, offer, self._stopwatch() - began)
        return self._spent() or "nothing correct"

    def close(self) -> None:
        """Race the winner of a chain of wins against what the chain began with; a winner that is
        not faster than that is none.
        """
        found = self._found
        if self._wins < 2 or found.best is None:
            return
        found.closing = self._evaluator.evaluate(
            found.best, self._first_correct, number=len(found.trials), proposer=CLOSING
        )
        if found.closing.accepted and found.closing.ratio is not None:
            found.speed = found.closing.ratio
            return
        found.best, found.speed = self._first_correct, 1.0
        found.schedule = found.best if isinstance(found.best, Schedule) else None

    def _first(self, starts: Mapping[str, Proposal]) -> None:
        trial = self._attempt(self._found.default, "default")
        while trial.reason == FAULT and not self._spent():
            trial = self._attempt(self._found.default, "default")
        for origin, start in starts.items():
            if not self._spent() and self._new(start):
                self._attempt(start, origin)
        for _ in range(FIRST_TRIES):
            if self._found.best is not None or self._spent():
                break
            schedule = self._space.sample(self._rng)
            if schedule not in self._history.speed:
                self._attempt(schedule, "sample")

    def _new(self, start: Proposal) -> bool:
        if isinstance(start, Schedule):
            return start not in self._history.speed and self._space.legal(start) is None
        return start.text() not in self._history.written

    def _settle(self, name: str, offer: Offer, proposing_s: float) -> None:
        """One offer and the repairs its proposer makes of it."""
        trial = self._attempt(offer, name, proposing_s)
        while not trial.accepted and trial.reason != FAULT and not self._spent():
            began = self._stopwatch()
            try:
                again = self._bandit.repair(name, self._space, self._history, trial, self._rng)
            except OSError as error:
                again = self._fault(error)
            if again is None:
                break
            trial = self._attempt(again, name, self._stopwatch() - began)
        self._idle = 0 if trial.accepted else self._idle + 1

    def _fault(self, error: OSError) -> Unusable:
        # A proposer writes down what a server answered; a full disk is nobody's proposal.
        return Unusable(self._found.default.operator, len(self._found.trials), FAULT, str(error))

    def _attempt(self, offer: Offer, proposer: str, proposing_s: float = 0.0) -> Trial:
        found = self._found
        trial = self._evaluator.evaluate(
            offer,
            found.best,
            number=len(found.trials),
            proposer=proposer,
            proposing_s=proposing_s,
        )
        found.trials.append(trial)
        self._faults = self._faults + 1 if trial.reason == FAULT else 0
        self._learn(trial, offer)
        gain = math.log(trial.ratio or 1.0) if trial.accepted else 0.0
        self._bandit.learn(proposer, gain, trial.seconds + trial.proposing_s)
        if self._on_trial is not None:
            self._on_trial(trial)
        return trial

    def _learn(self, trial: Trial, offer: Offer) -> None:
        found, history = self._found, self._history
        history.trials.append(trial)
        if isinstance(offer, Unusable) or trial.reason == FAULT:
            return  # nothing was learnt about the space; a fault may be tried again
        comparable = trial.reason in ("accepted", "slower") and trial.ratio is not None
        speed = found.speed * (trial.ratio or 1.0) if comparable else None
        if trial.accepted:
            speed = found.speed = found.speed * (trial.ratio or 1.0) if found.best else 1.0
            self._wins += found.best is not None
            self._first_correct = self._first_correct or offer
            found.best = history.best = offer
        if isinstance(offer, Schedule):
            history.speed[offer] = speed
            if trial.accepted:
                found.schedule = history.incumbent = offer
        else:
            history.written[offer.text()] = offer

    def _reserve(self) -> Decimal:
        """What the closing race may cost."""
        if not self._wins:
            return Decimal(0)
        return max(Decimal(trial.cost) for trial in self._found.trials)

    def _spent(self) -> str:
        """Why nothing more may be tried; empty while it may."""
        found, limits = self._found, self._limits
        if found.seconds >= self._budget_s and found.trials:
            return "budget"
        if limits.trials is not None and len(found.trials) >= limits.trials:
            return "trials"
        if limits.money is not None and found.cost + self._reserve() >= limits.money:
            return "money"
        if self._faults >= FAULTS_IN_A_ROW:
            return "faults"
        if limits.worth is not None and limits.worth.used_up(found.trials):
            return "not worth it"
        return ""


def transferred(space: SearchSpace, winner: Schedule) -> Schedule | None:
    """The default of `space` with what `winner`, of a similar operator, chose differently; None if
    that is not legal here.
    """
    choices = space.default().as_dict
    if len(set(choices) ^ set(winner.as_dict)) > 1:
        return None  # another family: the same words would mean other things
    shared = {axis: value for axis, value in winner.choices if axis in choices}
    schedule = Schedule.of(space.operator, {**choices, **shared})
    return schedule if space.legal(schedule) is None else None
