"""The commands `export` and `validate`, run as people run them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering import canonical
from metering.__main__ import main
from tests.metering.money_cases import bill, contract, invoice


def run(arguments: list[Any]) -> int:
    """Exit status of one command."""
    return main([str(argument) for argument in arguments])


def invoice_file(folder: Path, savings: object = 51500, number: str = "INV-1") -> Path:
    terms = contract(holdback=Decimal("0.10"), vat=Decimal("0.19"))
    document = invoice(terms, bill(terms, savings), number)
    path = folder / f"{number}.json"
    path.write_bytes(canonical.dumps(document.to_json()))
    return path


@pytest.mark.parametrize(
    ("name", "suffix", "beside"),
    [
        ("focus", "csv", True),
        ("journal", "csv", True),
        ("ubl", "xml", False),
        ("beancount", "beancount", False),
    ],
)
def test_an_export_is_written_checked_and_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, suffix: str, beside: bool
) -> None:
    source = invoice_file(tmp_path)
    one, two = tmp_path / f"one.{suffix}", tmp_path / f"two.{suffix}"
    for out in (one, two):
        assert run(["export", "--format", name, source, "--out", out]) == 0
        assert run(["validate", out]) == 0
    assert one.read_bytes() == two.read_bytes()
    manifest = tmp_path / f"one.{suffix}.manifest.json"
    assert manifest.exists() is beside
    if beside:
        assert run(["validate", manifest]) == 0
    assert "sound" in capsys.readouterr().out


def test_validate_says_no_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.csv"
    assert run(["export", "--format", "focus", invoice_file(tmp_path), "--out", out]) == 0
    out.write_text(out.read_text().replace("1761.30", "1761.31", 1))
    capsys.readouterr()
    assert run(["validate", out]) == 1
    assert "billed costs sum to 11031.31, not 11031.30" in capsys.readouterr().out
    assert run(["validate", out, "--json"]) == 1
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert {finding["where"] for finding in report["findings"]} >= {"manifest.sha256"}


def test_documents_are_exported_together_but_ubl_holds_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two = [invoice_file(tmp_path), invoice_file(tmp_path, 100, "INV-2")]
    assert run(["export", "--format", "journal", *two, "--out", tmp_path / "j.csv"]) == 0
    assert "2 document(s)" in capsys.readouterr().out
    assert run(["export", "--format", "ubl", *two, "--out", tmp_path / "x.xml"]) == 2
    assert "one document" in capsys.readouterr().err
    assert not (tmp_path / "x.xml").exists()


def test_a_tampered_invoice_is_not_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = invoice_file(tmp_path)
    source.write_text(source.read_text().replace('"payable":"11031.30"', '"payable":"1.00"'))
    out = tmp_path / "x.csv"
    assert run(["export", "--format", "focus", source, "--out", out]) == 2
    assert "do not use it" in capsys.readouterr().err
    assert not out.exists()
    assert run(["validate", source]) == 1


def test_a_missing_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", tmp_path / "nowhere.xml"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nowhere.xml" in error
