"""The portal offers what the engine can write, byte for byte."""

from decimal import Decimal
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from metering.export import FORMATS, export_documents, validate
from metering.ledger import Invoice as InvoiceDocument
from portal.billing.exports import (
    FILE_NAMES,
    export_bytes,
    export_files,
    export_formats,
    export_path,
)
from portal.billing.models import Export, Invoice
from tests.metering.money_cases import bill, contract, invoice
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401


def issued(currency: str = "EUR") -> tuple[InvoiceDocument, Invoice]:
    """A document, and its row as it is before anyone saves it."""
    terms = contract(currency=currency, holdback=Decimal("0.10"), vat=Decimal("0.19"))
    document = invoice(terms, bill(terms, 51500))
    return document, Invoice(number=document.number, document=document.to_json())


def test_every_format_of_the_engine_is_offered() -> None:
    document, row = issued()
    files = export_files(row)
    assert len(files) == len(FORMATS) == len(Export.Format)
    assert set(files) == {made.file_name for made in FORMATS.values()}
    assert {data for _, data in files.values()} == {
        export_documents(name, [document])[0] for name in FORMATS
    }
    assert [label for label, _ in files.values()] == list(Export.Format.labels)


@pytest.mark.parametrize("file_format", list(Export.Format))
def test_a_written_file_holds_and_stays(file_format: Export.Format, home: Path) -> None:
    _, row = issued()
    path = export_path(row, file_format)
    assert path == home / "documents" / "exports" / row.number / FILE_NAMES[file_format]
    assert validate(path)[1] == []
    before = path.stat().st_mtime_ns
    assert export_path(row, file_format) == path
    assert path.stat().st_mtime_ns == before


@pytest.mark.django_db
def test_what_is_missing_is_written_once_from_the_page(stage: Stage, client: Client) -> None:  # noqa: F811
    client.force_login(stage.finance.user)
    page = reverse("billing:invoice", args=[stage.invoice.pk])
    act = reverse("billing:invoice-exports", args=[stage.invoice.pk])
    before = {export.file_format for export in stage.invoice.exports.all()}
    assert (
        "Write FOCUS 1.4 CSV, FOCUS 1.4 parquet, Factur-X PDF" in client.get(page).content.decode()
    )
    for _ in range(2):
        assert client.post(act).status_code == 302
        written = {export.file_format: export for export in stage.invoice.exports.all()}
        assert set(written) == set(Export.Format.values) > before
        assert len(written) == stage.invoice.exports.count()
    text = client.get(page).content.decode()
    assert act not in text
    for export in written.values():
        assert str(export.stored_file.sha256) in text
    pdf = written["facturx"].stored_file
    assert pdf.name == "invoice.pdf"
    answer = client.get(reverse("documents:download", args=[pdf.pk]))
    assert answer.status_code == 200, answer.content[-2000:]
    assert answer.getvalue().startswith(b"%PDF-1.7")
    client.force_login(stage.auditor.user)
    assert act not in client.get(page).content.decode()


def test_what_an_e_invoice_cannot_carry_is_not_offered() -> None:
    _, row = issued("KWD")
    left_out = {Export.Format.UBL, Export.Format.FACTURX}
    assert set(export_formats(row)) == set(Export.Format) - left_out
    assert len(export_files(row)) == len(Export.Format) - 2
    with pytest.raises(ValueError, match="at most two decimals"):
        export_bytes(row, Export.Format.UBL)
    with pytest.raises(ValueError, match="wanted one of focus"):
        export_bytes(row, "pdf")
