"""Where the next candidate comes from: several proposers behind one interface, mixed by what has
paid off.

In: a search space, the history of one operator's search, a random generator. Out: an offer not
tried before, and, when it failed, a repair of it.
Never here: a compiler, a clock, a verdict. The same history and generator make the same offer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernelgen.agent.proposals import Offer, Proposal, Written
from kernelgen.agent.records import Trial
from kernelgen.schedule import Schedule, SearchSpace

ELITE = 6
ATTEMPTS = 40
FADING = 0.8
BONUS = 0.7
"""How much asking somebody who was hardly asked is worth, against the best standing of 1."""


@dataclass
class History:
    """What is known: the best schedule, every tried schedule with its speed against the default
    (None: unusable), every trial in order, written kernels by their text, and the best of all.
    """

    incumbent: Schedule
    speed: dict[Schedule, float | None] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    written: dict[str, Written] = field(default_factory=dict)
    best: Proposal | None = None

    def elite(self) -> list[Schedule]:
        """The fastest correct schedules, best first; the incumbent always among them."""
        usable = [(speed, schedule) for schedule, speed in self.speed.items() if speed is not None]
        usable.sort(key=lambda pair: (-pair[0], pair[1]))
        best = [schedule for _, schedule in usable[:ELITE]]
        return best if self.incumbent in best else [self.incumbent, *best]


class Proposer(Protocol):
    """`propose` returns None when it has nothing new to offer; `repair` when it has no remedy for
    its own offer that became `trial`. Neither may raise for anything that a file or a server said.
    """

    name: str

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Offer | None: ...

    def repair(
        self, space: SearchSpace, history: History, trial: Trial, rng: np.random.Generator
    ) -> Offer | None: ...


class Plain:
    """A proposer that learns from a failure only by its place in the history."""

    def repair(
        self, space: SearchSpace, history: History, trial: Trial, rng: np.random.Generator
    ) -> Offer | None:
        return None


class Enumerate(Plain):
    """Every one-axis change of the incumbent, axis by axis: often the largest honest gain."""

    name = "enumerate"

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        tried = dict.fromkeys(space.axes, 0)
        fresh: dict[str, list[Schedule]] = {}
        for schedule in space.neighbours(history.incumbent):
            axis = _changed(history.incumbent, schedule)
            if schedule in history.speed:
                tried[axis] += 1
            else:
                fresh.setdefault(axis, []).append(schedule)
        if not fresh:
            return None
        # The least tried axis first: every choice is touched once before any is tried in depth.
        fewest = min(tried[axis] for axis in fresh)
        axes = sorted(axis for axis in fresh if tried[axis] == fewest)
        choices = fresh[axes[int(rng.integers(len(axes)))]]
        return choices[int(rng.integers(len(choices)))]


def _changed(a: Schedule, b: Schedule) -> str:
    other = b.as_dict
    return next(axis for axis, value in a.choices if other[axis] != value)


class Sample(Plain):
    """A legal schedule from anywhere: finds what no path of small steps leads to."""

    name = "sample"

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        return fresh(lambda: space.sample(rng), history)


class Mutate(Plain):
    """A small change of one of the best."""

    name = "mutate"

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        elite = history.elite()
        return fresh(lambda: space.mutate(weighted(elite, rng), rng), history)


class Cross(Plain):
    """A child of two of the best."""

    name = "cross"

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        elite = history.elite()
        if len(elite) < 2:
            return None
        return fresh(lambda: space.cross(weighted(elite, rng), weighted(elite, rng), rng), history)


def fresh(draw: Callable[[], Schedule], history: History) -> Schedule | None:
    """The first of at most `ATTEMPTS` draws that was not tried yet."""
    for _ in range(ATTEMPTS):
        schedule = draw()
        if schedule not in history.speed:
            return schedule
    return None


def weighted(elite: Sequence[Schedule], rng: np.random.Generator) -> Schedule:
    """Better ones more often: rank r has weight 1 / (r + 1)."""
    weights = 1.0 / np.arange(1, len(elite) + 1)
    return elite[int(rng.choice(len(elite), p=weights / weights.sum()))]


PROPOSERS: tuple[Proposer, ...] = (Enumerate(), Mutate(), Cross(), Sample())
"""Those that need nothing but the search itself."""


def standard(*more: Proposer) -> tuple[Proposer, ...]:
    """A fresh set for one search: `PROPOSERS`, then the costlier ones handed in."""
    return (*PROPOSERS, *more)


class Bandit:
    """Chooses the proposer with the best gain per second lately, plus a bonus for the rarely asked.

    UCB1 over discounted gains (Garivier and Moulines, 2011): with every trial the past gains and
    seconds of all proposers count `FADING` of what they did, so that what found the first easy
    gains does not lead for ever.
    """

    def __init__(self, proposers: Sequence[Proposer] = PROPOSERS) -> None:
        self._proposers = tuple(proposers)
        self._gain: dict[str, float] = {p.name: 0.0 for p in proposers}
        self._seconds: dict[str, float] = {p.name: 0.0 for p in proposers}
        self._asked: dict[str, int] = {p.name: 0 for p in proposers}

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> tuple[str, Offer] | None:
        """The next offer and who made it; None when nobody has one."""
        for proposer in sorted(self._proposers, key=self._rank):
            offer = proposer.propose(space, history, rng)
            if offer is not None:
                return proposer.name, offer
        return None

    def repair(
        self,
        name: str,
        space: SearchSpace,
        history: History,
        trial: Trial,
        rng: np.random.Generator,
    ) -> Offer | None:
        """What the proposer of `trial` makes of its failure."""
        for proposer in self._proposers:
            if proposer.name == name:
                return proposer.repair(space, history, trial, rng)
        return None

    def learn(self, name: str, log_gain: float, seconds: float) -> None:
        """`log_gain` is the logarithm of the accepted ratio, 0 for a refused trial."""
        if name not in self._asked:
            return
        for table in (self._gain, self._seconds):
            for other in table:
                table[other] *= FADING
        self._asked[name] += 1
        self._gain[name] += max(0.0, log_gain)
        self._seconds[name] += max(seconds, 1e-3)

    def standing(self) -> Mapping[str, float]:
        """Gain per second of every proposer, lately."""
        return {name: self._gain[name] / max(self._seconds[name], 1.0) for name in self._gain}

    def _rank(self, proposer: Proposer) -> tuple[float, int]:
        # Negative, so that the best sorts first; ties keep the declared order.
        order = self._proposers.index(proposer)
        asked = self._asked[proposer.name]
        if not asked:
            return (-math.inf, order)
        best = max(self.standing().values()) or 1.0
        bonus = BONUS * math.sqrt(math.log(1 + sum(self._asked.values())) / asked)
        return (-(self.standing()[proposer.name] / best + bonus), order)
