"""A system that computes nothing: the floor of the Python path on this machine.

In: anything. Out: zeros, empty texts, token 0 up to the limit. It exists to find systems too fast
to be measured through Python; no sweep takes it as a baseline and no pairing as an arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.system import (
    Embeddings,
    GenerationLimit,
    Generator,
    Image,
    Recogniser,
    StackInfo,
    System,
    TokenIds,
)

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default", "all")
_WIDTH = 384


def discover(sut: SutSpec | None = None) -> StackInfo:
    return StackInfo("null", "1", "", True, "")


class NullSystem:
    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        return np.zeros((len(batch), _WIDTH), dtype=np.float32)

    def close(self) -> None:
        """Nothing was opened."""


class NullRecogniser:
    def infer(self, batch: Sequence[Image]) -> Sequence[str]:
        return [""] * len(batch)

    def close(self) -> None:
        """Nothing was opened."""


class NullGenerator:
    def generate(
        self, batch: Sequence[TokenIds], limit: GenerationLimit
    ) -> Iterator[tuple[int, Sequence[int]]]:
        for position in range(len(batch)):
            yield position, (0,)
        rest = [0] * (limit.max_new_tokens - 1)
        for position in range(len(batch)):
            yield position, rest

    def close(self) -> None:
        """Nothing was opened."""


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return NullSystem()


def open_recogniser(sut: SutSpec, model: Path, output: str) -> Recogniser:
    return NullRecogniser()


def open_generator(sut: SutSpec, model: Path, output: str) -> Generator:
    return NullGenerator()
