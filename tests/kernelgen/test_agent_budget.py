"""What ends a search (seconds, trials, money, worth, faults), and who takes part in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from kernelgen.agent.proposals import FAULT
from kernelgen.agent.proposers import Bandit, History, standard
from kernelgen.agent.records import Trial
from kernelgen.agent.search import Found, Limits, search
from kernelgen.agent.worth import Worth
from kernelgen.schedule import Schedule, SearchSpace
from kernelgen.schedule.schedule import Value
from tests.kernelgen.test_agent_search import Landscape, _space, _trial


def test_limits_of_trials_and_money_end_a_search() -> None:
    class Priced(Landscape):
        def seen(self, trial: Trial) -> Trial:
            return replace(trial, cost="0.25")

    def run(limits: Limits) -> Found:
        return search(_space(), Priced(), np.random.default_rng(0), budget_s=60.0, limits=limits)

    by_trials, by_money = run(Limits(trials=7)), run(Limits(money=Decimal("2.50")))
    assert (by_trials.ended, len(by_trials.trials)) == ("trials", 7)
    assert (by_money.ended, by_money.cost) == ("money", Decimal("2.50"))


def test_a_search_stops_when_the_next_minute_costs_more_than_it_brings() -> None:
    def run(value: str) -> Found:
        worth = Worth(Decimal(value), Decimal("0.01"), share=0.5)
        limits = Limits(worth=worth, patience=10**6)
        return search(_space(), Landscape(), np.random.default_rng(0), budget_s=60.0, limits=limits)

    cheap, dear = run("0.02"), run("1000")
    assert cheap.ended == "not worth it"
    assert dear.ended == "budget"
    assert len(cheap.trials) < len(dear.trials)
    assert cheap.schedule is not None


def test_what_a_minute_is_worth_follows_share_roofline_and_recent_wins() -> None:
    def trials(roofline: float | None, wins: int) -> list[Trial]:
        return [
            _trial(
                reason="accepted" if number < wins else "slower",
                ratio=1.1 if number < wins else 0.9,
                roofline_fraction=roofline,
            )
            for number in range(20)
        ]

    def minute(trials: list[Trial], share: float = 1.0) -> float:
        return float(Worth(Decimal(100), Decimal(1), share).next_minute(trials))

    assert minute(trials(0.5, 4), 0.5) == pytest.approx(minute(trials(0.5, 4)) / 2)
    slow = [replace(trial, seconds=30.0) for trial in trials(0.5, 4)]
    rarer = [replace(trial, seconds=30.0) for trial in trials(0.5, 1)]
    assert minute(slow) > minute(rarer)
    assert minute(trials(0.99, 4)) == pytest.approx(1.0)  # one hundredth of 100 is left to win
    assert minute([]) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="share"):
        Worth(Decimal(1), Decimal(1), 1.5)


def test_a_fault_is_tried_again_and_three_in_a_row_end_the_search() -> None:
    class Faulty(Landscape):
        def __init__(self, broken: set[int]) -> None:
            super().__init__()
            self.broken = broken

        def seen(self, trial: Trial) -> Trial:
            broken = trial.number in self.broken
            return replace(trial, reason=FAULT, ratio=None) if broken else trial

    found = search(_space(), Faulty({0, 4}), np.random.default_rng(0), budget_s=20.0)
    assert found.ended == "budget"
    assert [t.schedule for t in found.trials[:2]] == [found.default.text()] * 2
    ended = search(_space(), Faulty({3, 4, 5}), np.random.default_rng(0), budget_s=20.0)
    assert (ended.ended, len(ended.trials)) == ("faults", 6)
    assert ended.best is not None


class Handbook:
    """The recipe of docs: a proposer of one's own, here one that reads a list of good ideas."""

    name = "handbook"

    def __init__(self, *ideas: Mapping[str, Value]) -> None:
        self._ideas = list(ideas)

    def propose(
        self, space: SearchSpace, history: History, rng: np.random.Generator
    ) -> Schedule | None:
        while self._ideas:
            idea = Schedule.of(space.operator, {**history.incumbent.as_dict, **self._ideas.pop(0)})
            if idea not in history.speed and space.legal(idea) is None:
                return idea
        return None

    def repair(
        self, space: SearchSpace, history: History, trial: Trial, rng: np.random.Generator
    ) -> Schedule | None:
        return None


def test_a_proposer_of_ones_own_takes_part_by_the_recipe() -> None:
    handbook = Handbook({"a": 99}, {"a": 8}, {"b": 3, "kind": "odd"})
    found = search(
        _space(),
        Landscape(),
        np.random.default_rng(0),
        budget_s=30.0,
        proposers=standard(handbook),
    )
    made = [trial for trial in found.trials if trial.proposer == "handbook"]
    assert len(made) == 2
    assert all(trial.accepted for trial in made)
    assert handbook.propose(_space(), History(found.default), np.random.default_rng(0)) is None


def test_old_gains_fade() -> None:
    bandit = Bandit()
    bandit.learn("sample", 1.0, 1.0)
    for _ in range(30):
        bandit.learn("sample", 0.0, 1.0)
        bandit.learn("mutate", 0.01, 1.0)
    assert bandit.standing()["mutate"] > bandit.standing()["sample"]
