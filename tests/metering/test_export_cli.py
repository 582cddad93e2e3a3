"""The commands `export` and `validate`, run as people run them."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering import canonical
from metering.__main__ import main
from metering.export import FORMATS, Manifest
from tests.metering.money_cases import bill, contract, invoice

ROOT = Path(__file__).parents[2]


def run(arguments: list[Any]) -> int:
    """Exit status of one command."""
    return main([str(argument) for argument in arguments])


def invoice_file(folder: Path, savings: object = 51500, number: str = "INV-1") -> Path:
    terms = contract(holdback=Decimal("0.10"), vat=Decimal("0.19"))
    document = invoice(terms, bill(terms, savings), number)
    path = folder / f"{number}.json"
    path.write_bytes(canonical.dumps(document.to_json()))
    return path


def exported(folder: Path, name: str, source: Path, out: str = "one") -> Path:
    path = folder / (out + Path(FORMATS[name].file_name).suffix)
    assert run(["export", "--format", name, source, "--out", path]) == 0
    return path


@pytest.mark.parametrize("name", list(FORMATS))
def test_an_export_is_written_checked_and_the_same_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    source = invoice_file(tmp_path)
    one, two = (exported(tmp_path, name, source, out) for out in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    capsys.readouterr()
    for path in (one, two):
        assert run(["validate", path]) == 0
        assert capsys.readouterr().out == f"{path}: {name}: sound\n"
    beside = one.with_name(one.name + ".manifest.json")
    assert run(["validate", beside]) == 0
    record = Manifest.from_json(canonical.loads(beside.read_bytes()))
    assert record.format == name
    assert record.sha256 == canonical.digest_bytes(one.read_bytes())
    assert record.rows > 0
    assert record.invoices == {"INV-1": Decimal("11031.30")}


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_file_that_was_changed_or_is_short_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    path = exported(tmp_path, name, invoice_file(tmp_path))
    path.write_bytes(path.read_bytes() + b"\n")
    assert run(["validate", path]) == 1
    assert "manifest.sha256" in capsys.readouterr().out
    path.write_bytes(path.read_bytes()[:-60])
    assert run(["validate", path]) == 1
    assert "does not hold" in capsys.readouterr().out


def test_a_manifest_of_another_document_does_not_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, "ubl", invoice_file(tmp_path))
    beside = path.with_name(path.name + ".manifest.json")
    good = beside.read_text(encoding="utf-8")
    for change, place in (
        (('"INV-1": "11031.30"', '"INV-1": "11031.31"'), "manifest.invoices"),
        (('"rows": 1', '"rows": 2'), "manifest.rows"),
        (('"format": "ubl"', '"format": "facturx"'), "manifest.format"),
    ):
        assert change[0] in good
        beside.write_text(good.replace(*change), encoding="utf-8")
        assert run(["validate", path]) == 1
        assert place in capsys.readouterr().out


def test_without_a_name_the_format_gives_one_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = invoice_file(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert run(["export", "--format", "csv", source]) == 0
    assert run(["validate", "journal.csv"]) == 0
    before = (tmp_path / "journal.csv").read_bytes()
    capsys.readouterr()
    assert run(["export", "--format", "csv", source]) == 2
    assert "say --out FILE" in capsys.readouterr().err
    assert (tmp_path / "journal.csv").read_bytes() == before


def test_a_document_is_never_overwritten_by_its_own_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = invoice_file(tmp_path)
    before = source.read_bytes()
    assert run(["export", "--format", "csv", source, "--out", tmp_path / "." / source.name]) == 2
    assert "another file than the documents" in capsys.readouterr().err
    assert source.read_bytes() == before
    assert list(tmp_path.iterdir()) == [source]


def test_validate_says_no_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x.csv"
    assert run(["export", "--format", "focus-1.2", invoice_file(tmp_path), "--out", out]) == 0
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
    assert run(["export", "--format", "csv", *two, "--out", tmp_path / "j.csv"]) == 0
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
    assert run(["export", "--format", "focus-1.2", source, "--out", out]) == 2
    assert "do not use it" in capsys.readouterr().err
    assert not out.exists()
    assert run(["validate", source]) == 1


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "metering", "validate", str(invoice_file(tmp_path))]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == ""
        assert running.wait() == 2


def test_a_missing_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["validate", tmp_path / "nowhere.xml"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nowhere.xml" in error
