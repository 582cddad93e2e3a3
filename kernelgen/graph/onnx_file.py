"""An ONNX file as plain records: nodes, constants, who makes a value and who uses it.

In: a path. Out: a frozen `OnnxModel`. Never here: what any operator means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


class GraphError(ValueError):
    """A model that cannot be read or compiled; the text names the node, what was got and what was
    wanted.
    """


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One node. `inputs` keeps empty names of omitted optional inputs."""

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, object]

    @property
    def where(self) -> str:
        """How errors call this node."""
        return f"node {self.name or self.outputs[0]!r} ({self.op})"


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """`nodes` in topological order; `constants` holds initialisers and Constant nodes as arrays.

    `inputs` and `outputs` map names to shapes as declared, with text for symbolic sizes.
    """

    sha256: str
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Array]
    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    producers: Mapping[str, OnnxNode]


def read(path: Path) -> OnnxModel:
    """Parse the model at `path`. Raises `GraphError` when it is no ONNX file."""
    import onnx

    # The wheel publishes no types, so the name is looked up at run time.
    decode_error = import_module("google.protobuf.message").DecodeError
    from onnx import numpy_helper

    raw = path.read_bytes()
    try:
        model = onnx.load_model_from_string(raw)
    except decode_error as error:
        raise GraphError(f"{path}: not an ONNX file ({error})") from error
    if not model.graph.node:
        raise GraphError(f"{path}: got an ONNX file without nodes, wanted a model")
    constants: dict[str, Array] = {
        tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer
    }
    nodes: list[OnnxNode] = []
    for proto in model.graph.node:
        attributes: dict[str, object] = {}
        for attribute in proto.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, onnx.TensorProto):
                value = numpy_helper.to_array(value)
            attributes[attribute.name] = value
        node = OnnxNode(
            proto.op_type, proto.name, tuple(proto.input), tuple(proto.output), attributes
        )
        if proto.domain not in ("", "ai.onnx"):
            raise GraphError(f"{node.where}: got operator domain {proto.domain!r}, wanted ai.onnx")
        if node.op == "Constant":
            constant = attributes.get("value")
            if not isinstance(constant, np.ndarray):
                raise GraphError(f"{node.where}: got {sorted(attributes)}, wanted a tensor value")
            constants[node.outputs[0]] = constant
        else:
            nodes.append(node)
    inputs: dict[str, tuple[int | str, ...]] = {}
    for value in model.graph.input:
        if value.name not in constants:
            inputs[value.name] = tuple(
                size.dim_value if size.HasField("dim_value") else str(size.dim_param or "?")
                for size in value.type.tensor_type.shape.dim
            )
    return OnnxModel(
        sha256=hashlib.sha256(raw).hexdigest(),
        nodes=tuple(nodes),
        constants=constants,
        inputs=inputs,
        outputs=tuple(value.name for value in model.graph.output),
        producers={output: node for node in nodes for output in node.outputs},
    )
