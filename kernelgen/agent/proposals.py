"""What a proposer may put before the judge: a schedule, or a whole kernel somebody wrote.

In: nothing. Out: frozen records with a one-line `text()` that names them in every trial.
Never here: where a proposal came from; whether it is any good.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from kernelgen.schedule import Schedule


@dataclass(frozen=True, order=True)
class Written:
    """A C kernel behind the judged interface, in exactly the text that is compiled and judged."""

    operator: str
    source: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    def text(self) -> str:
        """One line in a schedule's form, so that every reader of records can read it."""
        return f"{self.operator}: kernel=c{self.sha256}"


@dataclass(frozen=True)
class Unusable:
    """An answer that is no proposal. It counts as a trial: failures stay in the denominator.

    `number` tells the unusable answers of one search apart; `reason` is one of `ANSWER_REASONS`.
    """

    operator: str
    number: int
    reason: str
    detail: str

    def text(self) -> str:
        return f"{self.operator}: answer=n{self.number}"


ANSWER_REASONS = {
    "no_answer": "the language model's server gave no answer in time, or an error",
    "malformed_answer": "the answer was not one fenced block of the wanted kind",
    "illegal_schedule": "the answered schedule is not in the search space",
    "source_refused": "the answered C text asks for something a kernel may not ask for",
    "known_answer": "the answer had been tried before",
    "fault": "the machine failed (disk full, compiler or candidate killed); nobody is to blame",
}
"""Reasons beside the judge's own that a trial may carry."""

FAULT = "fault"

Proposal = Schedule | Written
Offer = Schedule | Written | Unusable


def kernel_digest(text: str) -> str | None:
    """The SHA-256 inside the `text()` of a written kernel; None for anything else."""
    mark = ": kernel=c"
    digest = text.partition(mark)[2]
    return digest if len(digest) == 64 else None
