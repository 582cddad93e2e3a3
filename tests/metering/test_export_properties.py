"""What holds for every document, whatever was saved, taxed, held back, audited or credited."""

from __future__ import annotations

import csv
import io
import tempfile
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from metering.contract import release_or_credit
from metering.export import FORMATS, carries, export_documents, focus_csv, validate
from metering.export.csv_safe import csv_text
from metering.export.focus_columns import DECIMAL_KEYS, MONEY_KEYS
from metering.export.parquet import read_parquet
from metering.ledger import Invoice, audit_document, credit_note
from metering.money import quantize
from tests.metering.golden_documents import golden_documents
from tests.metering.money_cases import ISSUED, UNHURRIED, bill, contract, invoice

LATER = ISSUED + timedelta(days=40)
AMOUNTS = st.decimals("0", "99999.999999", places=6)


@st.composite
def documents(draw: st.DrawFn) -> list[Invoice]:
    """An invoice of one to four models, and what an audit and a full credit make of it."""
    terms = contract(
        currency=draw(st.sampled_from(["EUR", "JPY", "KWD", "USD"])),
        vat=draw(st.sampled_from([Decimal(0), Decimal("0.19"), Decimal("0.077")])),
        holdback=draw(st.sampled_from([Decimal(0), Decimal("0.10"), Decimal("0.333")])),
        holdback_tax=draw(st.sampled_from(["release", "issue"])),
    )
    savings = draw(st.lists(AMOUNTS, min_size=1, max_size=4))
    audited = [amount * draw(st.decimals("0", "1", places=2)) for amount in savings]
    invoiced = bill(terms, *savings)
    first, second = (invoice(terms, invoiced, number) for number in ("INV-1", "INV-2"))
    found = [first, second]
    outcome = release_or_credit(terms, invoiced, bill(terms, *audited))
    if outcome.document != "none":
        found.append(audit_document(first, outcome, number="A-1", series="A", issued_at=LATER))
    share = draw(st.sampled_from([Decimal(1), Decimal("0.25"), Decimal("0.51")]))
    amounts = {line.line_id: quantize(line.amount * share, terms.currency) for line in second.lines}
    amounts = {line_id: amount for line_id, amount in amounts.items() if amount}
    if amounts:
        note = credit_note(
            second, number="CN-1", series="CN", issued_at=LATER, reason="wrong", amounts=amounts
        )
        found.append(note)
    return found


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
