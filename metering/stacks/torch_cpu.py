"""PyTorch on the CPU, eager or compiled, as a stock user would run a converted model.

In: threads and the level, "basic" for eager and "extended" for ``torch.compile``. Out: a System or
a Recogniser over a module made from the ONNX file. The module is compared with ONNX Runtime before
it answers anything: a conversion that changed the model would otherwise become a baseline, or lose
against one. PyTorch computes float32 modules in float32 on the CPU; its setting for faster, coarser
products is pinned to "highest".
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.installed import installed
from metering.stacks.system import (
    Embeddings,
    Image,
    Recogniser,
    StackError,
    StackInfo,
    System,
    TokenIds,
    choose_output,
    pad,
)
from metering.stacks.text_recognition import (
    LEAST_WIDTH,
    choose_scores,
    pad_lines,
    read_alphabet,
    read_scores,
)
from metering.stacks.torch_model import TorchModel, compare, convert

# Compiled again in every process, which takes minutes, so a plan asks for it by name.
GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("basic", "extended")
INSTALL = "pip install 'ignition[torch]'"

# Seconds to import, convert and compare, and for "extended" to compile too, on a loaded machine.
PREPARE_LIMIT_S: Mapping[GraphOptimization, float] = MappingProxyType(
    {"basic": 300.0, "extended": 1800.0}
)

# Conversion changes modules of the process; instances of one stack convert one after another.
_converting = threading.Lock()


def discover(sut: SutSpec | None = None) -> StackInfo:
    """PyTorch and its converter; the digest covers the files of both."""
    library = installed("torch", "torch", INSTALL)
    converter = installed("torch", "onnx2pytorch", INSTALL, suffix=".py")
    for found, what in ((library, "PyTorch"), (converter, "onnx2pytorch, which reads ONNX models")):
        if not found.available:
            return StackInfo("torch", library.version, "", False, f"{what}: {found.reason}")
    digest = hashlib.sha256(f"{library.digest} {converter.digest}".encode()).hexdigest()
    version = f"{library.version} with onnx2pytorch {converter.version}"
    return StackInfo("torch", version, digest, True, "")


def prepare_limit_s(sut: SutSpec) -> float:
    """How long opening may take before the run is given up."""
    return PREPARE_LIMIT_S.get(sut.graph_optimization, 0.0)


def _open(sut: SutSpec, model: Path) -> TorchModel:
    info = discover(sut)
    if not info.available:
        raise StackError(f"torch: {info.reason}")
    if sut.graph_optimization not in GRAPH_OPTIMIZATIONS:
        raise StackError(
            f"sut.graph_optimization: got {sut.graph_optimization}, wanted basic (eager) or "
            "extended (compiled) for torch"
        )
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(sut.threads)
    torch.set_float32_matmul_precision("highest")
    with _converting:
        made = convert(model)
        return made.compiled() if sut.graph_optimization == "extended" else made


class TorchSystem:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        self._model = _open(sut, model)
        self._output = choose_output(self._model.ports, output)
        # Two lengths, so that the mask is compared too; ids so small are in any vocabulary.
        short, long = (np.arange(1, length, dtype=np.int64) for length in (4, 12))
        compare(self._model, model, [feeds_of([long, short]), feeds_of([short])], self._output)

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        return np.asarray(self._model.run(feeds_of(batch), self._output), dtype=np.float32)

    def close(self) -> None:
        """The module goes with the instance."""


class TorchRecogniser:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        self._model = _open(sut, model)
        self._output = choose_scores(self._model.ports, output)
        self._alphabet = read_alphabet(model)
        rng = np.random.default_rng(0)
        probes = [
            {name: rng.uniform(-1, 1, (lines, 3, 48, width)).astype(np.float32)}
            for name in self._model.inputs
            for lines, width in ((2, LEAST_WIDTH), (1, LEAST_WIDTH + 56))
        ]
        compare(self._model, model, probes, self._output)

    def infer(self, batch: Sequence[Image]) -> Sequence[str]:
        feeds = {self._model.inputs[0]: pad_lines(batch)}
        return read_scores(self._model.run(feeds, self._output), self._alphabet)

    def close(self) -> None:
        """The module goes with the instance."""


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return TorchSystem(sut, model, output)


def open_recogniser(sut: SutSpec, model: Path, output: str) -> Recogniser:
    return TorchRecogniser(sut, model, output)


def feeds_of(batch: Sequence[TokenIds]) -> dict[str, Any]:
    """The three inputs of an encoder, each int64 (n, longest) and at least two wide."""
    ids, mask = pad(batch)
    if ids.shape[1] == 1:
        # A compiler makes a version for the size one and another for all others; texts of one token
        # are padded to two, or the first of them would be compiled while it is timed.
        ids, mask = (np.pad(part, ((0, 0), (0, 1))) for part in (ids, mask))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
