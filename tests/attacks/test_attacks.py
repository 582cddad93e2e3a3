"""Every cheat is refused for the reason its file states, every honest kernel accepted. A new
fixture needs no change here.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelgen.attacks import FixtureError, discover
from kernelgen.attacks.fixtures import Case, code_of
from kernelgen.attacks.suite import run_one
from kernelgen.machine import Machine, describe

CASES = discover()
KINDS = ("kernel", "reply", "bridge")


@pytest.fixture(scope="module")
def machine() -> Machine:
    return describe()


def _name(case: Case) -> str:
    return f"{case.kind}-{case.name}"


@pytest.mark.parametrize("case", [case for case in CASES if not case.honest], ids=_name)
def test_cheat_is_caught(case: Case, machine: Machine, tmp_path: Path) -> None:
    result = run_one(case, machine, min(os.sched_getaffinity(0)), tmp_path)
    assert result.reason in case.expect, result.detail


@pytest.mark.parametrize("case", [case for case in CASES if case.honest], ids=_name)
def test_honest_kernel_is_accepted(case: Case, machine: Machine, tmp_path: Path) -> None:
    result = run_one(case, machine, min(os.sched_getaffinity(0)), tmp_path)
    assert result.reason == "accepted", result.detail


def test_the_suite_is_large_enough() -> None:
    assert sum(not case.honest for case in CASES) >= 140
    assert sum(case.honest for case in CASES) >= 40
    for kind in KINDS:
        assert any(case.kind == kind and case.honest for case in CASES), kind
        assert sum(case.kind == kind and not case.honest for case in CASES) >= 25, kind


def test_names_are_unique_over_all_kinds() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/* about: a\n * dims: n=1\n * expect: wrong_output */\n", "operator"),
        ("/* about: a\n * operator: scale\n * dims: n=1\n * expect: cheating */\n", "expect"),
        ("/* about: a\n * operator: scale\n * dims: n=one\n * expect: wrong_output */\n", "n=one"),
        ("/* about: a\n * operator: scale\n * dims: n=1.5\n * expect: zeros */\n", "expect"),
        (
            "/* about: a\n * operator: scale\n * dims: n=1.5\n * expect: wrong_output */\n",
            "whole numbers",
        ),
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


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("replies/broken.md", "<!-- about: a\ndims: n=1\nexpect: crashed\n-->\n", "operator"),
        ("bridge/broken.py", '"""about: a\nexpect: package_refused\n"""\n', "tamper"),
        ("bridge/broken.py", '"""about: a\n"""\ndef tamper(package: Path) -> None:\n', "expect"),
    ],
)
def test_other_kinds_of_broken_fixtures(tmp_path: Path, name: str, text: str, wanted: str) -> None:
    (tmp_path / name).parent.mkdir()
    (tmp_path / "kernel.h").write_text("")
    (tmp_path / name).write_text(text)
    with pytest.raises(FixtureError, match=rf"broken\..*{wanted}"):
        discover(tmp_path)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("", ""),
        ("int kernel(void);", ""),
        ("```c\nint x;\n```\n", ""),
        ("```c\nint kernel(void);\n```\n", "int kernel(void);\n"),
        ("```\nint kernel(int);\n```\ntext\n```c\nint kernel(void);\n```", "int kernel(void);\n"),
        ("```python\nkernel(1)\n```\n", ""),
        ("```c\nint kernel(void);\n", ""),
    ],
)
def test_a_reply_is_its_code_and_nothing_else(reply: str, code: str) -> None:
    assert code_of(reply) == code
