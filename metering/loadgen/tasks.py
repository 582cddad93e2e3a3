"""What one batch of each task is: a call of the opened system, and its answers to the ledger.

In: a spec, a function that opens a system, and the ledger. Out: a :class:`Worker` per instance,
which answers batches and warms up. It runs on the instance's own thread, never on LoadGen's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from metering.loadgen.answers import encode_texts, encode_tokens
from metering.loadgen.ledger import CompletionLedger
from metering.loadgen.spec import RunSpec, SutSpec
from metering.stacks.system import GenerationLimit, Generator, Recogniser, System

AnySystem = System | Recogniser | Generator
OpenSystem = Callable[[SutSpec, Path, str], Any]
"""Opens what the task of the spec needs: a System, a Recogniser or a Generator."""

Samples = Sequence[npt.NDArray[Any]]


class AnswerError(ValueError):
    """A system that answered otherwise than its task says."""


class Worker(Protocol):
    """One opened instance, used by one thread."""

    def answer(self, ids: Sequence[int], samples: Samples) -> None:
        """Answer the response ``ids`` for ``samples``."""
        ...

    def warm_up(self, samples: Samples) -> None:
        """The same work with nobody to tell."""
        ...

    def close(self) -> None: ...


def open_worker(spec: RunSpec, open_system: OpenSystem, ledger: CompletionLedger) -> Worker:
    system = open_system(spec.sut, Path(spec.model), spec.output)
    if spec.task == "generation":
        limit = GenerationLimit(spec.max_new_tokens, spec.end_token)
        return _Generating(system, ledger, limit)
    if spec.task == "text_recognition":
        return _Recognising(system, ledger)
    return _Embedding(system, ledger)


class _Embedding:
    def __init__(self, system: System, ledger: CompletionLedger) -> None:
        self._system = system
        self._ledger = ledger
        self.close = system.close

    def answer(self, ids: Sequence[int], samples: Samples) -> None:
        self._ledger.complete(ids, self._system.infer(samples))

    def warm_up(self, samples: Samples) -> None:
        self._system.infer(samples)


class _Recognising:
    def __init__(self, system: Recogniser, ledger: CompletionLedger) -> None:
        self._system = system
        self._ledger = ledger
        self.close = system.close

    def answer(self, ids: Sequence[int], samples: Samples) -> None:
        texts = self._system.infer(samples)
        self._ledger.complete_bytes(ids, encode_texts(texts, len(ids)))

    def warm_up(self, samples: Samples) -> None:
        self._system.infer(samples)


class _Generating:
    def __init__(self, system: Generator, ledger: CompletionLedger, limit: GenerationLimit) -> None:
        self._system = system
        self._ledger = ledger
        self._limit = limit
        self.close = system.close

    def answer(self, ids: Sequence[int], samples: Samples) -> None:
        tokens: list[list[int]] = [[] for _ in ids]
        ended = [False] * len(ids)
        for position, new in self._system.generate(samples, self._limit):
            if not 0 <= position < len(ids) or ended[position] or not len(new):
                raise AnswerError(
                    f"a step of {len(new)} tokens at position {position} of {len(ids)} answers: "
                    "no such position, nothing new, or after its end"
                )
            if not tokens[position]:
                self._ledger.begin(ids[position], encode_tokens(new[:1]))
            tokens[position].extend(map(index, new))
            self._ledger.tokens += len(new)
            if self._has_ended(tokens[position], new):
                ended[position] = True
                self._ledger.complete_tokens(ids[position], tokens[position])
        if not all(ended):
            raise AnswerError(
                f"answers {[i for i, done in enumerate(ended) if not done]} of {len(ids)} stopped "
                "before their limit and without the end token"
            )

    def _has_ended(self, tokens: Sequence[int], new: Sequence[int]) -> bool:
        """Looks at ``new`` alone for the end token: before it, the answer had not ended."""
        limit = self._limit
        if len(tokens) > limit.max_new_tokens or limit.end_token in new[:-1]:
            raise AnswerError(
                f"an answer of {len(tokens)} tokens, wanted at most {limit.max_new_tokens} and "
                f"none after the end token {limit.end_token}"
            )
        return len(tokens) == limit.max_new_tokens or tokens[-1] == limit.end_token

    def warm_up(self, samples: Samples) -> None:
        for _ in self._system.generate(samples, self._limit):
            pass
