"""The accuracy guard: do two systems say the same about the same sentences?

In: outputs of a reference and of a candidate, row by row. Out: cosine and absolute error, and
whether every single row stays above the plan's floor. A mean above the floor does not pass: one
broken sentence in a thousand hides in a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from metering.uplift.estimate import fraction_text


class Verdict(Protocol):
    """What is known of a system's answers, whatever the task: see also ``reading``."""

    @property
    def samples(self) -> int: ...

    @property
    def passed(self) -> bool: ...

    @property
    def words(self) -> str:
        """What was found, in one phrase."""
        ...

    @property
    def wanted(self) -> str:
        """What would have passed, in one phrase."""
        ...

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Accuracy:
    """Worst and mean cosine similarity, worst absolute difference, rows compared, the floor."""

    min_cosine: float
    mean_cosine: float
    max_abs_error: float
    samples: int
    floor: float
    passed: bool

    @property
    def words(self) -> str:
        return f"worst cosine {self.min_cosine:.6f}"

    @property
    def wanted(self) -> str:
        return f"at least {self.floor}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "min_cosine": fraction_text(self.min_cosine, down=True),
            "mean_cosine": fraction_text(self.mean_cosine, down=True),
            "max_abs_error": fraction_text(self.max_abs_error),
            "samples": self.samples,
            "floor": fraction_text(self.floor),
            "passed": self.passed,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Accuracy:
        return cls(
            min_cosine=float(data["min_cosine"]),
            mean_cosine=float(data["mean_cosine"]),
            max_abs_error=float(data["max_abs_error"]),
            samples=int(data["samples"]),
            floor=float(data["floor"]),
            passed=bool(data["passed"]),
        )


def accuracy_guard(
    reference: npt.NDArray[np.float32], candidate: npt.NDArray[np.float32], floor: float
) -> Accuracy:
    """Compare (n, d) float32 outputs, row i against row i, in float64.

    Fails, never raises, on rows that are not finite or all zero; raises ValueError when the shapes
    differ or the floor is not in (0, 1].
    """
    if reference.shape != candidate.shape or reference.ndim != 2 or len(reference) == 0:
        raise ValueError(
            f"outputs: got {candidate.shape}, wanted the reference's {reference.shape}, (n, d)"
        )
    if not 0 < floor <= 1:
        raise ValueError(f"floor: got {floor}, wanted a cosine above 0, at most 1")
    left, right = reference.astype(np.float64), candidate.astype(np.float64)
    finite = np.isfinite(left).all(axis=1) & np.isfinite(right).all(axis=1)
    mask = np.asarray(finite)[:, None]
    left, right = np.where(mask, left, 0), np.where(mask, right, 0)
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    dots = np.einsum("ij,ij->i", left, right)
    # A row that cannot be compared counts as opposite: it must fail the guard, not vanish.
    cosine = np.where(norms > 0, dots / np.where(norms > 0, norms, 1), -1.0)
    worst = float(cosine.min())
    return Accuracy(
        min_cosine=worst,
        mean_cosine=float(cosine.mean()),
        max_abs_error=float(np.abs(left - right).max()),
        samples=len(reference),
        floor=floor,
        passed=bool(worst >= floor and finite.all()),
    )
