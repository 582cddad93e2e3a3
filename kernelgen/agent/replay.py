"""A search played again from its records, without compiler, judge, server or hardware.

In: `trials.jsonl` (and `answers.jsonl` where a language model proposed), the search space, the
seed. Out: the same search: same proposals, same winner. It shows how a result came about, and lets
a strategy be tested on recorded landscapes.
Never here: a time of this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernelgen.agent.proposals import Offer, Proposal
from kernelgen.agent.proposers import Proposer
from kernelgen.agent.records import Trial
from kernelgen.agent.search import PATIENCE, Found, Limits, search
from kernelgen.schedule import SearchSpace

UNKNOWN = "not_recorded"


class Recorded:
    """An evaluator that looks trials up. An offer without a record is refused as `not_recorded`
    at no cost.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._trials: dict[tuple[str, str | None], list[Trial]] = {}
        self._latest: dict[str, Trial] = {}
        for trial in trials:
            self._trials.setdefault((trial.schedule, trial.incumbent), []).append(trial)
            self._latest[trial.schedule] = trial

    def evaluate(
        self,
        offer: Offer,
        incumbent: Proposal | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial:
        against = None if incumbent is None else incumbent.text()
        known = self._look_up(offer.text(), against)
        if known is None:
            known = Trial(
                key="",
                operator=offer.operator,
                number=number,
                proposer=proposer,
                schedule=offer.text(),
                incumbent=against,
                source_sha256="",
                reason=UNKNOWN,
                detail="no trial of this schedule against this incumbent is on record",
                seconds=0.0,
            )
        return replace(known, number=number, proposer=proposer)

    def _look_up(self, text: str, against: str | None) -> Trial | None:
        same = self._trials.get((text, against))
        if same:
            # A fault may have been tried again: the tries come in the order they were made.
            return same.pop(0) if len(same) > 1 else same[0]
        # Refused whatever it was compared with: wrong is wrong.
        known = self._latest.get(text)
        return None if known is None or known.reason in ("accepted", "slower") else known


def runs(trials: Iterable[Trial], operator: str) -> list[list[Trial]]:
    """The trials of one operator, search by search, oldest first."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.operator == operator:
            found.setdefault(trial.run, []).append(trial)
    return list(found.values())


def replay(
    space: SearchSpace,
    trials: Iterable[Trial],
    rng: np.random.Generator,
    *,
    budget_s: float,
    starts: Mapping[str, Proposal] | None = None,
    proposers: Sequence[Proposer] | None = None,
    limits: Limits | None = None,
    patience: int = PATIENCE,
) -> Found:
    """Run `search` over recorded trials of one operator, with the proposers it was made with."""
    own = [trial for trial in trials if trial.operator == space.operator]
    limits = limits or Limits(patience=patience)
    return search(
        space,
        Recorded(own),
        rng,
        budget_s=budget_s,
        starts=starts,
        proposers=proposers,
        limits=limits,
    )
