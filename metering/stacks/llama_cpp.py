"""llama.cpp on the CPU through llama-cpp-python: language models in GGUF files.

In: threads and a GGUF file. Out: a Generator. Decoding is greedy without penalties. Nothing is kept
from one prompt to the next: the library would otherwise reuse what a prompt shares with the one
before, which a timed run with few different prompts would be paid for. The weights stay as they are
stored, so the precision of a spec has to say ``as_stored``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.installed import installed
from metering.stacks.system import (
    GenerationLimit,
    Generator,
    StackError,
    StackInfo,
    System,
    TokenIds,
)

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)
INSTALL = "pip install 'ignition[llama]' (it compiles llama.cpp, which takes some minutes)"

_CONTEXT = 2048


def discover(sut: SutSpec | None = None) -> StackInfo:
    return installed("llama.cpp", "llama-cpp-python", INSTALL)


class LlamaCppGenerator:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        info = discover(sut)
        if not info.available:
            raise StackError(f"llama.cpp: {info.reason}")
        if model.suffix != ".gguf":
            raise StackError(f"model: got {model.name}, wanted a .gguf file for llama.cpp")
        if sut.precision != "as_stored":
            raise StackError(
                f"sut.precision: got {sut.precision}, wanted as_stored: llama.cpp computes with "
                "the weights as the file has them"
            )
        library: Any = importlib.import_module("llama_cpp")
        self._model = library.Llama(
            str(model),
            n_ctx=_CONTEXT,
            n_threads=sut.threads,
            n_threads_batch=sut.threads,
            seed=0,
            verbose=False,
        )

    def generate(
        self, batch: Sequence[TokenIds], limit: GenerationLimit
    ) -> Iterator[tuple[int, Sequence[int]]]:
        for position, prompt in enumerate(batch):
            if len(prompt) + limit.max_new_tokens > _CONTEXT:
                raise StackError(
                    f"a prompt of {len(prompt)} tokens and an answer of {limit.max_new_tokens}: "
                    f"wanted at most {_CONTEXT} together"
                )
            self._model.reset()
            steps = self._model.generate(prompt.tolist(), temp=0.0, repeat_penalty=1.0, reset=True)
            for count, token in enumerate(steps, start=1):
                yield position, [int(token)]
                if count == limit.max_new_tokens or token == limit.end_token:
                    break
            steps.close()

    def close(self) -> None:
        self._model.close()


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    raise StackError("llama.cpp: generates text, and has no embeddings here")


def open_generator(sut: SutSpec, model: Path, output: str) -> Generator:
    return LlamaCppGenerator(sut, model, output)
