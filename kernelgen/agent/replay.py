"""A search played again from its records, without compiler, judge or hardware.

In: `trials.jsonl`, the search space, the seed. Out: the same search: same proposals, same winner.
It shows how a result came about, and lets a strategy be tested on recorded landscapes.
Never here: a time of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from kernelgen.agent.records import Trial
from kernelgen.agent.search import PATIENCE, Found, search
from kernelgen.schedule import Schedule, SearchSpace

UNKNOWN = "not_recorded"


class Recorded:
    """An evaluator that looks trials up. A schedule without a record is refused as `not_recorded`
    at no cost.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials: dict[tuple[str, str | None], Trial] = {}
        self._latest: dict[str, Trial] = {}
        for trial in trials:
            self._trials[trial.schedule, trial.incumbent] = trial
            self._latest[trial.schedule] = trial

    def evaluate(
        self, schedule: Schedule, incumbent: Schedule | None, *, number: int, proposer: str
    ) -> Trial:
        against = None if incumbent is None else incumbent.text()
        known = self._trials.get((schedule.text(), against))
        if known is None:
            # Refused whatever it was compared with: wrong is wrong.
            known = self._latest.get(schedule.text())
            if known is not None and known.reason in ("accepted", "slower"):
                known = None
        if known is None:
            known = Trial(
                key="",
                operator=schedule.operator,
                number=number,
                proposer=proposer,
                schedule=schedule.text(),
                incumbent=against,
                source_sha256="",
                reason=UNKNOWN,
                detail="no trial of this schedule against this incumbent is on record",
                seconds=0.0,
            )
        return replace(known, number=number, proposer=proposer)


def replay(
    space: SearchSpace,
    trials: Iterable[Trial],
    rng: np.random.Generator,
    *,
    budget_s: float,
    patience: int = PATIENCE,
) -> Found:
    """Run `search` over recorded trials of one operator."""
    own = [trial for trial in trials if trial.operator == space.operator]
    return search(space, Recorded(own), rng, budget_s=budget_s, patience=patience)
