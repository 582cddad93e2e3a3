"""This machine as a record: stable facts with a fingerprint, plus measured peaks.

In: /proc, /sys, NVML when present, and two small generated C loops. Out: a frozen `Machine`.
Never here: caching (the caller's business), host names, anything that changes between two boots of one machine
inside the fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True)
class Machine:
    """`isa` holds the instruction-set words that schedules ask about, sorted; peaks are per core, None when unmeasured."""

    cpu_model: str
    architecture: str
    isa: tuple[str, ...]
    cores: int
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    memory_bytes: int
    kernel: str
    gpus: tuple[Gpu, ...]
    fingerprint: str
    peak_gflops_per_core: float | None
    peak_gbps_per_core: float | None

    def to_dict(self) -> dict[str, object]:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Machine:
        raise NotImplementedError


def describe(*, measure: bool = True) -> Machine:
    """Read the machine; with `measure` also time the peaks on one core (about half a second)."""
    raise NotImplementedError
