"""What the machine was like while each arm ran: its pace, and work that was not ours.

In: the cores of a run. Out: :class:`Conditions`, kept in ``pairs.json`` beside the run's id, and a
guard over all pairs. Whoever lowers the clock or starts other work while the baseline runs makes
any candidate look fast; the order of arms is drawn, so an honest machine treats both alike.
Only ``watched`` reads the machine. Nothing here is timed inside a run.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.energy import Counter, Spent
from metering.loadgen.result import RunResult
from metering.uplift.estimate import fraction_text, lower_bound

PACE_BOUND = 0.02
LOAD_BOUND = 0.05
LEVEL = 0.05
_BLOCK = bytes(2**19)
_REPEATS = 8
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Conditions:
    """``pace_ns``: a fixed piece of work, best of eight on each core, mean before and after a run.

    ``foreign``: share of the cores' time in which they worked for others, 0 to 1; None where the
    system does not say. ``energy``: what the machine's counters went up by; None without counters.
    """

    pace_ns: int
    foreign: float | None
    energy: Spent | None = None

    def to_dict(self) -> dict[str, Any]:
        share = None if self.foreign is None else f"{self.foreign:.4f}"
        energy = {} if self.energy is None else {"energy": self.energy.to_dict()}
        return {"pace_ns": self.pace_ns, "foreign": share, **energy}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Conditions:
        """Inverse of ``to_dict``. Raises ValueError, KeyError, TypeError."""
        pace, share = data["pace_ns"], data["foreign"]
        if isinstance(pace, bool) or not isinstance(pace, int) or pace <= 0:
            raise ValueError(f"pace_ns: got {pace!r}, wanted nanoseconds above 0")
        foreign = None if share is None else float(share)
        if foreign is not None and not 0 <= foreign <= 1:
            raise ValueError(f"foreign: got {share!r}, wanted a share from 0 to 1")
        energy = data.get("energy")
        return cls(pace, foreign, None if energy is None else Spent.from_dict(energy))


@dataclass(frozen=True)
class ConditionsGuard:
    """Baseline's runs against the candidate's. ``slower``: lower bound of the pace, as a ratio
    minus one; ``busier``: lower bound of the difference of foreign load. None where not measured.
    """

    slower: float | None
    busier: float | None
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "slower": None if self.slower is None else fraction_text(self.slower, down=True),
            "busier": None if self.busier is None else fraction_text(self.busier, down=True),
            "passed": self.passed,
            "reason": self.reason,
        }


def watched(
    cores: Collection[int], measure: Callable[[], RunResult], counter: Counter | None = None
) -> tuple[RunResult, Conditions]:
    """Run ``measure`` with the machine looked at before and after it, on its own cores."""
    counted = None if counter is None else counter.now()
    before, busy, own, started = _pace_ns(cores), _busy_s(cores), time.process_time(), _now()
    result = measure()
    energy = None if counter is None else counter.spent(counted, counter.now())
    wall, own = _now() - started, time.process_time() - own
    after = _busy_s(cores)
    foreign = None
    if busy is not None and after is not None:
        others = after - busy - own - result.cpu_s
        foreign = min(1.0, max(0.0, others / (wall * len(cores))))
    return result, Conditions(round((before + _pace_ns(cores)) / 2), foreign, energy)


def _now() -> float:
    return time.monotonic()


def _pace_ns(cores: Collection[int]) -> float:
    """Nanoseconds of one digest of half a mebibyte, mean over the cores of the best of some."""
    allowed = os.sched_getaffinity(0)
    best = []
    try:
        for core in sorted(cores):
            os.sched_setaffinity(0, {core})
            times = []
            for _ in range(_REPEATS):
                started = time.perf_counter_ns()
                hashlib.sha256(_BLOCK).digest()
                times.append(time.perf_counter_ns() - started)
            best.append(min(times))
    finally:
        os.sched_setaffinity(0, allowed)
    return sum(best) / len(best)


def _busy_s(cores: Collection[int]) -> float | None:
    """Seconds the cores have worked, or were taken from us by the host, since the system began."""
    if not _STAT.is_file():
        return None
    wanted = {f"cpu{core}" for core in cores}
    ticks = 0
    for line in _STAT.read_text().splitlines():
        name, *values = line.split()
        if name in wanted:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, values[:8])
            ticks += user + nice + system + irq + softirq + steal
            wanted.remove(name)
    return None if wanted else ticks / os.sysconf("SC_CLK_TCK")


def conditions_guard(
    base: Sequence[Conditions | None], other: Sequence[Conditions | None]
) -> ConditionsGuard:
    """One of each arm for every counted pair. Fails when the machine is shown to have been slower
    or busier for the baseline, and when a run has no conditions on record.
    """
    pairs = [(left, right) for left, right in zip(base, other, strict=True) if left and right]
    if len(pairs) != len(base):
        reason = f"conditions: {len(base) - len(pairs)} pairs have none on record"
        return ConditionsGuard(None, None, False, reason)
    slower = lower_bound([math.log(left.pace_ns / right.pace_ns) for left, right in pairs], LEVEL)
    shares = [(left.foreign, right.foreign) for left, right in pairs]
    told = [(left, right) for left, right in shares if left is not None and right is not None]
    busier = None
    if len(told) == len(shares):
        busier = math.log1p(lower_bound([left - right for left, right in told], LEVEL))
    reason = ""
    if slower > PACE_BOUND:
        reason = (
            f"conditions: the machine was at least {slower:.1%} slower around the baseline's runs, "
            f"wanted at most {PACE_BOUND:.0%}: its clock or its load changed between the arms"
        )
    elif busier is not None and busier > LOAD_BOUND:
        reason = (
            f"conditions: other work took at least {busier:.1%} more of the cores in the "
            f"baseline's runs, wanted at most {LOAD_BOUND:.0%}"
        )
    return ConditionsGuard(slower, busier, not reason, reason)
