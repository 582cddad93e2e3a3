"""On which days runs were made, by the clock in LoadGen's own logs.

In: the folder that runs lie in, their ids, the contract's zone. Out: one local day for each run
that LoadGen calls VALID. The record beside a log is not asked: it is written by who measured.
Never here: how many days are enough (``savings.sufficiency``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

from metering.fields import check_zone
from metering.loadgen import detail_log
from metering.loadgen.detail_log import DetailLogError
from metering.loadgen.verdict import DETAIL
from metering.loadgen.verify import EvidenceError

__all__ = ["run_days"]


def run_days(folder: Path, run_ids: Sequence[str], zone: str) -> tuple[date, ...]:
    """Days of the VALID runs among ``run_ids``, oldest first. Raises EvidenceError without a log.

    What a run came to is judged elsewhere (``load_run``); here it is only dated.
    """
    days = []
    for run_id in run_ids:
        if Path(run_id).name != run_id:
            raise EvidenceError(f"{folder.name}: {run_id!r} is not a run id")
        try:
            values = detail_log.parse((folder / run_id / DETAIL).read_bytes()).values
            if values["result_validity"] != "VALID":
                continue
            started = datetime.fromisoformat(str(values["test_datetime"]))
        except (OSError, KeyError, ValueError, DetailLogError) as error:
            raise EvidenceError(f"{folder.name}/{run_id}: no day in its log") from error
        if started.tzinfo is None:
            raise EvidenceError(f"{folder.name}/{run_id}: test_datetime names no zone")
        days.append(started.astimezone(check_zone(zone)).date())
    return tuple(sorted(days))
