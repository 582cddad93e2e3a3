"""A machine that drifts, remembers and jumps, and LoadGen runs on it, many experiments at once.

In: a named machine, a number of experiments and pairs, a true uplift and a seed. Out: rates per run
slot, and from them ``PairedRuns`` as a measurement stores them, ready for the product's own
estimate and gate. All sizes are of log-rates. Only the machine is simulated here: no estimate, no
interval and no decision.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from metering.loadgen import RunResult, RunSpec, SutSpec
from metering.uplift import Pair, PairedRuns, draw_order
from metering.uplift.order import WARM_UP_PAIRS

Rates = npt.NDArray[np.float64]
BASE = SutSpec("onnxruntime", batch=16)
OTHER = SutSpec("kernelgen", arrangement="ragged", batch=16, package="package")
_SPEC = RunSpec("simulated", "Offline", "performance", BASE, "model", "samples", 1, 1.0)
_FIELDS = {
    "run_id": "simulated",
    "scenario": "Offline",
    "mode": "performance",
    "state": "VALID",
    "reasons": (),
    "latency": None,
    "sample_count": 1,
    "effective": {},
    "files": {},
    "spec_sha256": "",
    "started_at": "2026-01-01T00:00:00.000Z",
    "wall_s": 1.0,
    "cpu_s": 1.0,
    "load_average": (0.0, 0.0),
}


@dataclass(frozen=True)
class Machine:
    """``drift``: the largest change over a measurement, either way, as a straight line.
    ``memory`` and ``wander``: coefficient and standard deviation of an AR(1) process over runs.
    ``steps``: chance per run that the level jumps by a normal of ``step_size``.
    ``noise``: standard deviation per run. ``slow_runs``: chance of a run slower by an exponential
    of mean ``slowness``. ``heat``: how much slower the second run of a pair is.
    """

    name: str
    drift: float = 0.0
    memory: float = 0.95
    wander: float = 0.0
    steps: float = 0.0
    step_size: float = 0.0
    noise: float = 0.012
    slow_runs: float = 0.08
    slowness: float = 0.05
    heat: float = 0.0

    def levels(self, experiments: int, runs: int, rng: np.random.Generator) -> Rates:
        """Log-rate of the machine at each run slot, (experiments, runs)."""
        slots = np.linspace(0.0, 1.0, runs)
        found = rng.uniform(-self.drift, self.drift, (experiments, 1)) * slots
        innovation = self.wander * math.sqrt(1 - self.memory**2)
        shocks = rng.normal(0.0, 1.0, (experiments, runs)) * innovation
        state = rng.normal(0.0, 1.0, experiments) * self.wander
        for slot in range(runs):
            state = self.memory * state + shocks[:, slot]
            found[:, slot] += state
        jumps = rng.random((experiments, runs)) < self.steps
        sizes = rng.normal(0.0, 1.0, (experiments, runs)) * self.step_size
        return np.asarray(found + np.cumsum(jumps * sizes, axis=1))

    def runs(self, experiments: int, runs: int, rng: np.random.Generator) -> Rates:
        """Log-rate that LoadGen would report for the base system in each slot."""
        level = self.levels(experiments, runs, rng)
        level[:, 1::2] -= self.heat
        slow = rng.random(level.shape) < self.slow_runs
        level -= slow * rng.exponential(self.slowness, level.shape)
        return np.asarray(level + rng.normal(0.0, self.noise, level.shape))


MACHINES = (
    Machine("quiet", noise=0.005, slow_runs=0.0),
    Machine("drifting", drift=0.20, wander=0.01),
    Machine("autocorrelated", wander=0.04),
    Machine("step-changing", steps=0.08, step_size=0.12),
    Machine("heating", drift=0.10, wander=0.02, heat=0.03),
    Machine("all at once", drift=0.20, wander=0.04, steps=0.08, step_size=0.12, heat=0.03),
)


def pair_up(slots: Rates, uplift: float, seed: int, other: SutSpec) -> PairedRuns:
    """One experiment's slots (2 x pairs,) as the measurement that would be on record."""
    pairs = len(slots) // 2 - WARM_UP_PAIRS
    order = draw_order(seed, pairs + WARM_UP_PAIRS)
    found = []
    for number, first in enumerate(order):
        early, late = float(slots[2 * number]), float(slots[2 * number + 1])
        base, candidate = (early, late) if first == "base" else (late, early)
        found.append(
            Pair(
                pair=number,
                warm_up=number < WARM_UP_PAIRS,
                first=first,
                base=_result(base),
                other=_result(candidate + math.log1p(uplift)),
            )
        )
    return PairedRuns(
        seed=seed,
        planned=pairs,
        base=BASE,
        other=other,
        base_spec=_SPEC,
        other_spec=dataclasses.replace(_SPEC, sut=other),
        order=order,
        pairs=tuple(found),
        abandoned=(),
    )


def _result(log_rate: float) -> RunResult:
    """A run as stored: the six digits that LoadGen prints."""
    rate = Decimal(f"{1000 * math.exp(log_rate):.6g}")
    return RunResult(samples_per_second=rate, **_FIELDS)
