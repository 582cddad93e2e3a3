"""Timing several sides against each other in one process on one pinned core.

In: named callables. Out: per-round times and ratio intervals. Never here: comparing times from
different runs.

Each round visits the sides in a fresh random order; at its turn a side makes one untimed call,
which brings its own data back into the caches the others used, and then a few timed ones. Noise
that lasts longer than a round hits all sides alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.float64]


@contextmanager
def pinned(core: int) -> Iterator[None]:
    """Run on one core. Raises `ValueError` when the process may not use it."""
    allowed = os.sched_getaffinity(0)
    if core not in allowed:
        raise ValueError(f"core: got {core}, this process may use {sorted(allowed)}")
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def race(
    sides: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    calls: int,
    seed: int,
    before_round: Callable[[], None] | None = None,
) -> dict[str, Times]:
    """Median time of `calls` calls per round, in microseconds, `rounds` values per side.

    `before_round` runs outside every clock, for example to change the contents of the buffers.
    """
    rng = np.random.default_rng(seed)
    names = list(sides)
    times = {name: np.empty(rounds, np.float64) for name in names}
    for call in sides.values():
        call()
    for number in range(rounds):
        if before_round is not None:
            before_round()
        for place in rng.permutation(len(names)):
            call = sides[names[place]]
            call()
            spent = []
            for _ in range(calls):
                began = time.perf_counter_ns()
                call()
                spent.append(time.perf_counter_ns() - began)
            times[names[place]][number] = float(np.median(spent)) / 1e3
    return times


def ratio_interval(
    above: Times, below: Times, *, seed: int, draws: int = 2000
) -> tuple[float, float, float]:
    """Median of the per-round ratios above / below with its 95 % percentile-bootstrap interval over
    rounds.
    """
    ratios = above / below
    rng = np.random.default_rng(seed)
    picked = rng.integers(0, len(ratios), size=(draws, len(ratios)))
    low, high = np.quantile(np.median(ratios[picked], axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)
