"""How `-n 2` divides the tests: what may time something never meets its like, and stands alone on
its core.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kernelgen.judge.clock import Match
from kernelgen.machine import describe
from tests.side_by_side import (
    FIRST,
    TIMED,
    TIMELESS,
    SideBySide,
    TimedBesideOthersError,
    no_clock,
    unit,
)

PROJECT = Path(__file__).parents[1]
FILES = sorted(
    path.relative_to(PROJECT).as_posix() for path in (PROJECT / "tests").rglob("test_*.py")
)
IDS = [f"{file}::test_{letter}" for file in FILES for letter in "abc"]


@dataclass(eq=False)
class Process:
    """Stands where xdist's connection to a test process stands: keeps what it is asked to run."""

    id: str
    asked: list[int] = field(default_factory=list)
    shutting_down: bool = False

    @property
    def gateway(self) -> Process:
        return self

    def send_runtest_some(self, indices: list[int]) -> None:
        self.asked += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def divided(config: Any, *names: str) -> tuple[SideBySide, list[Process]]:
    """A division just begun; processes report to it in the order of their names."""
    sides, processes = SideBySide(config), [Process(name) for name in names]
    for process in processes:
        sides.add_node(process)
    for process in processes:
        sides.add_node_collection(process, IDS)
    sides.schedule()
    return sides, processes


@pytest.fixture
def config(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> pytest.Config:
    """This run's, but for two processes whether or not it has them."""
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen", "popen"])
    return pytestconfig


@pytest.mark.parametrize("names", [(FIRST, "gw1"), ("gw1", FIRST)])
def test_every_test_runs_once_and_all_that_is_timed_in_the_first_process(
    config: pytest.Config, names: tuple[str, str]
) -> None:
    sides, processes = divided(config, *names)
    done = {process.id: 0 for process in processes}
    while any(done[process.id] < len(process.asked) for process in processes):
        for process in processes:
            if done[process.id] < len(process.asked):
                sides.mark_test_complete(process, process.asked[done[process.id]])
                done[process.id] += 1
    assert sorted(number for process in processes for number in process.asked) == list(
        range(len(IDS))
    )
    (first,) = (process for process in processes if process.id == FIRST)
    timed = [number for number, name in enumerate(IDS) if unit(name) == TIMED]
    assert first.asked[: len(timed)] == timed


def test_the_timed_unit_of_a_process_that_died_goes_on_in_one_other(config: pytest.Config) -> None:
    sides, (first, other) = divided(config, FIRST, "gw1")
    assert sides.remove_node(first) == IDS[first.asked[0]]
    for number in other.asked:  # it grows on the way
        sides.mark_test_complete(other, number)
    asked = [number for number in other.asked if unit(IDS[number]) == TIMED]
    assert asked == first.asked


def test_the_files_named_are_there_and_what_times_is_not_among_them() -> None:
    for start in TIMELESS:
        assert any(file.startswith(start) for file in FILES), start
    for file in (
        "tests/attacks/test_attacks.py",
        "tests/kernelgen/test_judge_trial.py",
        "tests/kernelgen/test_agent_search.py",
        "tests/kernelgen/test_bench_ops.py",
        "tests/metering/measure/test_evidence.py",
        "tests/portal/test_pipeline_kill.py",
        "tests/kernelgen/test_that_nobody_has_written_yet.py",
    ):
        assert unit(f"{file}::test_a[1::2]") == TIMED, file


def test_the_second_process_keeps_off_the_first_core() -> None:
    program = (
        "import os; from tests.side_by_side import keep_off_the_first_core as keep\n"
        "for worker in (None, 'gw0', 'gw1'): keep(worker); print(*sorted(os.sched_getaffinity(0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    cores = sorted(os.sched_getaffinity(0))
    wanted = [cores, cores, cores[1:] or cores]
    assert [[int(word) for word in line.split()] for line in done.stdout.splitlines()] == wanted


def test_timing_beside_others_is_an_error_that_says_what_to_do() -> None:
    with no_clock("gw1"):
        with pytest.raises(TimedBesideOthersError, match="TIMELESS"):
            describe()
        with pytest.raises(TimedBesideOthersError, match="TIMELESS"):
            Match.run(None, None)  # type: ignore[arg-type]
        assert describe(measure=False).peak_gflops_per_core is None
    with no_clock(FIRST):
        assert describe(measure=False).cores
