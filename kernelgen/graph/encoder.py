"""The whole model as one operator, judged like any other: its meaning is the ONNX graph in float64.

In: the model file. Out: an `Operator` named `text_encoder`. Never here: the compiler's graph as
oracle: a mistake in recognising the model must show as a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from pathlib import Path
from typing import ClassVar

import numpy as np

from kernelgen.graph import interpreter
from kernelgen.graph.onnx_file import GraphError, OnnxModel, read
from kernelgen.graph.recognise import embedding_output, flow_of, recognise
from kernelgen.graph.types import IDS, OFFSETS, Graph
from kernelgen.ops.operator import (
    UNIT_ROUNDOFF,
    Array,
    Operator,
    Tensor,
    check_regime,
    offsets_of,
    ragged_lengths,
    sum_growth,
)


@dataclass(frozen=True)
class TextEncoder(Operator):
    """Embeddings [n, hidden] of n token sequences laid end to end; `model` is the path of the ONNX
    file.
    """

    model: str

    family: ClassVar[str] = "text_encoder"

    @cached_property
    def onnx(self) -> OnnxModel:
        return read(Path(self.model))

    @cached_property
    def graph(self) -> Graph:
        return recognise(self.onnx)

    @property
    def name(self) -> str:
        return self.family

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        weights = tuple(
            Tensor(f"{step.label}.{tensor.name}", tensor.shape, tensor.dtype, "weight")
            for step in self.graph.steps
            for tensor in step.operator.by_role("weight")
        )
        return (
            Tensor(IDS, ("tokens",), "int64", "input"),
            Tensor(OFFSETS, ("n+1",), "int64", "input"),
            *weights,
            Tensor("embeddings", ("n", self.graph.hidden), "float32", "output"),
        )

    def weights(self) -> dict[str, Array]:
        """The model's own weights under the names in `tensors`."""
        return {
            f"{step.label}.{tensor.name}": weight
            for step in self.graph.steps
            for tensor, weight in zip(step.operator.by_role("weight"), step.weights, strict=True)
        }

    def oracle(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        return {"embeddings": self.embed(arrays[IDS], arrays[OFFSETS])}

    def embed(self, ids: Array, offsets: Array) -> Array:
        """Float64 embeddings; sequences of equal length go through the graph together, unpadded."""
        lengths = np.diff(offsets)
        result = np.empty((len(lengths), self.graph.hidden), np.float64)
        output = self.output_name
        ids_name, mask_name = self.input_names
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            batch = np.stack([ids[offsets[row] : offsets[row] + length] for row in rows])
            feeds = {ids_name: batch, mask_name: np.ones_like(batch)}
            result[rows] = interpreter.run(self.onnx, feeds, [output])[output]
        return result

    @cached_property
    def output_name(self) -> str:
        """Name of the graph output that holds the embeddings."""
        return embedding_output(flow_of(self.onnx))

    @cached_property
    def input_names(self) -> tuple[str, str]:
        """Names of the graph inputs for ids and mask: ids are what a table is gathered with."""
        for node in self.onnx.nodes:
            if node.op == "Gather" and node.inputs[1] in self.onnx.inputs:
                ids = node.inputs[1]
                return ids, next(name for name in self.onnx.inputs if name != ids)
        raise GraphError(f"{self.model}: no Gather over a graph input, wanted a text encoder")

    def sample(
        self, rng: np.random.Generator, dims: Mapping[str, int], regime: str
    ) -> dict[str, Array]:
        """Token ids drawn evenly (structured: few distinct ones), and the model's own weights in
        every regime.
        """
        check_regime(regime)
        top = 8 if regime == "structured" else self.graph.vocabulary
        most = self.graph.max_tokens
        lengths = ragged_lengths(rng, dims["n"], dims["tokens"], regime, most)
        return {
            IDS: rng.integers(0, top, size=dims["tokens"], dtype=np.int64),
            OFFSETS: offsets_of(lengths),
            **self.weights(),
        }

    def flops(self, dims: Mapping[str, int]) -> int:
        inner = {**dims, "m": dims["tokens"]}
        return sum(step.operator.flops(inner) for step in self.graph.steps)

    def bytes_moved(self, dims: Mapping[str, int]) -> int:
        """Weights once, of the embedding tables only the rows in use; ids in, embeddings out."""
        products = sum(
            weight.nbytes for step in self.graph.steps if step.row_wise for weight in step.weights
        )
        rows = dims["tokens"] * (8 + 8 * self.graph.hidden)
        return products + rows + dims["n"] * 4 * self.graph.hidden

    def error_bound(self, arrays: Mapping[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
        """Every product on the way adds the rounding walk of its own length, at the scale of the
        result.

        LayerNorm brings rows back to scale one after every block, so errors add up and do not
        multiply; walks of different products are independent, so they add in squares.
        """
        growth = sqrt(
            sum(sum_growth(s.weights[0].shape[0]) ** 2 for s in self.graph.steps if s.row_wise)
        )
        values = self.embed(arrays[IDS], arrays[OFFSETS])
        scale = np.abs(values).max(axis=1, keepdims=True)
        return {"embeddings": np.broadcast_to(UNIT_ROUNDOFF * growth * scale, values.shape).copy()}
