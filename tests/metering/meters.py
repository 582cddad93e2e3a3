"""Logs of a meter that was never there: rows as one writes them, over runs that really were."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from metering.uplift import load_paired
from metering.uplift.account import log_times
from metering.uplift.energy import METER


def write_meter(path: Path, rows: list[tuple[datetime, str]], share: str = "0.01") -> Path:
    lines = [
        f"{moment.isoformat().replace('+00:00', 'Z')},{total},{share}" for moment, total in rows
    ]
    path.write_text("\n".join(["time,energy_j,uncertainty", *lines]) + "\n")
    return path


def constant_power(evidence: Path, watts: int, *, missing: timedelta = timedelta()) -> Path:
    """A meter beside the evidence's uplift that read `watts` from the first run's start to
    `missing` before the last one's end.
    """
    folder = evidence / "uplift"
    pairs = load_paired(folder).pairs
    times = [log_times(run, folder) for pair in pairs for run in (pair.base, pair.other)]
    first, last = min(begin for begin, _ in times), max(end for _, end in times)
    total = Decimal(str((last - first).total_seconds() * watts))
    return write_meter(evidence / METER, [(first, "0"), (last - missing, str(total))])
