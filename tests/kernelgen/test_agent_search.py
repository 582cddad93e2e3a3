"""Search strategies on recorded landscapes (no hardware), replay of a recorded search, records and
ledger.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from kernelgen.agent.gate import fit
from kernelgen.agent.ledger import Booking, Ledger
from kernelgen.agent.proposers import PROPOSERS, Bandit, Cross, History
from kernelgen.agent.records import Records, Trial, key, read
from kernelgen.agent.replay import UNKNOWN, Recorded, replay
from kernelgen.agent.search import CLOSING, Found, search, transferred
from kernelgen.agent.traffic import model_points, operator_points
from kernelgen.agent.workplace import move_into_place, workplace
from kernelgen.judge.contest import Point
from kernelgen.machine import describe
from kernelgen.ops import Attention, GemmBias
from kernelgen.schedule import Schedule, SearchSpace, space

SECONDS = 0.5


def _space() -> SearchSpace:
    return SearchSpace(
        operator="hill",
        axes={"a": tuple(range(12)), "b": tuple(range(12)), "kind": ("plain", "odd")},
        start={"a": 1, "b": 1, "kind": "plain"},
        rule=lambda choices: (
            "a, b: 5, 5 does not exist" if choices["a"] == choices["b"] == 5 else None
        ),
    )


def _speed(schedule: Schedule) -> float:
    """A hill with its top at a=8, b=3, kind=odd, ten per cent for a step."""
    a, b = schedule.number("a"), schedule.number("b")
    return math.exp(-0.1 * (abs(a - 8) + abs(b - 3)) + 0.2 * (schedule.word("kind") == "odd"))


class Landscape:
    """Trials computed from the hill; every eleventh schedule is wrong. `seen` may change one."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def evaluate(
        self,
        schedule: Schedule,
        incumbent: Schedule | None,
        *,
        number: int,
        proposer: str,
        proposing_s: float = 0.0,
    ) -> Trial:
        ratio = None if incumbent is None else _speed(schedule) / _speed(incumbent)
        wrong = (schedule.number("a") * 12 + schedule.number("b")) % 11 == 1
        reason = "accepted" if ratio is None or ratio > 1 else "slower"
        trial = Trial(
            key=f"{schedule.text()}/{incumbent}",
            operator="hill",
            number=number,
            proposer=proposer,
            schedule=schedule.text(),
            incumbent=None if incumbent is None else incumbent.text(),
            source_sha256="",
            reason="wrong_output" if wrong and number else reason,
            detail="",
            seconds=SECONDS,
            ratio=None if wrong and number else ratio,
        )
        trial = self.seen(trial)
        self.trials.append(trial)
        return trial

    def seen(self, trial: Trial) -> Trial:
        return trial


def _run(seed: int, budget_s: float = 60.0) -> tuple[Found, Landscape]:
    landscape = Landscape()
    return (
        search(_space(), landscape, np.random.default_rng(seed), budget_s=budget_s),
        landscape,
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_search_climbs_within_its_budget(seed: int) -> None:
    found, _ = _run(seed)
    assert found.schedule is not None
    top = _speed(Schedule.of("hill", {"a": 8, "b": 3, "kind": "odd"}))
    assert _speed(found.schedule) >= 0.9 * top
    assert found.speed == pytest.approx(_speed(found.schedule) / _speed(found.default))
    assert found.seconds <= 60.0 + SECONDS
    assert len({trial.schedule for trial in found.trials}) == len(found.trials)


def test_no_budget_still_judges_the_default() -> None:
    found, _ = _run(0, budget_s=0.0)
    assert len(found.trials) == 1
    assert found.schedule == found.default


def test_the_same_seed_searches_the_same_way_and_a_replay_repeats_it() -> None:
    found, landscape = _run(7)
    again, _ = _run(7)
    assert [t.schedule for t in found.trials] == [t.schedule for t in again.trials]
    replayed = replay(_space(), landscape.trials, np.random.default_rng(7), budget_s=60.0)
    assert [t.schedule for t in replayed.trials] == [t.schedule for t in found.trials]
    assert replayed.schedule == found.schedule
    assert replayed.speed == pytest.approx(found.speed)


def test_a_replay_does_not_invent_what_was_not_recorded() -> None:
    _, landscape = _run(7)
    known = Recorded(landscape.trials[:1])
    other = Schedule.of("hill", {"a": 0, "b": 0, "kind": "odd"})
    trial = known.evaluate(other, None, number=3, proposer="test")
    assert trial.reason == UNKNOWN
    assert trial.seconds == 0.0


def test_a_wrong_default_is_replaced_by_the_first_correct_schedule() -> None:
    class WrongAtFirst(Landscape):
        def seen(self, trial: Trial) -> Trial:
            return trial if trial.number > 2 else replace(trial, reason="wrong_output", ratio=None)

    found = search(_space(), WrongAtFirst(), np.random.default_rng(0), budget_s=30.0)
    assert found.schedule is not None
    assert found.schedule != found.default
    assert [t.proposer for t in found.trials[:3]] == ["default", "sample", "sample"]


def test_ctrl_c_keeps_the_best_so_far() -> None:
    class Interrupted(Landscape):
        def seen(self, trial: Trial) -> Trial:
            if trial.number == 25:
                raise KeyboardInterrupt
            return trial

    found = search(_space(), Interrupted(), np.random.default_rng(0), budget_s=60.0)
    assert found.interrupted
    assert len(found.trials) == 25
    assert found.schedule is not None
    assert found.speed > 1.0


class Circle(Landscape):
    """A machine that changes: whatever comes later seems a tenth faster than what it is raced
    with, and is in truth `direct` times as fast as the first of all.
    """

    def __init__(self, direct: float) -> None:
        super().__init__()
        self.direct = direct

    def seen(self, trial: Trial) -> Trial:
        if trial.incumbent is None:
            return trial
        ratio = self.direct if trial.proposer == CLOSING else 1.1
        return replace(trial, ratio=ratio, reason="accepted" if ratio > 1 else "slower")


def test_a_chain_of_wins_counts_for_what_it_wins_directly() -> None:
    found = search(_space(), Circle(1.25), np.random.default_rng(0), budget_s=30.0)
    assert found.closing is not None
    assert found.closing.accepted
    assert (found.closing.schedule, found.closing.incumbent) == (
        found.schedule.text() if found.schedule else "",
        found.default.text(),
    )
    assert found.speed == 1.25
    assert found.closing not in found.trials
    assert found.seconds == pytest.approx(
        sum(trial.seconds for trial in found.trials) + found.closing.seconds
    )


def test_a_chain_of_wins_that_leads_in_a_circle_wins_nothing() -> None:
    found = search(_space(), Circle(0.9), np.random.default_rng(0), budget_s=30.0)
    assert found.closing is not None
    assert found.best == found.schedule == found.default
    assert found.speed == 1.0


def test_an_old_winner_is_judged_again_before_it_counts() -> None:
    start = Schedule.of("hill", {"a": 8, "b": 3, "kind": "odd"})
    landscape = Landscape()
    found = search(
        _space(),
        landscape,
        np.random.default_rng(0),
        budget_s=60.0,
        starts={"records": start},
        patience=5,
    )
    assert landscape.trials[1].proposer == "records"
    assert landscape.trials[1].schedule == start.text()
    assert found.schedule == start


@pytest.mark.parametrize("proposer", PROPOSERS, ids=lambda p: p.name)
def test_proposers_offer_only_new_and_legal_schedules(proposer: Cross) -> None:
    space, rng = _space(), np.random.default_rng(1)
    history = History(space.default(), {space.default(): 1.0, space.sample(rng): 0.9})
    for _ in range(60):
        schedule = proposer.propose(space, history, rng)
        if schedule is None:
            break
        assert space.legal(schedule) is None
        assert schedule not in history.speed
        history.speed[schedule] = 0.5


def test_the_bandit_prefers_what_pays_per_second() -> None:
    bandit = Bandit()
    for proposer in PROPOSERS:
        bandit.learn(proposer.name, 0.0, 1.0)
    for _ in range(5):
        bandit.learn("mutate", 0.05, 1.0)
        bandit.learn("sample", 0.05, 20.0)
    standing = bandit.standing()
    assert max(standing, key=lambda name: standing[name]) == "mutate"
    space = _space()
    proposal = bandit.propose(space, History(space.default()), np.random.default_rng(0))
    assert proposal is not None
    assert proposal[0] == "mutate"


def _trial(**changes: object) -> Trial:
    first = Landscape().evaluate(_space().default(), None, number=0, proposer="default")
    return replace(first, **changes)


def test_every_choice_is_touched_before_any_is_tried_in_depth() -> None:
    space, rng = _space(), np.random.default_rng(2)
    history = History(space.default(), {space.default(): 1.0})
    for _ in range(3):
        schedule = PROPOSERS[0].propose(space, history, rng)
        assert schedule is not None
        history.speed[schedule] = None
    changed = {
        axis
        for schedule in history.speed
        for axis, value in schedule.choices
        if value != space.default().as_dict[axis]
    }
    assert changed == {"a", "b", "kind"}


def test_a_win_is_carried_to_a_similar_operator_only() -> None:
    machine = describe(measure=False)
    mine, other = space(GemmBias(64, 64), machine), space(GemmBias(128, 64), machine)
    winner = other.default().with_choice("order", "rows")
    moved = transferred(mine, winner)
    assert moved is not None
    assert moved.operator == mine.operator
    assert moved.word("order") == "rows"
    assert mine.legal(moved) is None
    assert transferred(space(Attention(2, 16, 0.25), machine), winner) is None


def test_records_survive_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Records(path).add(_trial(key="one"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    records = Records(path)
    assert records.find("one") is not None
    records.add(_trial(key="two", ratio=1.5))
    assert [trial.key for trial in read(path)] == ["one", "two"]
    assert Records(path).best("hill") == records.find("two")


def test_damage_in_the_middle_of_the_records_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    records = Records(path)
    records.add(_trial(key="one"))
    records.add(_trial(key="two"))
    lines = path.read_text().splitlines()
    path.write_text(f'{lines[0]}\n{{"key": 3}}\n{lines[1]}\n')
    with pytest.raises(ValueError, match=r"trials\.jsonl line 2"):
        list(read(path))


def test_an_endless_ratio_is_written_as_null(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    Records(path).add(_trial(ratio=math.inf))
    assert json.loads(path.read_text())["ratio"] is None


def test_a_key_changes_with_everything_a_timing_depends_on() -> None:
    machine = describe(measure=False)
    operator, points = GemmBias(8, 16), (Point({"m": 4}),)
    base = key(operator, points, "int x;", ("-O3",), machine)
    assert base == key(operator, points, "int x;", ("-O3",), machine)
    others = [
        key(GemmBias(8, 32), points, "int x;", ("-O3",), machine),
        key(operator, (Point({"m": 5}),), "int x;", ("-O3",), machine),
        key(operator, (Point({"m": 4}, 2.0),), "int x;", ("-O3",), machine),
        key(operator, points, "int y;", ("-O3",), machine),
        key(operator, points, "int x;", ("-O2",), machine),
        key(operator, points, "int x;", ("-O3",), replace(machine, fingerprint="other")),
        key(operator, points, "int x;", ("-O3",), replace(machine, isa=("avx2",))),
    ]
    assert len({base, *others}) == len(others) + 1


def test_the_ledger_books_failures_too_and_adds_exactly(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl", Decimal("0.36"), "EUR")
    ledger.book(Booking("a", "compile", "not_compiled", 1.5))
    ledger.book(Booking("a", "judge", "slower", 0.25))
    assert ledger.seconds == Decimal("1.75")
    assert ledger.cost == Decimal("0.000175")
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [line["outcome"] for line in lines] == ["not_compiled", "slower"]
    assert sum(Decimal(line["cost"]) for line in lines) == ledger.cost
    with pytest.raises(ValueError, match="price_per_core_hour"):
        Ledger(tmp_path / "other.jsonl", Decimal(-1), "EUR")


def test_points_follow_the_traffic() -> None:
    samples = [np.arange(1, length + 1, dtype=np.int64) for length in [5, 9, 7, 30] * 16]
    points = model_points(samples)
    assert [dict(point.dims)["n"] for point in points] == [1, 16]
    assert points[1].dims["tokens"] == 16 * 51 // 4
    assert sum(point.weight * point.dims["n"] for point in points) == pytest.approx(1.0)
    assert [p.dims for p in operator_points(GemmBias(8, 8), points)] == [
        {"m": p.dims["tokens"]} for p in points
    ]
    assert [p.dims for p in operator_points(Attention(2, 8, 1.0), points)] == [
        p.dims for p in points
    ]
    with pytest.raises(ValueError, match="samples"):
        model_points([])


def test_a_dead_search_leaves_nothing_and_loses_nothing(tmp_path: Path) -> None:
    out = tmp_path / "package"
    dead = 2**22 + 1  # above the largest process id
    (tmp_path / f".package.work.{dead}").mkdir()
    moved = tmp_path / f".package.old.{dead}"
    moved.mkdir()
    (moved / "manifest.json").write_text("old")
    mine = tmp_path / ".package.work.1"
    mine.mkdir()
    with workplace(out) as work:
        assert (out / "manifest.json").read_text() == "old"
        (work / "new").mkdir()
        (work / "new" / "manifest.json").write_text("new")
        move_into_place(work / "new", out)
    assert (out / "manifest.json").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".package.work.1", "package"]


@pytest.mark.parametrize(
    ("lengths", "total", "longest"), [([3, 5], 8, 10), ([3, 5], 20, 10), ([9, 9, 9], 3, 9)]
)
def test_sentences_are_fitted_to_a_total(lengths: list[int], total: int, longest: int) -> None:
    fitted = fit(lengths, total, longest)
    assert sum(fitted) == total
    assert all(1 <= length <= longest for length in fitted)


def test_a_total_that_cannot_be_reached_is_wrong_use() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        fit([3, 5], 30, 10)
