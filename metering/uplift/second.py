"""The guards that the second method added, judged together from one evidence folder.

In: the A/A and the uplift pairs, the folders of their runs. Out: :class:`SecondMethod`. A plan of
the first method has none of them; what it measured is judged as it was signed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.loadgen.verdict import ACCURACY, accuracy_outputs, logged_outputs
from metering.loadgen.verify import load_run
from metering.uplift.conditions import Conditions, ConditionsGuard, conditions_guard
from metering.uplift.gate import Guard
from metering.uplift.guards import HeldBackGuard, held_back_guard
from metering.uplift.order import WARM_UP_PAIRS
from metering.uplift.pairs import RUNS, PairedRuns
from metering.uplift.precision import (
    PrecisionGuard,
    Rows,
    pinned_precision,
    precision_guard,
)


@dataclass(frozen=True)
class SecondMethod:
    """Precision of the candidate, conditions of both arms, the baseline against itself."""

    precision: PrecisionGuard
    conditions: ConditionsGuard
    held_back: HeldBackGuard

    @property
    def guards(self) -> tuple[Guard, ...]:
        return (self.precision, self.conditions, self.held_back)

    def to_dict(self) -> dict[str, Any]:
        return {
            "precision": self.precision.to_dict(),
            "conditions": self.conditions.to_dict(),
            "held_back": self.held_back.to_dict(),
        }


def second_method(aa: PairedRuns, uplift: PairedRuns, evidence: Path) -> SecondMethod:
    """Judge ``aa``, ``uplift`` and ``accuracy`` of ``evidence``, which were loaded and hold."""
    seen: list[tuple[Conditions | None, Conditions | None]] = [
        pair.conditions or (None, None) for pair in uplift.pairs[WARM_UP_PAIRS:]
    ]
    if uplift.complete:
        conditions = conditions_guard([one[0] for one in seen], [one[1] for one in seen])
    else:
        conditions = ConditionsGuard(None, None, False, "conditions: the uplift broke off")
    if uplift.base_spec.task == "embedding":
        precision = precision_guard(list(_compared(uplift, evidence)))
    else:
        precision = pinned_precision(uplift.other.stack)
    return SecondMethod(
        precision=precision,
        conditions=conditions,
        held_back=held_back_guard(aa, uplift),
    )


def _compared(uplift: PairedRuns, evidence: Path) -> Iterator[tuple[str, Rows, Rows]]:
    """The accuracy runs of both, and what each run gave while it was timed against them."""
    answers = {}
    for run_id in ("reference", "candidate"):
        folder = evidence / "accuracy" / RUNS / run_id
        if not load_run(folder).valid:
            return
        answers[run_id] = accuracy_outputs((folder / ACCURACY).read_bytes())
    yield "the accuracy run", answers["reference"], answers["candidate"]
    for pair in uplift.pairs:
        log = evidence / "uplift" / RUNS / pair.other.run_id / ACCURACY
        if log.is_file():
            positions, rows = logged_outputs(log.read_bytes())
            yield f"timed run {pair.other.run_id}", answers["reference"][positions], rows
