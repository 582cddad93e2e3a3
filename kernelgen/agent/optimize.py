"""The search over a whole model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelgen.agent.results import TrialEvent, TuneResult
from kernelgen.machine import Machine


def optimize(
    model: Path,
    *,
    out: Path,
    budget_s: float,
    samples: Sequence[npt.NDArray[np.int64]],
    seed: int = 0,
    machine: Machine | None = None,
    price_per_core_hour: Decimal = Decimal(0),
    currency: str = "USD",
    records: Path | None = None,
    core: int = 0,
    on_event: Callable[[TrialEvent], None] | None = None,
) -> TuneResult:
    """Search faster kernels for `model` on `machine` and leave a package in `out`."""
    raise NotImplementedError
