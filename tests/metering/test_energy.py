"""Energy: counters that start again, a meter's log, and "not measured" wherever nothing says it."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from metering.energy import Counter, Spent, discover, read_meter
from metering.loadgen import EvidenceError
from metering.refusal import Refusal
from metering.uplift import load_paired
from metering.uplift.conditions import Conditions, watched
from metering.uplift.energy import METER, energy_of
from tests.metering.measure.conftest import evidence, recorded
from tests.metering.meters import constant_power, write_meter

__all__ = ["evidence", "recorded"]

START = datetime(2027, 1, 1, tzinfo=UTC)


class NoDriverError(Exception):
    pass


def nvml(*millijoules: int) -> Any:
    """NVML as its library speaks, with devices that count so much; none: no driver."""

    def begin() -> None:
        if not millijoules:
            raise NoDriverError("driver not loaded")

    return SimpleNamespace(
        NVMLError=NoDriverError,
        nvmlInit=begin,
        nvmlDeviceGetCount=lambda: len(millijoules),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=lambda device: millijoules[device],
    )


def zone(root: Path, number: str, name: str, energy: int) -> Path:
    folder = root / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", 1000)):
        (folder / file).write_text(f"{value}\n")
    return folder


def test_packages_and_memory_are_counted_once_and_start_again(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 900)
    zone(tmp_path, "0:0", "core", 500)  # inside the package
    memory = zone(tmp_path, "0:1", "dram", 10)
    zone(tmp_path, "1", "psys", 5000)  # holds the packages
    counter, reason = discover(tmp_path, nvml())
    assert counter is not None
    assert reason == ""
    before = counter.now()
    assert before == (900, 10)
    (package / "energy_uj").write_text("100\n")  # past its range once
    (memory / "energy_uj").write_text("60\n")
    assert counter.spent(before, counter.now()) == Spent(
        "rapl", Decimal("0.000250"), Decimal("0.05")
    )
    (package / "energy_uj").unlink()
    assert counter.now() is None
    assert counter.spent(before, counter.now()) is None
    assert discover(tmp_path, nvml())[0] is None


def test_devices_count_beside_packages(tmp_path: Path) -> None:
    counter, _ = discover(tmp_path / "none", nvml(7, 9))
    assert counter is not None
    assert (counter.source, counter.now()) == ("nvml", (7000, 9000))
    zone(tmp_path, "0", "package-0", 5)
    both, _ = discover(tmp_path, nvml(7))
    assert both is not None
    assert (both.source, both.now()) == ("rapl+nvml", (5, 7000))


def test_without_counters_the_reason_is_said_and_nothing_is_zero(tmp_path: Path) -> None:
    counter, reason = discover(tmp_path, nvml())
    assert counter is None
    assert reason == f"no RAPL zone in {tmp_path}; NVML: driver not loaded"
    still = Counter("rapl", Decimal("0.05"), lambda: (5,), (0,))
    assert still.spent((5,), (5,)) is None
    with pytest.raises(ValueError, match="above 0"):
        Spent.from_dict({"source": "rapl", "joules": "0", "uncertainty": "0.05"})


def test_a_reading_stands_with_the_conditions_of_its_run() -> None:
    ticks = iter([(1_000_000,), (3_500_000,)])
    counter = Counter("rapl", Decimal("0.05"), lambda: next(ticks), (0,))
    result: Any = SimpleNamespace(cpu_s=0.0)
    _, seen = watched((0,), lambda: result, counter)
    assert seen.energy == Spent("rapl", Decimal("2.5"), Decimal("0.05"))
    assert Conditions.from_dict(json.loads(json.dumps(seen.to_dict()))).energy == seen.energy
    _, silent = watched((0,), lambda: result)
    assert "energy" not in silent.to_dict()


def test_a_meters_log_is_read_between_its_rows(tmp_path: Path) -> None:
    second = timedelta(seconds=1)
    log = read_meter(
        write_meter(
            tmp_path / "m.csv", [(START, "10"), (START + second, "20"), (START + 3 * second, "60")]
        )
    )
    spent = log.spent(START + second / 2, START + 2 * second)
    assert spent == Spent("meter", Decimal(25), Decimal("0.01"))
    assert log.spent(START, START + 3 * second) == Spent("meter", Decimal(50), Decimal("0.01"))
    assert log.spent(START - second, START + second) is None
    assert log.spent(START, START + 4 * second) is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "m.csv"),
        ("time,watts\n", "m.csv"),
        ("time,energy_j,uncertainty\n2027-01-01T00:00:00Z,1,0.1\n", "m.csv"),
        (
            "time,energy_j,uncertainty\n2027-01-01T00:00:00Z,1,0.1\n2027-01-01T00:00:00Z,2,0.1\n",
            "m.csv row 3",
        ),
        (
            "time,energy_j,uncertainty\n2027-01-01T00:00:00Z,2,0.1\n2027-01-01T00:00:01Z,1,0.1\n",
            "m.csv row 3",
        ),
        (
            "time,energy_j,uncertainty\n2027-01-01T00:00:00,2,0.1\n2027-01-01T00:00:01Z,3,0.1\n",
            "m.csv row 2 time",
        ),
        (
            "time,energy_j,uncertainty\n2027-01-01T00:00:00Z,2,1\n2027-01-01T00:00:01Z,3,1\n",
            "m.csv row 2 uncertainty",
        ),
    ],
    ids=range(7),
)
def test_a_meters_log_that_is_none_is_refused(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(Refusal) as refused:
        read_meter(tmp_path / "m.csv")
    assert refused.value.field == field


def test_an_uplift_says_its_energy_or_that_there_is_none(evidence: Path) -> None:
    """The recorded runs, without readings, with counters' and with a meter's of constant power."""
    paired = load_paired(evidence / "uplift")
    silent = energy_of(paired, evidence)
    assert not silent.measured
    assert silent.words.startswith("not measured: no counter was read around run")
    assert silent.to_dict()["state"] == "not measured"
    half = dataclasses.replace(paired, pairs=paired.pairs[:3])
    assert energy_of(half, evidence).words == "not measured: the uplift broke off"

    def counted(joules: str) -> Conditions:
        return Conditions(1, None, Spent("rapl", Decimal(joules), Decimal("0.05")))

    pairs = [
        dataclasses.replace(pair, conditions=(counted("6"), counted("4"))) for pair in paired.pairs
    ]
    found = energy_of(dataclasses.replace(paired, pairs=tuple(pairs)), evidence)
    assert found.less is not None
    # Offline asks both arms for the same samples, so 6 J against 4 J is half as much again.
    assert found.less.point == pytest.approx(0.5)
    assert "rapl, off by up to 5.0%" in found.words
    constant_power(evidence, 100)
    metered = energy_of(paired, evidence)
    assert metered.less is not None
    assert metered.source == "meter"
    uplift = paired.estimate()
    assert metered.less.point == pytest.approx(uplift.point, rel=0.05)
    constant_power(evidence, 100, missing=timedelta(seconds=1))
    assert "the meter's log does not cover run" in energy_of(paired, evidence).words
    (evidence / METER).write_text("time\n")
    with pytest.raises(EvidenceError, match=METER):
        energy_of(paired, evidence)
