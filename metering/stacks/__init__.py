"""Systems under test: stock runtimes and kernel packages behind one shape, one file each.

In: a :class:`SutSpec`. Out: what is installed (:func:`discover`) or an opened system. A stack that
is missing says so and what to install; it is never silently replaced by another.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, cast

from metering.loadgen.spec import GraphOptimization, SutSpec, Task
from metering.stacks import (
    kernel_package,
    llama_cpp,
    null,
    onnx_runtime,
    openvino_cpu,
    torch_cpu,
)
from metering.stacks.system import (
    Embeddings,
    GenerationLimit,
    Generator,
    Image,
    Recogniser,
    StackError,
    StackInfo,
    System,
    TokenIds,
    pad,
)


class Stack(Protocol):
    """What each adapter module offers."""

    GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...]

    def discover(self, sut: SutSpec | None = None) -> StackInfo: ...

    def open_system(self, sut: SutSpec, model: Path, output: str) -> System: ...


_STACKS: MappingProxyType[str, Stack] = MappingProxyType(
    {
        "onnxruntime": onnx_runtime,
        "openvino": openvino_cpu,
        "torch": torch_cpu,
        "llama.cpp": llama_cpp,
        "kernelgen": kernel_package,
        "null": null,
    }
)
# Imported when named: a process that measures a local runtime loads no HTTP client.
_REMOTE: MappingProxyType[str, str] = MappingProxyType(
    {
        "kserve": "metering.stacks.endpoint.kserve",
        "openai": "metering.stacks.endpoint.openai_chat",
    }
)
_OPENERS: MappingProxyType[Task, str] = MappingProxyType(
    {
        "embedding": "open_system",
        "text_recognition": "open_recogniser",
        "generation": "open_generator",
    }
)
STOCK = ("onnxruntime", "openvino", "torch", "llama.cpp")


def _stack(name: str) -> Stack:
    if name in _REMOTE:
        return cast(Stack, importlib.import_module(_REMOTE[name]))
    try:
        return _STACKS[name]
    except KeyError:
        names = ", ".join([*_STACKS, *_REMOTE])
        raise StackError(f"sut.stack: got {name!r}, wanted one of {names}") from None


def discover(sut: SutSpec) -> StackInfo:
    """Version and build digest of the stack a spec names. Raises StackError when unavailable."""
    info = _stack(sut.stack).discover(sut)
    if not info.available:
        raise StackError(f"{sut.stack}: {info.reason}")
    return info


def discover_stock() -> tuple[StackInfo, ...]:
    """Every stock stack, present or not, in a fixed order."""
    return tuple(_STACKS[name].discover() for name in STOCK)


def graph_optimizations(name: str) -> tuple[GraphOptimization, ...]:
    """The levels a stack has; the first is its own default."""
    return _stack(name).GRAPH_OPTIMIZATIONS


def prepare_limit_s(sut: SutSpec) -> float:
    """Seconds a stack may take to open and warm up where it says so itself; 0: no limit of its own.

    A compiler works for minutes without a sign of life, which in a test means that it hangs.
    """
    limit = getattr(_stack(sut.stack), "prepare_limit_s", None)
    return float(limit(sut)) if limit is not None else 0.0


def offers(name: str, task: Task) -> bool:
    """Whether a stack has systems of a task at all."""
    return hasattr(_stack(name), _OPENERS[task])


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    """Open one instance. ``output`` names the output with the embeddings; empty: the only one."""
    return _stack(sut.stack).open_system(sut, model, output)


def open_recogniser(sut: SutSpec, model: Path, output: str) -> Recogniser:
    """Open one instance that reads text in images. Raises StackError where a stack has none."""
    opener = getattr(_stack(sut.stack), "open_recogniser", None)
    if opener is None:
        raise StackError(f"sut.stack: {sut.stack} reads no text; choose one that does")
    return cast(Recogniser, opener(sut, model, output))


def open_generator(sut: SutSpec, model: Path, output: str) -> Generator:
    """Open one instance that generates tokens. Raises StackError where a stack has none."""
    opener = getattr(_stack(sut.stack), "open_generator", None)
    if opener is None:
        raise StackError(f"sut.stack: {sut.stack} generates nothing; choose one that does")
    return cast(Generator, opener(sut, model, output))


__all__ = [
    "STOCK",
    "Embeddings",
    "GenerationLimit",
    "Generator",
    "Image",
    "Recogniser",
    "StackError",
    "StackInfo",
    "System",
    "TokenIds",
    "discover",
    "discover_stock",
    "graph_optimizations",
    "offers",
    "open_generator",
    "open_recogniser",
    "open_system",
    "pad",
    "prepare_limit_s",
]
