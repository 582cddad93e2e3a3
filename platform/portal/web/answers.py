"""How a view answers when it is not a page: a CSV of raw values, or stored bytes to keep.

In: what selectors returned. Out: an HttpResponse. Nothing here reads the database.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

from django.http import HttpResponse

# A cell that a spreadsheet would run as a formula starts with one of these.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def guarded(value: Any) -> str:
    """A CSV cell that no spreadsheet runs: text that looks like a formula gets an apostrophe.

    Numbers keep their sign, so `-0.5` stays a number.
    """
    text = "" if value is None else str(value)
    if text.startswith(FORMULA_STARTS) and not _is_number(text):
        return f"'{text}"
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii() and text.strip() == text


def csv_file(name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """Raw values as a CSV download; columns carry their unit in the name, order is stable."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([guarded(cell) for cell in row])
    return attachment(buffer.getvalue().encode("utf-8"), name, "text/csv; charset=utf-8")


def attachment(body: bytes, name: str, content_type: str) -> HttpResponse:
    """Bytes as a download that no browser will try to interpret."""
    response = HttpResponse(body, content_type=content_type)
    safe = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
    response.headers["Content-Disposition"] = f'attachment; filename="{safe}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Content-Length"] = str(len(body))
    response.headers["Cache-Control"] = "private, no-store"
    return response
