"""One LoadGen test per fresh, supervised process: spec -> child -> logs -> verdict.

In: a :class:`RunSpec`. Out: a folder of logs and a :class:`RunResult` whose state is one of VALID,
INVALID, ERROR, HUNG, CRASHED, SILENT. A figure comes from the detail log of a VALID run only, and
anyone can work it out again with :func:`load_run`. No test ever runs inside the calling process.
"""

from __future__ import annotations

from metering.loadgen.calibrate import (
    Calibration,
    CalibrationError,
    FloorError,
    calibrate,
    matched,
)
from metering.loadgen.result import Latency, RunResult, State, TokenFigures, TokenLatency
from metering.loadgen.spec import RunSpec, Seeds, SpecError, SutSpec
from metering.loadgen.supervisor import Heartbeat, RunRefused, run
from metering.loadgen.verify import EvidenceError, load_run, load_spec, stored

__all__ = [
    "Calibration",
    "CalibrationError",
    "EvidenceError",
    "FloorError",
    "Heartbeat",
    "Latency",
    "RunRefused",
    "RunResult",
    "RunSpec",
    "Seeds",
    "SpecError",
    "State",
    "SutSpec",
    "TokenFigures",
    "TokenLatency",
    "calibrate",
    "load_run",
    "load_spec",
    "matched",
    "run",
    "stored",
]
