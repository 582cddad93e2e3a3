"""How the answers of a task are compared, so that everything that measures can ask the same way.

In: the signed plan, the accuracy logs of runs and, for lines of text, their known texts. Out: an
:class:`AnswerCheck`. Embeddings are held to a reference's by cosine, read lines to the known text
and to a reference's reading. What a task's answers look like in a log is ``loadgen``'s.
Never here: which runs are compared, a floor that the plan does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from metering.datasets.reading import ReadingFloor
from metering.datasets.truth import Truth, read_truth
from metering.loadgen.verdict import (
    accuracy_outputs,
    accuracy_texts,
    logged_outputs,
    logged_texts,
)
from metering.loadgen.verify import EvidenceError
from metering.plan import CosineFloor, MeasurementPlan
from metering.uplift.accuracy import Accuracy, Verdict, accuracy_guard
from metering.uplift.reading import KIND, Line, Reading, reading_guard


class AnswerCheck(Protocol):
    """Compares answers. Raises ValueError where they have no common form."""

    def whole(self, reference: bytes, found: bytes) -> Verdict:
        """Two logs of accuracy runs over the same library, sample by sample."""
        ...

    def sampled(self, logged: Sequence[tuple[bytes, Sequence[bytes]]]) -> Verdict:
        """(log of an accuracy run, logs of timed runs whose answers are held to it), by system."""
        ...

    def none(self) -> Verdict:
        """Nothing to compare, since a run was not VALID: fails."""
        ...

    def asked(self, samples_sha256: str, where: str) -> None:
        """Raises EvidenceError when a run was asked other samples than the check knows."""
        ...


@dataclass(frozen=True)
class CosineCheck:
    """Embeddings against a reference's; ``floor`` is a cosine."""

    floor: float

    def whole(self, reference: bytes, found: bytes) -> Accuracy:
        return accuracy_guard(accuracy_outputs(reference), accuracy_outputs(found), self.floor)

    def sampled(self, logged: Sequence[tuple[bytes, Sequence[bytes]]]) -> Accuracy:
        expected, found = [], []
        for reference, timed in logged:
            outputs = accuracy_outputs(reference)
            for log in timed:
                positions, rows = logged_outputs(log)
                expected.append(outputs[positions])
                found.append(rows)
        if not found:
            return self.none()
        return accuracy_guard(np.concatenate(expected), np.concatenate(found), self.floor)

    def none(self) -> Accuracy:
        return Accuracy(-1.0, -1.0, 0.0, 0, self.floor, passed=False)

    def asked(self, samples_sha256: str, where: str) -> None:
        """Embeddings have no truth that could be another library's."""


@dataclass(frozen=True)
class ReadingCheck:
    """Read lines against ``truth`` and a reference's reading."""

    floor: ReadingFloor
    truth: Truth

    def whole(self, reference: bytes, found: bytes) -> Reading:
        mine, other = accuracy_texts(reference), accuracy_texts(found)
        texts = self.truth.texts
        if not len(mine) == len(other) == len(texts):
            raise ValueError(
                f"lines: got {len(other)} and the reference {len(mine)}, wanted {len(texts)}, as "
                "the truth has"
            )
        lines = zip(texts, mine, other, strict=True)
        return self._judged([Line((0, place), *line) for place, line in enumerate(lines)])

    def sampled(self, logged: Sequence[tuple[bytes, Sequence[bytes]]]) -> Reading:
        found = []
        for system, (reference, timed) in enumerate(logged):
            mine = accuracy_texts(reference)
            if len(mine) != len(self.truth.texts):
                raise ValueError(
                    f"lines: got {len(mine)}, wanted {len(self.truth.texts)}, as the truth has"
                )
            found += [
                Line((system, place), self.truth.texts[place], mine[place], text)
                for log in timed
                for place, text in logged_texts(log)
            ]
        return self._judged(found)

    def _judged(self, lines: Sequence[Line]) -> Reading:
        return reading_guard(lines, self.floor)

    def none(self) -> Reading:
        return self._judged(())

    def asked(self, samples_sha256: str, where: str) -> None:
        if samples_sha256 != self.truth.samples_sha256:
            raise EvidenceError(
                f"{where}: was asked from {samples_sha256[:12]}, the truth is that of "
                f"{self.truth.samples_sha256[:12]}"
            )


def answer_check(plan: MeasurementPlan, folder: Path) -> AnswerCheck:
    """The check of the plan's task; ``folder`` holds the ``truth.json`` that reading needs.

    Raises EvidenceError without it.
    """
    floor = plan.accuracy_floor
    if isinstance(floor, CosineFloor):
        return CosineCheck(float(floor.cosine))
    return ReadingCheck(floor, read_truth(folder))


def verdict_from_dict(data: Mapping[str, Any]) -> Verdict:
    """A stored verdict of either kind. Raises ValueError, KeyError, TypeError, ArithmeticError."""
    return Reading.from_dict(data) if data.get("kind") == KIND else Accuracy.from_dict(data)
