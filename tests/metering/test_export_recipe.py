"""The recipe "An export" of docs/extending.md, followed: a format in three steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from metering import canonical
from metering.__main__ import main
from metering.decimals import parse_decimal, to_text
from metering.export import Finding, Manifest, formats, manifest_of
from metering.export.finding import Checked
from metering.export.formats import FORMATS, Format
from metering.export.validate import CHECKS
from metering.ledger import Invoice
from tests.metering.money_cases import bill, contract, invoice

NAME = "payables"


def payables(documents: Sequence[Invoice]) -> tuple[bytes, Manifest]:
    """Step 1, its own module: one line a document; amounts are copied."""
    lines = [f"{one.number} {to_text(one.payable)} {one.currency}\n" for one in documents]
    data = "".join(lines).encode()
    return data, manifest_of(NAME, data, len(lines), documents)


def check_payables(data: bytes) -> Checked:
    """Step 3: what a good file is, to the cent."""
    rows = [line.split() for line in data.decode("utf-8", "replace").splitlines()]
    if not all(len(row) == 3 for row in rows):
        return Checked(NAME, len(rows), [Finding("line", "number, amount and currency wanted")])
    found = {number: parse_decimal(amount, "amount") for number, amount, _ in rows}
    return Checked(NAME, len(rows), [], found)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    terms = contract()
    path = tmp_path / "INV-1.json"
    path.write_bytes(canonical.dumps(invoice(terms, bill(terms, 51500), "INV-1").to_json()))
    return path


def test_a_format_is_a_module_a_row_and_a_check(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("payables.txt")
    export = ["export", "--format", NAME, str(source), "--out", str(out)]
    with pytest.raises(SystemExit):
        main(export)
    rows: Any = FORMATS
    monkeypatch.setitem(rows, NAME, Format("Payables", "payables.txt", payables))
    assert main(export) == 0
    assert out.read_text(encoding="utf-8") == "INV-1 10300.00 EUR\n"
    assert main(["validate", str(out)]) == 2, "a format without a check is not done"
    assert "a name ending in" in capsys.readouterr().err

    known: Any = CHECKS
    monkeypatch.setitem(known, ".txt", check_payables)
    assert main(["validate", str(out)]) == 0
    assert f"{NAME}: sound" in capsys.readouterr().out
    for wrong in ("INV-1 10300.01 EUR\n", "INV-1 10300.00\n", ""):
        out.write_text(wrong, encoding="utf-8")
        assert main(["validate", str(out)]) == 1, wrong


def test_the_table_refuses_for_every_format(source: Path) -> None:
    document = Invoice.from_json(canonical.loads(source.read_bytes()))
    for name, made in FORMATS.items():
        assert Path(made.file_name).suffix in CHECKS, name
        with pytest.raises(ValueError, match="documents: got 0"):
            formats.export_documents(name, [])
        wanted = "one document" if made.norm else "each number once"
        with pytest.raises(ValueError, match=wanted):
            formats.export_documents(name, [document, document])
    with pytest.raises(ValueError, match=r"one of focus-1\.2"):
        formats.export_documents("iif", [document])
