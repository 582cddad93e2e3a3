"""The proposer that lets a learned model choose among many candidates nobody has compiled.

In: the history of this search, examples from records of similar operators. Out: the schedule with
the best predicted speed plus a bonus for being unlike anything tried, now and then one that is
merely good.
Never here: the model's inside; a prediction that reaches anyone as a measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kernelgen.agent.costmodel import UNUSABLE, CostModel, Example
from kernelgen.agent.proposers import History, Plain
from kernelgen.schedule import Schedule, SearchSpace

POOL = 160
"""Candidates drawn anywhere; as many again are drawn around the best."""

FEWEST = 5
"""Examples below which a guess is worth no more than a draw."""

BONUS = 0.5
"""Standard deviations added to a prediction: the less is known, the more a try teaches."""

CURIOUS = 0.15
"""Part of the offers that take one of the `MERELY_GOOD` instead of the best."""

MERELY_GOOD = 16

REFIT = 1.08
"""The model learns again when this search has so many times the trials it had last time."""

MOST_EXAMPLES = 600


class Predict(Plain):
    """Ranks candidates by a model trained on this search and on similar operators' records."""

    name = "predict"

    def __init__(self, facts: tuple[float, ...], similar: Sequence[Example] = ()) -> None:
        self._facts = facts
        self._similar = tuple(similar)[-MOST_EXAMPLES:]
        self._model: CostModel | None = None
        self._learnt = 0

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        mine = [
            Example(schedule, UNUSABLE if speed is None else math.log(speed), self._facts)
            for schedule, speed in history.speed.items()
        ]
        if len(mine) < 2 or len(mine) + len(self._similar) < FEWEST:
            return None
        pool = self._pool(space, history, rng)
        if not pool:
            return None
        seed = int(rng.integers(2**31))
        if self._model is None or len(mine) >= self._learnt * REFIT:
            self._model = self._model or CostModel(space.axes)
            self._model.fit([*self._similar, *mine], seed)
            self._learnt = len(mine)
        mean, spread = self._model.predict(pool, self._facts)
        order = np.argsort(-(mean + BONUS * spread), kind="stable")
        place = int(rng.integers(min(MERELY_GOOD, len(pool)))) if rng.random() < CURIOUS else 0
        return pool[int(order[place])]

    def _pool(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> list[Schedule]:
        """Legal schedules not tried yet: anywhere, around the best, and every neighbour of the
        very best.
        """
        elite = history.elite()
        drawn = [space.sample(rng) for _ in range(POOL)]
        drawn += [space.mutate(elite[n % len(elite)], rng) for n in range(POOL)]
        drawn += space.neighbours(history.incumbent)
        return [schedule for schedule in dict.fromkeys(drawn) if schedule not in history.speed]
