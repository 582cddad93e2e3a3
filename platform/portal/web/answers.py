"""How a view answers when it is not a page: a CSV of raw values, or stored bytes to keep.

In: what selectors returned. Out: an HttpResponse. Nothing here reads the database.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpResponse

from metering.export import csv_text


def csv_file(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """Raw values as a CSV download; columns carry their unit in the name, order is stable.

    Cells that a spreadsheet would run as a formula are defused by the engine's own guard.
    """
    text = csv_text(header, [["" if cell is None else str(cell) for cell in row] for row in rows])
    return attachment(text.encode("utf-8"), name, "text/csv; charset=utf-8")


def attachment(body: bytes, name: str, content_type: str) -> HttpResponse:
    """Bytes as a download that no browser will try to interpret."""
    response = HttpResponse(body, content_type=content_type)
    safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Length"] = str(len(body))
    response.headers["Cache-Control"] = "private, no-store"
    return response
