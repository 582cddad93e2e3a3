"""How fast a GEMM search comes near its ten-minute best: on a recorded landscape always, live as a
benchmark.

The landscape (`data/landscape_*.json`) holds 912 schedules of one GEMM, every one of them compiled
and raced on a real core. A search on it meets real speeds and real costs of compiling and judging;
nothing is modelled but the machine's noise, which is left out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from kernelgen.agent.bench import Bench
from kernelgen.agent.costmodel import operator_facts
from kernelgen.agent.ledger import Ledger
from kernelgen.agent.predict import Predict
from kernelgen.agent.proposals import Offer, Proposal
from kernelgen.agent.proposers import PROPOSERS, Proposer, standard
from kernelgen.agent.records import Records, Trial
from kernelgen.agent.search import Found, Limits, search
from kernelgen.judge.contest import Point
from kernelgen.machine import Machine, describe
from kernelgen.ops import GemmBias
from kernelgen.schedule import Schedule, SearchSpace, space
from tests.quick import some

RECORDED = Path(__file__).with_name("data") / "landscape_gemm_bias_384x1152_m32.json"
SEEDS = range(5)
SOON_S, LONG_S = 60.0, 600.0
WANTED = 0.95
A_WIN = 1.01
"""Ratio from which the judge's interval and sign test let a win pass."""
WINNER_S = 1.6
"""Extra seconds of an accepted trial: all rounds, a second contest, a sanitizer build."""


class Landscape:
    """The recorded schedules as a search space and an evaluator."""

    def __init__(self) -> None:
        data = json.loads(RECORDED.read_text())
        self.operator = GemmBias(data["operator"]["k"], data["operator"]["n"])
        self.dims: Mapping[str, int] = data["dims"]
        axes = {axis: tuple(values) for axis, values in data["axes"].items()}
        self.speed: dict[Schedule, float] = {}
        self.compile_s: dict[Schedule, float] = {}
        for *places, speed, _races, compile_s in data["rows"]:
            choices = {
                axis: values[at] for (axis, values), at in zip(axes.items(), places, strict=True)
            }
            schedule = Schedule.of(self.operator.name, choices)
            self.speed[schedule], self.compile_s[schedule] = speed, compile_s
        self._judge_s = np.array(data["judge_s"])
        legal = {schedule.choices for schedule in self.speed}
        self.space = SearchSpace(
            self.operator.name,
            axes,
            data["default"],
            lambda choices: (
                None if tuple(sorted(choices.items())) in legal else "choices: not recorded"
            ),
        )
        slowest = min(self.speed, key=lambda schedule: self.speed[schedule])
        self.cold = replace(self.space, start=slowest.as_dict)
        self.evaluations = 0

    def evaluate(
        self,
        offer: Offer,
        incumbent: Proposal | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial:
        assert isinstance(offer, Schedule)
        self.evaluations += 1
        ratio = None
        if isinstance(incumbent, Schedule):
            ratio = self.speed[offer] / self.speed[incumbent]
        accepted = ratio is None or ratio >= A_WIN
        seconds = self.compile_s[offer] + float(np.interp(ratio or 1.0, *self._judge_s.T))
        return Trial(
            key=offer.text(),
            operator=offer.operator,
            number=number,
            proposer=proposer,
            schedule=offer.text(),
            incumbent=None if incumbent is None else incumbent.text(),
            source_sha256="",
            reason="accepted" if accepted else "slower",
            detail="",
            seconds=seconds + (WINNER_S if accepted else 0.0),
            ratio=ratio,
        )


@pytest.fixture(scope="module")
def recorded() -> Landscape:
    return Landscape()


def _team(operator: GemmBias, dims: Mapping[str, int]) -> tuple[Proposer, ...]:
    return standard(Predict(operator_facts(operator, (Point(dims),))))


def _minute(landscape: Landscape, where: SearchSpace, seed: int, team: bool = True) -> Found:
    return search(
        where,
        landscape,
        np.random.default_rng(seed),
        budget_s=SOON_S,
        proposers=_team(landscape.operator, landscape.dims) if team else PROPOSERS,
        limits=Limits(patience=10**6),
    )


def speed_at(found: Found, seconds: float) -> float:
    """Speed against the default of the best that was accepted within so many seconds."""
    spent, speed = 0.0, 1.0
    for trial in found.trials:
        spent += trial.seconds + trial.proposing_s
        if spent > seconds:
            break
        if trial.accepted and trial.ratio is not None:
            speed *= trial.ratio
    return speed


@pytest.mark.parametrize("start", ["default", "slowest"])
def test_a_recorded_gemm_search_is_near_the_best_within_a_minute(
    recorded: Landscape, start: str
) -> None:
    """Against the best of the whole landscape, which no ten-minute search can beat."""
    where = recorded.space if start == "default" else recorded.cold
    best = max(recorded.speed.values())
    parts = []
    for seed in SEEDS:
        found = _minute(recorded, where, seed)
        parts.append(recorded.speed[found.default] * speed_at(found, SOON_S) / best)
    print(f"from the {start}: median {np.median(parts):.3f} of the best, worst {min(parts):.3f}")
    assert np.median(parts) >= WANTED


def test_the_recorded_landscape_is_worth_searching(recorded: Landscape) -> None:
    """It cannot be passed by luck: few schedules are near the best, and a cold start is far."""
    speeds = np.array(sorted(recorded.speed.values()))
    assert len(speeds) == 912
    assert (speeds >= WANTED * speeds[-1]).mean() < 0.1
    assert recorded.speed[recorded.cold.default()] < 0.3 * speeds[-1]


def test_the_learned_model_saves_time(recorded: Landscape) -> None:
    """Seconds until 95 % of the best, from the slowest schedule: with the model against without."""

    def needed(found: Found) -> float:
        spent, speed = 0.0, recorded.speed[found.default]
        for trial in found.trials:
            spent += trial.seconds
            speed *= trial.ratio if trial.accepted and trial.ratio is not None else 1.0
            if speed >= WANTED * max(recorded.speed.values()):
                return spent
        return SOON_S

    seeds = SEEDS
    mine = [needed(_minute(recorded, recorded.cold, seed)) for seed in seeds]
    plain = [needed(_minute(recorded, recorded.cold, seed, team=False)) for seed in seeds]
    print(f"median seconds to 95 %: {np.median(mine):.1f} with the model, {np.median(plain):.1f}")
    assert np.median(mine) < np.median(plain)


@pytest.mark.bench
def test_a_live_gemm_search_is_near_its_ten_minute_best_within_a_minute(tmp_path: Path) -> None:
    """The same on this machine's own compiler, judge and clock, from a slow start.

    The quick form makes one seed's search of a minute and looks at its first half.
    """
    quick = os.environ.get("IGNITION_QUICK") == "1"
    soon_s, long_s = (30.0, 60.0) if quick else (SOON_S, LONG_S)
    parts = [
        live(tmp_path / str(seed), describe(), seed, soon_s, long_s)
        for seed in some(list(SEEDS), 1)
    ]
    print(f"median {np.median(parts):.3f} of the best of {long_s:g} s after {soon_s:g} s")
    assert np.median(parts) >= WANTED


def live(folder: Path, machine: Machine, seed: int, soon_s: float, long_s: float) -> float:
    """One live search; the part of its final speed that was there after `soon_s` seconds.

    The best of either time is raced with the other directly. The ratios of a search's wins do not
    add up to that: on a core whose matrix unit is slow for some seconds and fast for others, two
    kernels can beat each other in turn for as long as the search lasts.
    """
    operator, point = GemmBias(384, 1152), Point({"m": 32})
    usual = space(operator, machine)
    slow = {**usual.start, "vector": 8, "mr": 4, "nr": 1, "tiles": 0, "prefetch": 0}
    bench = Bench(
        operator,
        (point,),
        machine=machine,
        core=max(os.sched_getaffinity(0)),
        work=folder / "work",
        ledger=Ledger(folder / "ledger.jsonl", Decimal(0), "USD"),
        records=Records(folder / "trials.jsonl"),
    )
    found = search(
        replace(usual, start=slow),
        bench,
        np.random.default_rng(seed),
        budget_s=long_s,
        proposers=_team(operator, point.dims),
        limits=Limits(patience=10**6),
        stopwatch=time.monotonic,
    )
    soon, late = (best_at(found, seconds) for seconds in (soon_s, long_s))
    if soon == late:
        return 1.0
    direct = bench.evaluate(soon, late, number=len(found.trials), proposer="soon against late")
    assert direct.ratio is not None, direct.detail
    return direct.ratio


def best_at(found: Found, seconds: float) -> Schedule:
    """The last schedule that was accepted within so many seconds."""
    spent, best = 0.0, found.default
    for trial in found.trials:
        spent += trial.seconds + trial.proposing_s
        if spent > seconds:
            break
        if trial.accepted:
            best = Schedule.parse(trial.schedule)
    return best
