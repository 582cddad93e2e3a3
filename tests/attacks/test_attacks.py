"""Every cheat is refused for the reason its file states, every honest kernel accepted. A new
fixture needs no change here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelgen.attacks import FixtureError, discover
from kernelgen.attacks.suite import Case, run_one
from kernelgen.machine import Machine, describe

CASES = discover()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", [case for case in CASES if not case.honest], ids=_name)
def test_cheat_is_caught(case: Case, machine: Machine, tmp_path: Path) -> None:
    result = run_one(case, machine, min(os.sched_getaffinity(0)), tmp_path)
    assert result.reason in case.expect, result.detail


@pytest.mark.parametrize("case", [case for case in CASES if case.honest], ids=_name)
def test_honest_kernel_is_accepted(case: Case, machine: Machine, tmp_path: Path) -> None:
    result = run_one(case, machine, min(os.sched_getaffinity(0)), tmp_path)
    assert result.reason == "accepted", result.detail


def test_the_suite_is_large_enough() -> None:
    assert sum(not case.honest for case in CASES) >= 30
    assert sum(case.honest for case in CASES) >= 10


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/* about: a\n * dims: n=1\n * expect: wrong_output */\n", "operator"),
        ("/* about: a\n * operator: scale\n * dims: n=1\n * expect: cheating */\n", "expect"),
        ("/* about: a\n * operator: scale\n * dims: n=one\n * expect: wrong_output */\n", "n=one"),
        ("/* about: a\n * operator: scale\n * dims: n=1\n * expect: accepted */\n", "folder"),
    ],
)
def test_a_fixture_that_cannot_be_read_is_named(tmp_path: Path, text: str, wanted: str) -> None:
    for kind in ("cheats", "honest"):
        (tmp_path / kind).mkdir()
    (tmp_path / "kernel.h").write_text("")
    (tmp_path / "cheats" / "broken.c").write_text(text)
    with pytest.raises(FixtureError, match=rf"broken\.c.*{wanted}"):
        discover(tmp_path)
