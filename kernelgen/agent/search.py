"""The search over one operator: propose, evaluate, keep what wins, adjust, stop.

In: a search space, an evaluator (live: compiler and judge; replay: a file of records), a generator,
a budget.
Out: `Found`. Time is what the evaluator says its trials took, so a replay takes the same decisions
without hardware.
Never here: compiling, judging, clocks, files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelgen.agent.proposers import Bandit, History
from kernelgen.agent.records import Trial
from kernelgen.schedule import Schedule, SearchSpace

PATIENCE = 40
"""Trials in a row without a gain after which an operator is left alone."""

FIRST_TRIES = 20
"""Random schedules tried when the default is refused, before the operator is given up."""


class Evaluator(Protocol):
    """Turns a proposal into a trial; `incumbent` is None while there is no correct kernel yet."""

    def evaluate(
        self, schedule: Schedule, incumbent: Schedule | None, *, number: int, proposer: str
    ) -> Trial: ...


@dataclass
class Found:
    """`schedule` is the best accepted one, None when nothing was correct; `speed` is against
    `default`.
    """

    default: Schedule
    schedule: Schedule | None = None
    speed: float = 1.0
    trials: list[Trial] = field(default_factory=list)
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.trials)

    @property
    def accepted(self) -> int:
        return sum(trial.accepted for trial in self.trials)


def search(
    space: SearchSpace,
    evaluator: Evaluator,
    rng: np.random.Generator,
    *,
    budget_s: float,
    starts: Mapping[str, Schedule] | None = None,
    patience: int = PATIENCE,
    on_trial: Callable[[Trial], None] | None = None,
) -> Found:
    """Search until `budget_s` seconds of trials are spent, `patience` runs out or the space is
    tried.

    `starts` are schedules worth trying first, by where they come from: the winner of earlier
    records, what won for a similar operator. They are judged like any other. Ctrl-C ends the search
    and keeps the best so far (`interrupted` is then true).
    """
    found = Found(space.default())
    try:
        _search(space, evaluator, rng, found, budget_s, starts or {}, patience, on_trial)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _search(
    space: SearchSpace,
    evaluator: Evaluator,
    rng: np.random.Generator,
    found: Found,
    budget_s: float,
    starts: Mapping[str, Schedule],
    patience: int,
    on_trial: Callable[[Trial], None] | None,
) -> None:
    history = History(found.default)
    bandit = Bandit()

    def attempt(schedule: Schedule, proposer: str) -> Trial:
        trial = evaluator.evaluate(
            schedule, found.schedule, number=len(found.trials), proposer=proposer
        )
        found.trials.append(trial)
        _learn(trial, schedule, found, history)
        bandit.learn(
            proposer, math.log(trial.ratio or 1.0) if trial.accepted else 0.0, trial.seconds
        )
        if on_trial is not None:
            on_trial(trial)
        return trial

    attempt(found.default, "default")
    for origin, start in starts.items():
        if found.seconds < budget_s and start not in history.speed and space.legal(start) is None:
            attempt(start, origin)
    for _ in range(FIRST_TRIES):
        if found.schedule is not None or found.seconds >= budget_s:
            break
        schedule = space.sample(rng)
        if schedule not in history.speed:
            attempt(schedule, "sample")
    idle = 0
    while found.schedule is not None and found.seconds < budget_s and idle < patience:
        proposal = bandit.propose(space, history, rng)
        if proposal is None:
            return
        name, schedule = proposal
        idle = 0 if attempt(schedule, name).accepted else idle + 1


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


def _learn(trial: Trial, schedule: Schedule, found: Found, history: History) -> None:
    comparable = trial.reason in ("accepted", "slower") and trial.ratio is not None
    history.speed[schedule] = found.speed * (trial.ratio or 1.0) if comparable else None
    if not trial.accepted:
        return
    if found.schedule is not None:
        found.speed *= trial.ratio or 1.0
    history.speed[schedule] = found.speed
    found.schedule = history.incumbent = schedule
