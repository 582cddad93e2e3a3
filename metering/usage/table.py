"""Usage as CSV: one event a row, judged exactly as the same event in JSON.

In: an open binary file with a header: source, id, time, model, system, samples, and where wanted
receivedtime and subject.
Out: an `EventBatch`; lines are records of the file, the header is line 1.
Never here: a guess at a column, a number repaired, a rule of its own about an event.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from metering.refusal import Refusal
from metering.usage.batch import EventBatch, read_events
from metering.usage.events import EVENT_TYPE

__all__ = ["read_csv"]

REQUIRED = ("source", "id", "time", "model", "system", "samples")
OPTIONAL = ("receivedtime", "subject")
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,29})", re.ASCII)


class _Hashed(io.RawIOBase):
    """The file as it is read, and its digest."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self.sha256.update(data)
        buffer[: len(data)] = data
        return len(data)


def read_csv(stream: BinaryIO) -> EventBatch:
    """Read a CSV file. Refuses a wrong header; a bad row is refused with its number and reason.

    `sha256` of the batch is that of the file's bytes.
    """
    hashed = _Hashed(stream)
    # A row that is not UTF-8 becomes text that no event may hold.
    with io.TextIOWrapper(
        io.BufferedReader(hashed), encoding="utf-8-sig", errors="surrogateescape", newline=""
    ) as text:
        batch = read_events(_lines(csv.reader(text, strict=True)))
        while text.read(1 << 20):
            pass
    return replace(batch, sha256=hashed.sha256.hexdigest())


def _lines(rows: Iterator[list[str]]) -> Iterator[str]:
    """Each row as a JSON line; a blank line for the header, which is no event."""
    taken = 0
    try:
        header = next(rows, [])
        _check(header)
        taken = 1
        yield ""
        for row in rows:
            taken += 1
            yield _line(header, row) if row else ""
    except csv.Error as error:
        raise Refusal("file", f"record {taken + 1}", "sound CSV", str(error)) from error


def _check(header: list[str]) -> None:
    wanted = f"columns {', '.join(REQUIRED)}, and where wanted {', '.join(OPTIONAL)}"
    for name in header:
        if name not in (*REQUIRED, *OPTIONAL) or header.count(name) > 1:
            raise Refusal("header", repr(name), wanted, "rename or remove the column")
    for name in REQUIRED:
        if name not in header:
            raise Refusal("header", f"no {name}", wanted, "add the column")


def _line(header: list[str], row: list[str]) -> str:
    if len(row) != len(header):
        # A list is no event: the row is refused with its number.
        return json.dumps(row)
    cells = {name: cell for name, cell in zip(header, row, strict=True) if cell}
    data: dict[str, object] = {
        name: cells.pop(name) for name in ("model", "system", "samples") if name in cells
    }
    samples = data.get("samples")
    if isinstance(samples, str) and _WHOLE.fullmatch(samples):
        data["samples"] = int(samples)
    event = {"specversion": "1.0", "type": EVENT_TYPE, **cells, "data": data}
    return json.dumps(event, separators=(",", ":"))
