"""OpenVINO on the CPU, as a stock user would run it for throughput.

In: threads per stream and streams (instances). Out: Systems that share one compiled model, each
with its own infer request. Precision is pinned to float32: on machines with AMX or AVX-512 BF16
this runtime computes float32 graphs in bfloat16 by default, and a comparison between a bfloat16 and
a float32 arm would measure the precision, not the kernels.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.installed import installed
from metering.stacks.system import (
    Embeddings,
    Image,
    OutputPort,
    Recogniser,
    StackError,
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

# It has one graph pipeline and no level to choose.
GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)

_lock = threading.Lock()
_compiled: dict[tuple[SutSpec, Path], Any] = {}


def discover(sut: SutSpec | None = None) -> StackInfo:
    return installed("openvino", "openvino", "pip install 'ignition[openvino]'")


def _compile(sut: SutSpec, model: Path) -> Any:
    """One compiled model per process; its streams are the instances."""
    import openvino

    own = os.sched_getaffinity(0)
    # The runtime's threads inherit the mask of the thread that compiles: it must be the whole
    # process's, or every stream would sit on the first instance's cores.
    os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
    try:
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": sut.threads * sut.instances,
            "NUM_STREAMS": sut.instances,
            "ENABLE_CPU_PINNING": False,
        }
        compiled = openvino.Core().compile_model(str(model), "CPU", settings)
    finally:
        os.sched_setaffinity(0, own)
    precision = str(compiled.get_property("INFERENCE_PRECISION_HINT"))
    if "float32" not in precision and "f32" not in precision:
        raise StackError(f"openvino computes in {precision}, wanted float32")
    return compiled


def _shared(sut: SutSpec, model: Path) -> Any:
    with _lock:
        compiled = _compiled.get((sut, model))
        if compiled is None:
            compiled = _compiled[sut, model] = _compile(sut, model)
    return compiled


def _ports(compiled: Any) -> list[OutputPort]:
    return [
        OutputPort(
            tuple(sorted(item.get_names())),
            len(item.get_partial_shape()),
            item.get_element_type().get_type_name() == "f32",
        )
        for item in compiled.outputs
    ]


class OpenVinoSystem:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        compiled = _shared(sut, model)
        self._inputs = [item.any_name for item in compiled.inputs]
        self._port: Any = compiled.outputs[choose_output(_ports(compiled), output)]
        self._request: Any = compiled.create_infer_request()

    def infer(self, batch: Sequence[TokenIds]) -> Embeddings:
        ids, mask = pad(batch)
        feeds = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in self._inputs:
            feeds["token_type_ids"] = np.zeros_like(ids)
        # The result is a view of the request's buffer, which the next call overwrites.
        return np.array(self._request.infer(feeds)[self._port], dtype=np.float32)

    def close(self) -> None:
        self._request = None


class OpenVinoRecogniser:
    def __init__(self, sut: SutSpec, model: Path, output: str) -> None:
        compiled = _shared(sut, model)
        self._input: Any = compiled.inputs[0]
        self._port: Any = compiled.outputs[choose_scores(_ports(compiled), output)]
        self._request: Any = compiled.create_infer_request()
        self._alphabet = read_alphabet(model)

    def infer(self, batch: Sequence[Image]) -> Sequence[str]:
        scores = self._request.infer({self._input: pad_lines(batch)})[self._port]
        return read_scores(scores, self._alphabet)

    def close(self) -> None:
        self._request = None


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    return OpenVinoSystem(sut, model, output)


def open_recogniser(sut: SutSpec, model: Path, output: str) -> Recogniser:
    return OpenVinoRecogniser(sut, model, output)
