"""CSV usage: the same events, the same fates as in JSON."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from pathlib import Path

import pytest

from metering import canonical
from metering.__main__ import main
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import EVENT_TYPE, aggregate, read_csv, read_events
from tests.metering.money_cases import ZONE

HEADER = ["source", "id", "time", "model", "system", "samples", "receivedtime"]
PERIOD = Period.month("2026-11", ZONE)
INSIDE = "2026-11-03T08:00:00Z"
ROWS = [
    ["gateway", "e1", INSIDE, "m", "s", "10", ""],
    ["gateway", "e1", INSIDE, "m", "s", "10", "2026-11-03T09:00:00Z"],
    ["gateway", "e1", INSIDE, "m", "s", "11", ""],
    ["gäte, \"way\"", "e2", INSIDE, "m", "s", "9007199254740991", ""],
    ["gateway", "e3", "2026-10-03T08:00:00Z", "m", "s", "1", ""],
    ["gateway", "e4", INSIDE, "m", "s", "-5", ""],
    ["gateway", "e5", INSIDE, "m", "s", "1.5", ""],
    ["gateway", "e6", INSIDE, "m", "s", "0010", ""],
    ["gateway", "e7", "", "m", "s", "1", ""],
    ["gateway", "e8", INSIDE, "m", "s", "", ""],
    ["gateway", "e9", INSIDE, "m", "", "1", ""],
    ["gateway", "e0", INSIDE, "m", "s", "٣", ""],
]  # fmt: skip


def table(rows: list[list[str]], header: list[str] = HEADER) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def as_json(row: list[str]) -> str:
    cells = {name: cell for name, cell in zip(HEADER, row, strict=True) if cell}
    data: dict[str, object] = {
        name: cells.pop(name) for name in ("model", "system", "samples") if name in cells
    }
    if str(data.get("samples", "")).isascii() and "samples" in data:
        with suppress(ValueError):
            data["samples"] = json.loads(str(data["samples"]))
    return json.dumps({"specversion": "1.0", "type": EVENT_TYPE, **cells, "data": data})


def test_each_row_has_the_fate_of_its_event() -> None:
    found = aggregate(read_csv(io.BytesIO(table(ROWS))), PERIOD, ZONE)
    wanted = aggregate(read_events(["", *map(as_json, ROWS)]), PERIOD, ZONE)
    assert (found.counts, found.volumes) == (wanted.counts, wanted.volumes)
    assert [(i.line, i.fate) for i in found.incidents] == [
        (i.line, i.fate) for i in wanted.incidents
    ]
    assert found.counts["malformed"] == 6
    assert found.samples == 9007199254740991


def test_the_digest_is_that_of_the_file() -> None:
    data = table(ROWS) + b"\r\n\r\n"
    assert read_csv(io.BytesIO(data)).sha256 == canonical.digest_bytes(data)


def test_rows_of_another_width_and_bytes_that_are_no_text_are_refused_by_number() -> None:
    data = table([ROWS[0][:-1], [*ROWS[0], "more"]]) + b"\xff\xfe,e,2026-11-03T08:00:00Z,m,s,1,\n"
    batch = read_csv(io.BytesIO(data))
    assert [refused.line for refused in batch.refused] == [2, 3, 4]
    assert batch.rows == 3


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (table([], [*HEADER, "price"]), "price"),
        (table([], HEADER[1:]), "no source"),
        (table([], [*HEADER, "id"]), "'id'"),
        (b"", "no source"),
        (table([]) + b'"unclosed', "record 2"),
        (table([]) + b'"x"y,1\n', "record 2"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_whole(data: bytes, named: str) -> None:
    with pytest.raises(Refusal, match=named):
        read_csv(io.BytesIO(data))


def test_the_command_reads_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "usage.csv"
    path.write_bytes(table([ROWS[0], ROWS[3]]))
    assert main(["usage", "check", str(path), "--period", "2026-11", "--zone", ZONE]) == 0
    assert "m on s: 9007199254741001 samples" in capsys.readouterr().out
    path.write_bytes(b"no,header\n")
    assert main(["usage", "check", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
