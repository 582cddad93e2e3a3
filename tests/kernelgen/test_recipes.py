"""The recipe of docs/kernelgen.md for a new operator, followed word for word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "kernelgen.md"

# Another process, because what it adds must not be there for any other test.
FOLLOW = """
import os
import sys
from pathlib import Path

import kernelgen.ops, kernelgen.sketches
from kernelgen.machine import describe

added = Path(sys.argv[1])
for package in (kernelgen.ops, kernelgen.sketches):
    package.__path__.append(str(added / package.__name__.rpartition(".")[2]))
kernelgen.ops.FAMILIES = {kind.family: kind for kind in kernelgen.ops._defined()}

from kernelgen.emit import flags, source
from kernelgen.judge import Candidate, judge
from kernelgen.schedule import space
from kernelgen.targets.cpu import compile_shared

kind = kernelgen.ops.FAMILIES["scale_shift"]
machine = describe(measure=False)
for number, example in enumerate(kind.examples()):
    found = space(example.operator, machine)
    for vectors in (1, 4):
        schedule = found.default().with_choice("vectors", vectors)
        assert found.legal(schedule) is None
        text = source(example.operator, schedule)
        out = added / f"{number}_{vectors}.so"
        outcome = compile_shared(text, flags(machine, schedule), out)
        assert outcome.path is not None, outcome.stderr
        verdict = judge(
            Candidate("recipe", outcome.path, (text,), flags(machine, schedule)),
            example.operator,
            example.dims,
            incumbent=None,
            seed_bytes=b"recipe",
            machine=machine,
            core=min(os.sched_getaffinity(0)),
        )
        print(verdict.reason)
    refused = found.legal(found.default().with_choice("vectors", 3))
    assert refused == "vectors: got 3, wanted one of [1, 2, 4]", refused
"""


def blocks() -> list[tuple[str, str]]:
    """(path, source) of every file the recipe names."""
    found = re.findall(
        r"^`(kernelgen/\S+\.py)` says.*?```python\n(.*?)```", DOC.read_text(), re.S | re.M
    )
    assert [path for path, _ in found] == [
        "kernelgen/ops/scale_shift.py",
        "kernelgen/sketches/scale_shift.py",
    ]
    return found


def test_the_recipe_for_an_operator_leads_to_an_accepted_kernel(tmp_path: Path) -> None:
    for path, text in blocks():
        target = tmp_path / Path(path).relative_to("kernelgen")
        target.parent.mkdir()
        target.write_text(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FOLLOW, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["accepted"] * 4


def test_recipe_files_are_formatted_like_the_rest(tmp_path: Path) -> None:
    for number, (_, text) in enumerate(blocks()):
        (tmp_path / f"{number}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--check", "--line-length", "100", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
