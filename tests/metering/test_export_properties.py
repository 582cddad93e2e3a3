"""What holds for every document, whatever was saved, taxed, held back, audited or credited."""

from __future__ import annotations

import csv
import io
import tempfile
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metering.export import FORMATS, carries, export_documents, focus_csv, validate
from metering.export.csv_safe import csv_text
from metering.export.focus_columns import DECIMAL_KEYS, MONEY_KEYS
from metering.export.parquet import read_parquet
from metering.ledger import Invoice
from tests.metering.drawn_documents import documents
from tests.metering.golden_documents import golden_documents
from tests.metering.money_cases import UNHURRIED


def held(name: str, of: list[Invoice]) -> None:
    """Written, read back by `validate`, with its manifest beside it."""
    data, record = export_documents(name, of)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FORMATS[name].file_name
        path.write_bytes(data)
        assert validate(path) == (name, []), [document.number for document in of]
    assert record.invoices == {document.number: document.payable for document in of}


@settings(UNHURRIED, max_examples=40)
@given(documents())
def test_every_export_of_every_document_holds(found: list[Invoice]) -> None:
    for name, made in FORMATS.items():
        if name == "facturx":  # a page each takes its time; the golden documents are below
            continue
        for group in [[one] for one in found] if made.norm else [found]:
            if carries(name, group[0]):
                held(name, group)


def test_every_export_of_the_golden_documents_holds() -> None:
    golden = [document for case in golden_documents().values() for document in case]
    for name, made in FORMATS.items():
        for group in [[one] for one in golden] if made.norm else [golden]:
            if carries(name, group[0]):
                held(name, group)


@settings(UNHURRIED, max_examples=20)
@given(documents())
def test_parquet_holds_what_the_csv_holds(found: list[Invoice]) -> None:
    header, rows = read_parquet(export_documents("parquet", found)[0])
    read = list(csv.DictReader(io.StringIO(focus_csv(found, "1.4")[0])))
    assert header == list(read[0])
    numbers = {name for name in header if name in (*MONEY_KEYS, *DECIMAL_KEYS)}
    assert len(rows) == len(read)
    for ours, theirs in zip(rows, read, strict=True):
        for name in header:
            if name in numbers and theirs[name]:
                assert Decimal(ours[name]) == Decimal(theirs[name]), name
            else:
                assert ours[name] == theirs[name], name


@UNHURRIED
@given(st.lists(st.text(max_size=20), min_size=1, max_size=6))
def test_no_text_starts_a_formula_or_breaks_a_row(cells: list[str]) -> None:
    text = csv_text([f"c{place}" for place in range(len(cells))], [cells])
    read = list(csv.reader(io.StringIO(text)))
    assert len(read) == 2
    for cell in read[1]:
        assert not cell.lstrip(" ").startswith(("=", "+", "@", "\t", "\r"))
        if cell.lstrip(" ").startswith("-"):
            assert Decimal(cell).is_finite()
