"""An ONNX model as a PyTorch module: converted by onnx2pytorch, never rebuilt by hand.

In: a model file and the outputs ONNX Runtime gives for it. Out: a module that was compared with
them. onnx2pytorch is the converter here because it is maintained, is itself tested operator by
operator against ONNX Runtime, and reads both models of the mix; onnx2torch 1.5.15 reads neither
(dynamic Clip bounds, weights in Constant nodes). A converter may still get a model wrong without
saying so, therefore nothing it made is run before its outputs were compared.
"""

from __future__ import annotations

import dataclasses
import importlib
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from metering.stacks.system import OutputPort, StackError

Arrays = Mapping[str, npt.NDArray[Any]]

LARGEST_ERROR = 1e-3
"""Largest difference from ONNX Runtime, as a fraction of the largest value of that output."""

_DETECTION = ("nms", "qnms")


@dataclass(frozen=True)
class TorchModel:
    """``module(*inputs)`` in the order of ``inputs``; ``ports`` describe what it returns."""

    module: Any
    inputs: tuple[str, ...]
    ports: tuple[OutputPort, ...]

    def compiled(self) -> TorchModel:
        """The same module through ``torch.compile``, for inputs of any size.

        What the compiler cannot trace (shapes worked out in tensors, mostly) stays eager, as
        PyTorch's own fallback has it. Compilation takes place in this process, at the first call.
        """
        torch: Any = importlib.import_module("torch")
        tracing: Any = importlib.import_module("torch._dynamo.config")
        tracing.suppress_errors = True
        compiling: Any = importlib.import_module("torch._inductor.config")
        compiling.compile_threads = 1
        # It explains each fallback at length; the output of a run is a log of its own.
        logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
        return dataclasses.replace(self, module=torch.compile(self.module, dynamic=True))

    def run(self, feeds: Arrays, output: int) -> npt.NDArray[Any]:
        torch: Any = importlib.import_module("torch")
        with torch.inference_mode():
            made = self.module(*(torch.from_numpy(feeds[name]) for name in self.inputs))
        chosen = made[output] if isinstance(made, list | tuple) else made
        return np.asarray(chosen.numpy())


def convert(model: Path) -> TorchModel:
    """Raises StackError where the converter cannot read the model."""
    import onnx

    loaded = onnx.load(str(model))
    lift_constants(loaded)
    constants = {item.name for item in loaded.graph.initializer}
    inputs = tuple(item.name for item in loaded.graph.input if item.name not in constants)
    ports = tuple(
        OutputPort(
            (item.name,),
            len(item.type.tensor_type.shape.dim),
            item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT,
        )
        for item in loaded.graph.output
    )
    converter = _converter()
    # Its own indexing, and PyTorch says so once for each place; what it means is compared below.
    warnings.filterwarnings("ignore", message="Using a non-tuple sequence", category=UserWarning)
    try:
        module = converter.ConvertModel(loaded)
    except Exception as error:  # It raises whatever a missing operator happens to raise.
        raise StackError(
            f"torch: onnx2pytorch cannot convert {model.name}: {type(error).__name__}: {error}"
        ) from error
    return TorchModel(module.eval(), inputs, ports)


def lift_constants(model: Any) -> None:
    """Turn Constant nodes with a tensor into initialisers of the same name, in place: the same
    graph, in the form converters look for weights in (paddle2onnx writes the other)."""
    kept = []
    for node in model.graph.node:
        values = [item for item in node.attribute if item.name == "value"]
        if node.op_type == "Constant" and values:
            tensor = model.graph.initializer.add()
            tensor.CopyFrom(values[0].t)
            tensor.name = node.output[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)


class Converted(Protocol):
    """What :func:`compare` needs of a converted model."""

    @property
    def inputs(self) -> tuple[str, ...]: ...

    @property
    def ports(self) -> tuple[OutputPort, ...]: ...

    def run(self, feeds: Arrays, output: int) -> npt.NDArray[Any]: ...


def compare(made: Converted, model: Path, probes: Sequence[Arrays], output: int) -> None:
    """Run ``probes`` through both; raises StackError unless the output agrees on each.

    The other side is ONNX Runtime with every optimisation off, one thread.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    name = made.ports[output].names[0]
    for probe in probes:
        feeds = {item: probe[item] for item in made.inputs}
        wanted = session.run([name], feeds)[0]
        got = made.run(feeds, output)
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            raise StackError(
                f"torch: {name}: got {got.dtype} {got.shape}, ONNX Runtime has {wanted.dtype} "
                f"{wanted.shape}; the converted model is not the same model"
            )
        scale = float(np.abs(wanted).max()) or 1.0
        error = float(np.abs(got - wanted).max()) / scale
        if not error <= LARGEST_ERROR:
            raise StackError(
                f"torch: {name} differs from ONNX Runtime by {error:.2g} of its largest value, "
                f"wanted at most {LARGEST_ERROR:g}; the converted model is not the same model"
            )


def _converter() -> Any:
    """The converter's module. It imports torchvision, whose published build needs CUDA; beside a
    CPU build of PyTorch that import fails for want of the detection operators. They are declared
    without an implementation: a model that uses one still fails, by that operator's name."""
    try:
        return importlib.import_module("onnx2pytorch")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    for name in [name for name in sys.modules if name.split(".")[0] in _HALF_IMPORTED]:
        del sys.modules[name]
    torch: Any = importlib.import_module("torch")
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _DETECTION:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _DECLARED.append(library)
    return importlib.import_module("onnx2pytorch")


_HALF_IMPORTED = ("torchvision", "onnx2pytorch")
# A library object takes its declarations with it when it is collected.
_DECLARED: list[Any] = []
