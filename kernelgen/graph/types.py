"""The compiler's own graph: a straight line of operator calls over named values.

In: operators and weights. Out: frozen records that the emitter and the packager walk. Never here:
ONNX, C text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kernelgen.ops import Operator

IDS = "ids"
OFFSETS = "offsets"


@dataclass(frozen=True, eq=False)
class Step:
    """One operator call: `inputs` name values in operator order, `weights` follow the operator's
    weight order.
    """

    label: str
    operator: Operator
    inputs: tuple[str, ...]
    output: str
    weights: tuple[npt.NDArray[np.float32], ...]

    def __post_init__(self) -> None:
        wanted = [tensor.sizes({}) for tensor in self.operator.by_role("weight")]
        got = [weight.shape for weight in self.weights]
        if got != wanted:
            raise ValueError(f"{self.label}: weights have shapes {got}, wanted {wanted}")
        if len(self.inputs) != len(self.operator.by_role("input")):
            raise ValueError(f"{self.label}: got inputs {self.inputs}, wrong count")

    @property
    def row_wise(self) -> bool:
        """Whether every row of the result depends on the same row of the inputs alone."""
        return self.operator.dims == ("m",)


@dataclass(frozen=True, eq=False)
class Graph:
    """A text encoder: `ids` and `offsets` in, one embedding per sequence out. `steps` are in
    execution order.
    """

    model_sha256: str
    steps: tuple[Step, ...]
    hidden: int
    vocabulary: int
    max_tokens: int

    @property
    def operators(self) -> Mapping[str, Operator]:
        """Every distinct operator by name, in order of first use."""
        return {step.operator.name: step.operator for step in self.steps}

    def uses(self, name: str) -> int:
        """How often one call of the model runs operator `name`."""
        return sum(step.operator.name == name for step in self.steps)

    def widths(self) -> dict[str, int]:
        """Floats per row of every value that a step makes."""
        result: dict[str, int] = {}
        for step in self.steps:
            (tensor,) = step.operator.by_role("output")
            width = tensor.shape[-1]
            if not isinstance(width, int):
                raise ValueError(
                    f"{step.label}: output shape {tensor.shape}, wanted a fixed last size"
                )
            result[step.output] = width
        return result
