"""The measurement plan: what is fixed, and signed, before the first run.

Nouns: `MeasurementPlan` (how baseline and uplift are measured), `PriceBook` (what a core hour
costs), `Period` (a half-open span of time in the contract's zone).
Invariants: frozen; every field has a unit in its name or docstring; `digest` is the SHA-256 of
the RFC 8785 bytes of `to_json()`; times are aware UTC; periods are half-open [start, end).
Never here: reading a clock, a default that decides money, a float.
"""

from metering.plan.measurement import MeasurementPlan, Seeds, SweepSpace, short_run_plan
from metering.plan.period import Period, anchored_starts
from metering.plan.price import PriceBook

__all__ = [
    "MeasurementPlan",
    "Period",
    "PriceBook",
    "Seeds",
    "SweepSpace",
    "anchored_starts",
    "short_run_plan",
]
