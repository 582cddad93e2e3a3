"""CSV that a spreadsheet can open without running anything in it.

In: rows of text cells.
Out: RFC 4180 text, UTF-8 without byte order mark, line feeds.
Never here: a quote in front of a negative number. -200.00 is a number and stays one; =cmd is
text and gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

__all__ = ["csv_text", "safe_cell"]

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)
_DANGEROUS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def safe_cell(text: str) -> str:
    """`text`, defused with an apostrophe when a spreadsheet would take it for a formula.

    NUL and other control characters become spaces: no importer agrees on what they mean.
    """
    if _NUMBER.fullmatch(text):
        return text
    clean = "".join(" " if ord(char) < 32 or ord(char) == 127 else char for char in text)
    return "'" + clean if text.lstrip(" ").startswith(_DANGEROUS) else clean


def csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """One header line and the rows; every row must have the header's length."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"row of {len(row)} cells under a header of {len(header)}")
        writer.writerow([safe_cell(cell) for cell in row])
    return out.getvalue()
