"""The baseline: the fastest correct stock configuration, found by a sweep and then frozen.

In: the signed plan, a model, samples. Out: a folder of runs and a :class:`Baseline`. It is frozen
before any candidate is measured, and it is the best of every stack that is installed, not the
configuration the customer happened to run; that one is recorded beside it.
"""

from __future__ import annotations

from metering.baseline.candidates import candidates
from metering.baseline.frozen import Baseline, BaselinePolicy, Row, freeze, load, save
from metering.baseline.plan_specs import run_spec
from metering.baseline.sweeping import Cell, Sweep, SweepError, SweepStep, sweep

__all__ = [
    "Baseline",
    "BaselinePolicy",
    "Cell",
    "Row",
    "Sweep",
    "SweepError",
    "SweepStep",
    "candidates",
    "freeze",
    "load",
    "run_spec",
    "save",
    "sweep",
]
