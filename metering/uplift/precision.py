"""The precision guard: were float32 results really computed in float32?

In: outputs of the baseline and of the candidate, row by row. Out: a guard. The plan's cosine floor
says what a customer can live with, and half-precision arithmetic stays far above it; so whoever
drops bits without saying so passes that floor and is fast at no visible cost. Rounding has a size,
and this guard looks at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metering.stacks import STOCK
from metering.uplift.estimate import fraction_text

# Relative error of a whole row. Two float32 stacks that add in another order come to some 1e-6;
# one rounding to 11 bits of mantissa (float16, TF32) is 2**-12 = 2.4e-4 an operand, to 8 bits
# (bfloat16) 2**-9 = 2e-3.
FLOAT32_BOUND = 1e-4
Rows = npt.NDArray[np.float32]


@dataclass(frozen=True)
class PrecisionGuard:
    """``worst``: the largest ||candidate - baseline|| / ||baseline|| of one row; None without."""

    worst: float | None
    bound: float
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "worst": None if self.worst is None else fraction_text(self.worst),
            "bound": fraction_text(self.bound),
            "passed": self.passed,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PrecisionGuard:
        worst = data["worst"]
        return cls(
            worst=None if worst is None else float(worst),
            bound=float(data["bound"]),
            passed=bool(data["passed"]),
            reason=str(data["reason"]),
        )


def pinned_precision(stack: str) -> PrecisionGuard:
    """The guard of a task whose answers are texts, which show no rounding.

    A stock stack computes in float32 because its adapter pins it; of anything else nothing is
    known, and that is no proof.
    """
    reason = ""
    if stack not in STOCK:
        reason = (
            f"precision: texts do not show how many bits {stack} computed with, wanted a stock "
            "stack pinned to float32"
        )
    return PrecisionGuard(None, FLOAT32_BOUND, not reason, reason)


def precision_guard(compared: Sequence[tuple[str, Rows, Rows]]) -> PrecisionGuard:
    """Judge (name, expected (n, d), found (n, d)) float32 rows, in float64.

    No rows at all are no proof. A row that is not finite counts as infinitely wrong.
    """
    worst, where = 0.0, ""
    for name, expected, found in compared:
        if expected.shape != found.shape:
            raise ValueError(f"outputs of {name}: got {found.shape}, wanted {expected.shape}")
        left, right = expected.astype(np.float64), found.astype(np.float64)
        size = np.linalg.norm(left, axis=1)
        error = np.linalg.norm(right - left, axis=1)
        relative = np.where(size > 0, error / np.where(size > 0, size, 1), error)
        relative = np.where(np.isfinite(relative), relative, np.inf)
        if relative.max(initial=0.0) > worst:
            worst, where = float(relative.max()), name
    if not any(len(expected) for _, expected, _ in compared):
        return PrecisionGuard(None, FLOAT32_BOUND, False, "precision: no outputs to compare")
    if not np.isfinite(worst):
        return PrecisionGuard(
            None, FLOAT32_BOUND, False, f"precision: outputs of {where} are not finite"
        )
    reason = ""
    if worst > FLOAT32_BOUND:
        reason = (
            f"precision: a row of {where} is off by {worst:.2e} of its length, wanted at most "
            f"{FLOAT32_BOUND:.0e} of float32: it was computed with fewer bits than the plan says"
        )
    return PrecisionGuard(worst, FLOAT32_BOUND, not reason, reason)
