"""Charts for auditors: drawn from the logs, on one page that needs no network."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from metering.__main__ import main
from metering.uplift import load_paired
from metering.uplift.plots import PAGE, RUNS_CSV


def test_charts_and_table_come_from_the_logs(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plots"
    assert main(["uplift", str(recorded), "--plots", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kept"] is True
    assert printed.err.count("wrote ") == 2
    with (out / RUNS_CSV).open() as file:
        rows = {row["run_id"]: row for row in csv.DictReader(file)}
    paired = load_paired(recorded / "uplift")
    for pair in paired.pairs:
        for result in (pair.base, pair.other):
            assert result.latency is not None
            row = rows.pop(result.run_id)
            assert row["samples_per_second"] == str(result.samples_per_second)
            assert float(row["p99_ms"]) == pytest.approx(result.latency.p99_ns / 1e6)
            assert row["pair"] == str(pair.pair)
    assert {row["part"] for row in rows.values()} == {"aa"}
    page = (out / PAGE).read_text()
    assert [
        name for name in ("pairs", "drift", "qq", "latency") if f'id="{name}"' not in page
    ] == []
    # One page, whole: nothing is fetched, and the drawing code is in it once.
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="', page)
    assert page.count("plotly.js v") == 1
    # Drawn again, the same bytes.
    assert main(["uplift", str(recorded), "--plots", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / PAGE).read_text() == page


def test_what_is_missing_is_said(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    both = ["uplift", str(recorded), str(tmp_path), "--plots", str(tmp_path / "plots")]
    assert main(both) == 2
    assert "--plots: got 2 evidence folders, wanted one" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert main(["uplift", str(recorded), "--plots", str(tmp_path / "plots")]) == 2
    printed = capsys.readouterr()
    assert "pip install 'ignition[plots]'" in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "plots").exists()
