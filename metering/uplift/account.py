"""Every run of a measurement is accounted for: none dropped, none swapped, none made up later.

In: stored pairs and the folder they lie in. Out: nothing, or EvidenceError. Three witnesses must
agree: the record (``pairs.json``), the folders, and the clock in LoadGen's own logs. A stretch of
time without a run, long enough for one to have been measured and thrown away, needs an attempt or a
resumption on record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from metering.loadgen import detail_log
from metering.loadgen.detail_log import DetailLogError
from metering.loadgen.result import RunResult
from metering.loadgen.verdict import DETAIL
from metering.loadgen.verify import EvidenceError

# A worker that writes its progress to a database pauses between runs, well under this.
LONGEST_PAUSE_S = 10.0
# Between the record's clock and the log's; both are of one machine.
_CLOCK = timedelta(seconds=1)
_ZONE_STEP = timedelta(minutes=15)
_RUN_ID = re.compile(r".*-p(\d{2,})-a(\d+)-(base|other)")


@dataclass(frozen=True)
class Turn:
    """One run in its place: pair number, arm, and whether it opens its pair."""

    pair: int
    arm: str
    opens: bool
    result: RunResult


def check_turns(
    turns: Sequence[Turn], abandoned: Sequence[str], resumed: Sequence[int], out: Path
) -> None:
    """Hold the runs to their ids, to the log's clock and to each other. Raises EvidenceError."""
    ends: datetime | None = None
    starts = []
    for turn in turns:
        _check_id(turn, abandoned, out)
        started = _record_time(turn.result, out)
        starts.append(started)
        if not turn.result.valid:
            continue  # Such a run may have ended before LoadGen wrote a line.
        begins, last = log_times(turn.result, out)
        closed = started + timedelta(seconds=turn.result.wall_s)
        if begins < started - _CLOCK or last > closed + _CLOCK:
            raise EvidenceError(
                f"{out.name}: {turn.result.run_id}: started_at is {turn.result.started_at}, but "
                f"LoadGen's log says {begins.isoformat()} to {last.isoformat()}"
            )
        if ends is not None and begins < ends:
            raise EvidenceError(f"{out.name}: {turn.result.run_id} ran before the one it follows")
        ends = last
    if starts != sorted(starts):
        raise EvidenceError(f"{out.name}: the runs did not start in the order recorded")
    _check_pauses(turns, starts, {*resumed, *(int(text.split()[1]) for text in abandoned)}, out)


def _check_pauses(
    turns: Sequence[Turn], starts: Sequence[datetime], explained: set[int], out: Path
) -> None:
    most = max([LONGEST_PAUSE_S, min((turn.result.wall_s for turn in turns), default=0.0)])
    for number, turn in enumerate(turns[1:], start=1):
        before = starts[number - 1] + timedelta(seconds=turns[number - 1].result.wall_s)
        pause = (starts[number] - before).total_seconds()
        if pause > most and not (turn.opens and turn.pair in explained):
            raise EvidenceError(
                f"{out.name}: {pause:.0f} s without a run before {turn.result.run_id}, and nothing "
                f"on record: wanted at most {most:.0f} s, since a run could have been dropped there"
            )


def _check_id(turn: Turn, abandoned: Sequence[str], out: Path) -> None:
    """A second attempt at a pair shows in the run id, and must be on record with the first."""
    found = _RUN_ID.fullmatch(turn.result.run_id)
    attempts = [text for text in abandoned if text.startswith(f"pair {turn.pair} attempt ")]
    wanted = [f"pair {turn.pair} attempt {attempt}" for attempt in range(len(attempts))]
    if (
        found is None
        or (int(found[1]), int(found[2]), found[3]) != (turn.pair, len(attempts), turn.arm)
        or attempts != wanted
    ):
        raise EvidenceError(
            f"{out.name}: run {turn.result.run_id} is not attempt {len(attempts)} of arm "
            f"{turn.arm} of pair {turn.pair}, which is what the attempts on record leave"
        )


def _record_time(result: RunResult, out: Path) -> datetime:
    try:
        started = datetime.fromisoformat(result.started_at)
    except ValueError as error:
        raise EvidenceError(f"{out.name}: {result.run_id}: started_at: {error}") from error
    if started.tzinfo is None:
        raise EvidenceError(f"{out.name}: {result.run_id}: started_at names no zone")
    return started


def log_times(result: RunResult, out: Path) -> tuple[datetime, datetime]:
    """Begin and end of the timed part, from the log alone, in UTC to the millisecond.

    The log gives both in local time without a zone, and one time in whole seconds of UTC; the
    difference, in quarters of an hour, is the zone.
    """
    try:
        log = detail_log.parse((out / "runs" / result.run_id / DETAIL).read_bytes())
        whole = datetime.fromisoformat(str(log.values["test_datetime"])).astimezone(UTC)
        begins, ends = (_local(str(log.values[key])) for key in ("power_begin", "power_end"))
    except (OSError, KeyError, ValueError, DetailLogError) as error:
        raise EvidenceError(f"{out.name}: {result.run_id}: no time in its log ({error})") from error
    zone = round((begins - whole) / _ZONE_STEP) * _ZONE_STEP
    return begins - zone, ends - zone


def _local(text: str) -> datetime:
    return datetime.strptime(text, "%m-%d-%Y %H:%M:%S.%f").replace(tzinfo=UTC)
