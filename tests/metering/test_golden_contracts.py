"""Every hand-computed case of tests/golden/contracts.json, as case files on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from metering.cases import schema_text
from tests.metering.golden_cases import (
    GOLDEN,
    Json,
    case_files,
    read_back,
    stated_quantile_holds,
)

ROOT = Path(__file__).parents[2]
IDS = [golden["id"] for golden in GOLDEN]


def fee_command(*paths: Path) -> subprocess.CompletedProcess[str]:
    """`python -m metering fee`, as people run it."""
    return subprocess.run(
        [sys.executable, "-m", "metering", "fee", *map(str, paths)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def written(folder: Path, name: str, case: Json) -> Path:
    path = folder / name
    path.write_text(json.dumps(case), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Json]]:
    """What the program answers to every case file of every golden case, in one run."""
    folder = tmp_path_factory.mktemp("golden")
    named = [
        (golden["id"], written(folder, f"{golden['id']}-{number}.json", case))
        for golden in GOLDEN
        for number, case in enumerate(case_files(golden))
    ]
    done = fee_command(*(path for _, path in named))
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Json]] = {name: [] for name, _ in named}
    for (name, _), answer in zip(named, json.loads(done.stdout), strict=True):
        found[name].append(answer)
    return found


@pytest.mark.parametrize("golden", GOLDEN, ids=IDS)
def test_golden(golden: Json, answers: dict[str, list[Json]], tmp_path: Path) -> None:
    found = answers[golden["id"]]
    if "float_input" in golden["expect"]:
        found = [{**found[0], "float_input": asked_with_a_float(golden, tmp_path)}]
    assert read_back(golden, found) == golden["expect"]
    assert stated_quantile_holds(golden)


def asked_with_a_float(golden: Json, folder: Path) -> str:
    """What the program does when the price is a JSON number with a fraction."""
    case = case_files(golden)[0]
    case["savings"][0]["point"] = float(golden["given"]["price"])
    done = fee_command(written(folder, "float.json", case))
    assert "decimal text" in done.stderr
    assert done.stdout == ""
    return "rejected" if done.returncode == 2 else "accepted"


@pytest.mark.parametrize("golden", GOLDEN, ids=IDS)
def test_the_published_schema_takes_every_golden_case(golden: Json) -> None:
    schema: dict[str, Any] = json.loads(schema_text())
    for case in case_files(golden):
        Draft202012Validator(schema).validate(case)


def test_every_answer_is_in_balance(answers: dict[str, list[Json]]) -> None:
    for found in answers.values():
        for answer in found:
            assert float(answer["journal"]["total"]) == 0
            for told in answer["documents"]:
                parts = [int(part.replace(".", "")) for part in told.get("allocation", {}).values()]
                assert not parts or sum(parts) == told["payable_minor_units"]
