"""Small questions about a data-flow graph, each answered with a value or with a clear refusal.

In: an `OnnxModel` with folded shapes. Out: producers, constants, operands in either order.
Never here: names of particular tensors; a graph is known by its structure alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from kernelgen.graph.onnx_file import GraphError, OnnxModel, OnnxNode
from kernelgen.graph.shapes import NOTHING, Known

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Flow:
    """The model with what folding knows about it."""

    model: OnnxModel
    known: dict[str, Known]

    def facts(self, value: str) -> Known:
        return self.known.get(value, NOTHING)

    def node(self, value: str, op: str, purpose: str) -> OnnxNode:
        """The node that makes `value`, which must be an `op`."""
        found = self.model.producers.get(value)
        if found is None:
            kind = "a constant" if value in self.model.constants else "a graph input"
            raise GraphError(f"value {value!r}: got {kind}, wanted {op} for {purpose}")
        if found.op != op:
            raise GraphError(f"{found.where}: got operator {found.op}, wanted {op} for {purpose}")
        return found

    def maybe(self, value: str, op: str) -> OnnxNode | None:
        """The node that makes `value` if it is an `op`."""
        found = self.model.producers.get(value)
        return found if found is not None and found.op == op else None

    def constant(self, value: str, node: OnnxNode, purpose: str) -> Floats:
        """`value` as a float32 array."""
        array = self.model.constants.get(value)
        if array is None or array.dtype != np.float32:
            got = "a computed value" if array is None else f"a constant of {array.dtype}"
            raise GraphError(f"{node.where}: got {got} in {value!r}, wanted float32 {purpose}")
        return cast("Floats", array)

    def number(self, value: str) -> float | None:
        """The one number that fills the constant `value`, if it is one."""
        array = self.model.constants.get(value)
        return float(array.ravel()[0]) if array is not None and array.size == 1 else None

    def scaled(self, node: OnnxNode, wanted: float, purpose: str) -> str:
        """The other operand of a node, one of whose operands must be the number `wanted` (to
        float32).
        """
        for value, other in (tuple(node.inputs), tuple(reversed(node.inputs))):
            number = self.number(value)
            if number is not None and abs(number - wanted) <= 2e-7 * abs(wanted):
                return other
        numbers = [self.number(value) for value in node.inputs]
        raise GraphError(f"{node.where}: got operands {numbers}, wanted {wanted:g} for {purpose}")

    def attribute(self, node: OnnxNode, name: str, wanted: object) -> None:
        """Refuse the node unless its attribute has the wanted value."""
        got = node.attributes.get(name)
        if got != wanted:
            raise GraphError(f"{node.where}: got {name}={got!r}, wanted {wanted!r}")

    def linear(self, value: str, purpose: str) -> tuple[str, Floats, Floats]:
        """x, w, b of `value` = x w + b, in either order of the sum."""
        add = self.node(value, "Add", purpose)
        for bias, product in (tuple(add.inputs), tuple(reversed(add.inputs))):
            matmul = self.maybe(product, "MatMul")
            if matmul is not None and matmul.inputs[1] in self.model.constants:
                w = self.constant(matmul.inputs[1], matmul, "weights [k, n]")
                b = self.constant(bias, add, "bias [n]")
                if w.ndim != 2 or b.shape != (w.shape[1],):
                    raise GraphError(
                        f"{add.where}: got weights {w.shape}, bias {b.shape}, wanted [k, n], [n]"
                    )
                return matmul.inputs[0], w, b
        made = [getattr(self.model.producers.get(v), "op", "no node") for v in add.inputs]
        raise GraphError(f"{add.where}: got a sum of {made}, wanted MatMul and bias for {purpose}")

    def is_linear(self, value: str) -> bool:
        add = self.maybe(value, "Add")
        if add is None:
            return False
        made = [self.maybe(operand, "MatMul") for operand in add.inputs]
        return any(node is not None and node.inputs[1] in self.model.constants for node in made)

    def layernorm(self, value: str, purpose: str) -> tuple[str, Floats, Floats, float]:
        """x, gamma, beta, epsilon of a LayerNorm over the last axis."""
        node = self.node(value, "LayerNormalization", purpose)
        self.attribute(node, "axis", -1)
        if len(node.inputs) != 3:
            raise GraphError(
                f"{node.where}: got {len(node.inputs)} inputs, wanted x, scale and bias"
            )
        gamma = self.constant(node.inputs[1], node, "scale")
        beta = self.constant(node.inputs[2], node, "shift")
        epsilon = float(cast("float", node.attributes.get("epsilon", 1e-5)))
        return node.inputs[0], gamma, beta, epsilon
