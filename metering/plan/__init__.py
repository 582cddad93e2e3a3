"""The measurement plan: what is fixed, and signed, before the first run.

Nouns: `MeasurementPlan` (how baseline and uplift are measured), `PriceBook` (what a core hour
costs), `Period` (a half-open span of time in the contract's zone).
Invariants: frozen; every field has a unit in its name or docstring; `digest` is the SHA-256 of
the RFC 8785 bytes of `to_json()`; times are aware UTC; periods are half-open [start, end).
Never here: reading a clock, a default that decides money, a float.
"""

from metering.plan.accuracy_floor import AccuracyFloor, CosineFloor
from metering.plan.measurement import MeasurementPlan, Seeds, SweepSpace
from metering.plan.period import Period, anchored_starts
from metering.plan.price import PriceBook
from metering.plan.scenario_bounds import MultiStreamBounds, ServerBounds
from metering.plan.short_run import short_run_plan

__all__ = [
    "AccuracyFloor",
    "CosineFloor",
    "MeasurementPlan",
    "MultiStreamBounds",
    "Period",
    "PriceBook",
    "Seeds",
    "ServerBounds",
    "SweepSpace",
    "anchored_starts",
    "short_run_plan",
]
