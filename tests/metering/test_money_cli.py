"""The command line of the money half, run as people run it."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from metering import canonical
from metering.__main__ import main
from metering.cases import schema_text
from metering.commands import fee, usage
from metering.contract import LedgerState, Recoupment
from metering.plan import Period
from metering.usage import TrafficShare, generate_month
from tests.metering.money_cases import ZONE, contract

ROOT = Path(__file__).parents[2]


def run(arguments: Sequence[object]) -> int:
    """Exit status of one command, parsed as `python -m metering` parses it."""
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers(dest="command", required=True)
    fee.register(subparsers)
    usage.register(subparsers)
    parsed = parser.parse_args([str(argument) for argument in arguments])
    return int(parsed.handler(parsed))


def written(path: Path, value: object) -> Path:
    path.write_bytes(canonical.dumps(value))
    return path


def case(**changes: object) -> dict[str, object]:
    """G7 as a case file."""
    terms = contract(holdback=Decimal("0.10"), vat=Decimal("0.19"))
    return {
        "schema": "ignition.fee-case.v2",
        "contracts": [terms.to_json()],
        "state": None,
        "savings": [saving("51500.00")],
        **changes,
    }


def saving(point: str) -> dict[str, object]:
    return {"period": "2026-11", "model": "A", "system": "s", "point": point}


def first_bill(out: str) -> dict[str, Any]:
    breakdown: dict[str, Any] = json.loads(out)["steps"][0]["breakdown"]
    return breakdown


def test_a_case_becomes_a_breakdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "case.json", case())
    assert run(["fee", path]) == 0
    first = capsys.readouterr().out
    bill = first_bill(first)
    assert (bill["fee"], bill["holdback"], bill["payable"]) == ("10300.00", "1030.00", "11031.30")
    assert run(["fee", path]) == 0
    assert capsys.readouterr().out == first


def test_several_cases_are_a_list_of_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one.json", case())
    two = written(tmp_path / "two.json", case(savings=[saving("100")]))
    assert run(["fee", one, two]) == 0
    answers = json.loads(capsys.readouterr().out)
    assert [a["steps"][0]["breakdown"]["fee"] for a in answers] == ["10300.00", "20.00"]
    broken = written(tmp_path / "three.json", {})
    assert run(["fee", one, broken]) == 2
    assert capsys.readouterr().out == ""


def test_the_schema_is_printed_and_a_case_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fee", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$id"] == "urn:ignition:schema:fee-case.v2"
    assert run(["fee"]) == 2
    assert "--schema" in capsys.readouterr().err


def test_a_state_continues_where_the_last_month_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = contract(recoupment=Recoupment("pool", Decimal(12000), share=Decimal("0.40")))
    state = LedgerState(recouped=Decimal(10500), settled_through="2026-10")
    changed = case(
        contracts=[terms.to_json()], state=state.to_json(), savings=[saving("10000")]
    )  # fmt: skip
    assert run(["fee", written(tmp_path / "case.json", changed)]) == 0
    out = capsys.readouterr().out
    bill = first_bill(out)
    assert (bill["fee"], bill["recouped"]) == ("3500.00", "1500.00")
    assert json.loads(out)["state"]["recouped"] == "12000.00"


def test_the_documented_case_is_a_real_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/contracts.md shows a case file and the amounts it leads to."""
    page = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    shown = page.split("<!-- case -->\n```json\n")[1].split("```")[0]
    path = tmp_path / "case.json"
    path.write_text(shown, encoding="utf-8")
    assert run(["fee", path]) == 0
    Draft202012Validator(json.loads(schema_text())).validate(json.loads(shown))
    answer = first_bill(capsys.readouterr().out)
    told = page.split("<!-- answer -->\n```json\n")[1].split("```")[0]
    for name, value in json.loads(told).items():
        assert answer[name] == value, name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "stops being JSON"),
        (b'{"schema": "ignition.fee-case.v2", "state": 1.5}', "decimal text"),
        (canonical.dumps(case(schema="v1")), "ignition.fee-case.v2"),
        (canonical.dumps(case(discount="1")), "does not know"),
        (canonical.dumps(case(contracts=[{}])), "contract.schema"),
        (canonical.dumps({"schema": "ignition.fee-case.v2"}), "case.contracts"),
    ],
)
def test_a_bad_case_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    path = tmp_path / "case.json"
    path.write_bytes(content)
    assert run(["fee", path]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_a_missing_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["fee"], ["usage", "check"]):
        assert run([*command, tmp_path / "nowhere.json"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "nowhere.json" in error


# usage


def usage_file(folder: Path, *extra: str) -> Path:
    period = Period.month("2026-11", ZONE)
    lines = generate_month([TrafficShare("m", "s")], period, samples=1_000_000, seed=3)
    path = folder / "events.jsonl"
    path.write_text("".join(line + "\n" for line in [*lines, *extra]), encoding="utf-8")
    return path


def test_usage_is_totalled_with_row_count_sum_and_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = usage_file(tmp_path)
    month = ["--period", "2026-11", "--zone", ZONE]
    assert run(["usage", "check", path, *month, "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["samples"] == 1_000_000
    assert totals["rows"] == len(path.read_text().splitlines())
    assert totals["input_sha256"] == canonical.digest_bytes(path.read_bytes())
    assert run(["usage", "check", path]) == 0
    assert "sum 1000000 samples" in capsys.readouterr().out
    assert run(["usage", "check", path, *month, "--cutoff", "2026-11-02T00:00:00Z"]) == 0
    assert "after the cutoff" in capsys.readouterr().out


def test_usage_with_an_incident_says_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = usage_file(tmp_path, '{"broken": true}')
    assert run(["usage", "check", path, "--period", "2026-11", "--zone", ZONE]) == 1
    assert "malformed: event.specversion" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--period", "November"], "YYYY-MM"),
        (["--zone", "Mars/Base"], "IANA"),
        (["--cutoff", "tomorrow"], "RFC 3339"),
    ],
)
def test_wrong_use_of_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["usage", "check", usage_file(tmp_path), *options]) == 2
    assert message in capsys.readouterr().err


def test_a_file_without_events_has_no_totals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("\n")
    assert run(["usage", "check", path]) == 2
    assert "at least one usage event" in capsys.readouterr().err


def test_the_commands_are_those_of_the_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fee", str(written(tmp_path / "case.json", case()))]) == 0
    assert first_bill(capsys.readouterr().out)["payable"] == "11031.30"
    assert main(["fee", str(tmp_path / "no.json")]) == 2
    with pytest.raises(SystemExit) as wrong:
        main(["export", "--format", "pdf", "x.json", "--out", "y"])
    assert wrong.value.code == 2


def test_the_module_runs_as_a_program(tmp_path: Path) -> None:
    path = written(tmp_path / "case.json", case())
    done = subprocess.run(
        [sys.executable, "-m", "metering", "fee", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert first_bill(done.stdout)["payable"] == "11031.30"
