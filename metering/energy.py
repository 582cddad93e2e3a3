"""Energy where the machine or a meter says it, with its uncertainty; else the words, never a zero.

In: the kernel's power capping zones (RAPL), NVML where its library is there, or the log of a meter.
Out: :class:`Counter` and :class:`MeterLog`, both of which say what was :class:`Spent` between two
moments, or why nothing can be said. RAPL counts whole packages and their memory, NVML whole
devices: work of others is in the figure. Neither maker states a bound for energy; what stands as
``uncertainty`` is assumed and says so in docs/method.md.
Never here: an energy worked out from time, load or a data sheet.
"""

from __future__ import annotations

import csv
import importlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

from metering.decimals import parse_decimal
from metering.fields import parse_instant
from metering.refusal import Refusal

NOT_MEASURED = "not measured"
POWERCAP = Path("/sys/class/powercap")
ASSUMED = Decimal("0.05")
COLUMNS = ("time", "energy_j", "uncertainty")
_PLACES = Decimal("0.000001")


@dataclass(frozen=True)
class Spent:
    """Joules above 0, from which source, and the fraction they may be off by."""

    source: str
    joules: Decimal
    uncertainty: Decimal

    def to_dict(self) -> dict[str, str]:
        return {
            "source": self.source,
            "joules": f"{self.joules.quantize(_PLACES):f}",
            "uncertainty": str(self.uncertainty),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spent:
        """Inverse of ``to_dict``. Raises ValueError, KeyError."""
        spent = cls(
            source=str(data["source"]),
            joules=parse_decimal(data["joules"], "energy.joules"),
            uncertainty=parse_decimal(data["uncertainty"], "energy.uncertainty"),
        )
        if not spent.joules > 0 or not 0 <= spent.uncertainty < 1:
            raise ValueError(f"energy: got {data!r}, wanted joules above 0 and a fraction")
        return spent


@dataclass(frozen=True)
class Counter:
    """Counters that only go up; ``ranges_uj`` is where each starts again, 0 for never."""

    source: str
    uncertainty: Decimal
    read_uj: Callable[[], tuple[int, ...]]
    ranges_uj: tuple[int, ...]

    def now(self) -> tuple[int, ...] | None:
        """Microjoules of each counter; None when they cannot be read any more."""
        try:
            return self.read_uj()
        except (OSError, ValueError):
            return None

    def spent(self, before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> Spent | None:
        """Between two readings, at most one start again each; None where nothing was counted."""
        if before is None or after is None:
            return None
        total = 0
        for first, last, span in zip(before, after, self.ranges_uj, strict=True):
            total += last - first if last >= first or not span else last - first + span
        if total <= 0:
            return None
        return Spent(self.source, Decimal(total).scaleb(-6), self.uncertainty)


def discover(root: Path = POWERCAP, nvml: Any = None) -> tuple[Counter | None, str]:
    """Every counter of this machine as one, or None and why. ``nvml`` stands for the library."""
    found, reasons = [], []
    for counter, reason in (_rapl(root), _nvml(nvml)):
        if counter is None:
            reasons.append(reason)
        else:
            found.append(counter)
    if not found:
        return None, "; ".join(reasons)
    if len(found) == 1:
        return found[0], ""
    both = tuple(found)
    return Counter(
        source="+".join(counter.source for counter in both),
        uncertainty=max(counter.uncertainty for counter in both),
        read_uj=lambda: tuple(value for counter in both for value in counter.read_uj()),
        ranges_uj=tuple(value for counter in both for value in counter.ranges_uj),
    ), ""


def _rapl(root: Path) -> tuple[Counter | None, str]:
    try:
        zones = [
            path
            for path in sorted(root.glob("intel-rapl:*"))
            if (name := (path / "name").read_text().strip()).startswith("package") or name == "dram"
        ]
        if not zones:
            return None, f"no RAPL zone in {root}"
        ranges = tuple(_number(path / "max_energy_range_uj") for path in zones)
        for path in zones:
            _number(path / "energy_uj")
    except (OSError, ValueError) as error:
        return None, f"RAPL cannot be read ({error})"
    return Counter(
        "rapl", ASSUMED, lambda: tuple(_number(path / "energy_uj") for path in zones), ranges
    ), ""


def _number(path: Path) -> int:
    return int(path.read_text())


def _nvml(library: Any) -> tuple[Counter | None, str]:
    try:
        library = library or importlib.import_module("pynvml")
        library.nvmlInit()
        devices = [
            library.nvmlDeviceGetHandleByIndex(index)
            for index in range(library.nvmlDeviceGetCount())
        ]

        def read() -> tuple[int, ...]:
            try:
                # NVML counts millijoules since its driver was loaded.
                return tuple(
                    1000 * int(library.nvmlDeviceGetTotalEnergyConsumption(device))
                    for device in devices
                )
            except library.NVMLError as error:
                raise OSError(str(error)) from error

        read()
    except ImportError:
        return None, "no NVML library"
    except (library.NVMLError, OSError) as error:
        return None, f"NVML: {error}"
    if not devices:
        return None, "NVML: no device"
    return Counter("nvml", ASSUMED, read, (0,) * len(devices)), ""


@dataclass(frozen=True)
class MeterLog:
    """Joules counted up to each moment (aware UTC, in order), as a meter's log has them."""

    times: tuple[datetime, ...]
    joules: tuple[Decimal, ...]
    uncertainty: Decimal

    def spent(self, begin: datetime, end: datetime) -> Spent | None:
        """Between two moments, linear between rows; None outside the log or for nothing spent."""
        if not self.times[0] <= begin < end <= self.times[-1]:
            return None
        total = self._at(end) - self._at(begin)
        return Spent("meter", total, self.uncertainty) if total > 0 else None

    def _at(self, moment: datetime) -> Decimal:
        place = min(bisect_right(self.times, moment), len(self.times) - 1)
        before, after = self.times[place - 1], self.times[place]
        share = Decimal((moment - before).total_seconds()) / Decimal(
            (after - before).total_seconds()
        )
        return self.joules[place - 1] + (self.joules[place] - self.joules[place - 1]) * share


def read_meter(path: Path) -> MeterLog:
    """A CSV with the columns time (RFC 3339), energy_j (counted up), uncertainty (a fraction).

    Raises Refusal naming the row, OSError.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise Refusal(path.name, rows[0] if rows else "nothing", "the columns " + ",".join(COLUMNS))
    if len(rows) < 3:
        raise Refusal(path.name, f"{len(rows) - 1} readings", "at least two")
    parsed = [_reading(row, f"{path.name} row {number}") for number, row in enumerate(rows[1:], 2)]
    times, joules, shares = zip(*parsed, strict=True)
    for number, (first, last) in enumerate(pairwise(parsed), 3):
        if first[0] >= last[0] or first[1] > last[1]:
            raise Refusal(f"{path.name} row {number}", rows[number - 1], "a later time, no less")
    return MeterLog(times, joules, max(shares))


def _reading(row: Sequence[str], where: str) -> tuple[datetime, Decimal, Decimal]:
    if len(row) != len(COLUMNS):
        raise Refusal(where, row, "three values")
    share = parse_decimal(row[2], f"{where} uncertainty")
    if not 0 <= share < 1:
        raise Refusal(f"{where} uncertainty", row[2], "a fraction from 0 to below 1")
    return parse_instant(row[0], f"{where} time"), parse_decimal(row[1], f"{where} energy_j"), share
