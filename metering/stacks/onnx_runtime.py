"""ONNX Runtime on the CPU, as a stock user would run it.

In: threads and graph optimisation level. Out: a System over an ``InferenceSession``. The CPU
execution provider computes a float32 graph in float32, so precision needs no setting here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.installed import installed
from metering.stacks.system import (
    Embeddings,
    Image,
    OutputPort,
    Recogniser,
    StackInfo,
    System,
    TokenIds,
    choose_output,
    pad,
)
from metering.stacks.text_recognition import (
    choose_scores,
    pad_lines,
    read_alphabet,
    read_scores,
)

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = (
    "all",
    "extended",
    "basic",
    "none",
    "default",
)
_LEVELS = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
    "default": "ORT_ENABLE_ALL",
}


def discover(sut: SutSpec | None = None) -> StackInfo:
    return installed("onnxruntime", "onnxruntime", "pip install onnxruntime")


def open_session(sut: SutSpec, model: Path) -> Any:
    """An ``InferenceSession`` with the threads and the level of the spec."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = sut.threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    level = _LEVELS[sut.graph_optimization]
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _ports(session: Any) -> list[OutputPort]:
    return [
        OutputPort((item.name,), len(item.shape), item.type == "tensor(float)")
        for item in session.get_outputs()
    ]


class OnnxRuntimeSystem:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        self._session: Any = open_session(sut, model)
        outputs = self._session.get_outputs()
        self._output = outputs[choose_output(_ports(self._session), output)].name
        self._inputs = [item.name for item in self._session.get_inputs()]

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        ids, mask = pad(batch)
        feeds = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(ids)
        return cast(Embeddings, self._session.run([self._output], feeds)[0])

    def close(self) -> None:
        self._session = None


class OnnxRuntimeRecogniser:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        self._session: Any = open_session(sut, model)
        outputs = self._session.get_outputs()
        self._output = outputs[choose_scores(_ports(self._session), output)].name
        self._input = self._session.get_inputs()[0].name
        self._alphabet = read_alphabet(model)

    def infer(self, batch: Sequence[Image]) -> Sequence[str]:
        scores = self._session.run([self._output], {self._input: pad_lines(batch)})[0]
        return read_scores(scores, self._alphabet)

    def close(self) -> None:
        self._session = None


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return OnnxRuntimeSystem(sut, model, output)


def open_recogniser(sut: SutSpec, model: Path, output: str) -> Recogniser:
    return OnnxRuntimeRecogniser(sut, model, output)
