"""What a search hands back: plain records, JSON-able, no behaviour.

In: nothing. Out: the records. Never here: files, clocks, the search itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Literal

EventKind = Literal[
    "started", "operator", "trial", "kept", "model_gate", "interrupted", "resumed", "done"
]


@dataclass(frozen=True)
class TrialEvent:
    """One line of progress. `ratio` is incumbent time over candidate time, above 1 is faster."""

    kind: EventKind
    operator: str | None
    trial: int
    text: str
    ratio: float | None
    seconds_elapsed: float


@dataclass(frozen=True)
class OperatorResult:
    """What the search did for one operator.

    `share` is its part of the model's time before the search (0 to 1). `ratio` with its 95 %
    interval compares the default schedule with the one that was kept, both timed interleaved; 1.0
    when the default stayed.
    """

    operator: str
    share: float
    trials: int
    accepted: int
    default_schedule: str
    schedule: str
    default_ns: float | None
    time_ns: float | None
    ratio: float
    ratio_lo: float
    ratio_hi: float
    roofline_fraction: float | None


@dataclass(frozen=True)
class ModelGate:
    """Whether the searched kernels win inside the whole model; the only verdict that lets them into
    a package.

    `correct` is the judge's word on the assembled model. `ratio` compares the package with default
    schedules and the package with searched ones, interleaved, on samples of the traffic. `kept`
    names the operators whose new schedule is in the package, `dropped` those that won alone and
    lost inside the model.
    """

    correct: bool
    reason: str
    max_error_ratio: float
    rounds: int
    ratio: float
    ratio_lo: float
    ratio_hi: float
    kept: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True)
class TuneResult:
    """A finished search. `rejected` counts refused trials by the judge's reason."""

    package: Path
    manifest_sha256: str
    trials: int
    accepted: int
    rejected: Mapping[str, int]
    seconds: float
    cost: Decimal
    currency: str
    operators: tuple[OperatorResult, ...]
    model_gate: ModelGate

    def to_dict(self) -> dict[str, object]:
        """JSON-able form; the cost is text, as money always is."""
        return {
            **asdict(self),
            "package": str(self.package),
            "cost": str(self.cost),
            "rejected": dict(self.rejected),
        }
