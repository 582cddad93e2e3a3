"""PyTorch: reported, not measured.

In: nothing. Out: why this stack takes no part. Models come in as ONNX graphs, and PyTorch itself
has no reader for them; rebuilding a model by hand would measure the rebuild. The registry shows the
stack with its reason, so that nobody takes its absence from a sweep for a result.
"""

from __future__ import annotations

from pathlib import Path

from metering.loadgen.spec import GraphOptimization, SutSpec
from metering.stacks.installed import installed
from metering.stacks.system import StackError, StackInfo, System

GRAPH_OPTIMIZATIONS: tuple[GraphOptimization, ...] = ("default",)


def discover(sut: SutSpec | None = None) -> StackInfo:
    info = installed("torch", "torch", "pip install 'ignition[torch]'")
    if not info.available:
        return info
    reason = "installed, but it cannot read ONNX models: this model has no PyTorch form"
    return StackInfo(info.name, info.version, info.digest, False, reason)


def open_system(sut: SutSpec, model: Path, output: str) -> System:
    raise StackError(f"torch: {discover(sut).reason}")
