"""Stock stacks as opponents: each runs the same ONNX model in float32 on one thread.

In: a model path. Out: callables over padded id batches. Every stack is optional and imported only
when asked for.
Never here: tuning against them, or settings that slow them down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from kernelgen.graph import Graph, TextEncoder
from kernelgen.ops import Attention, EmbedLayernorm, GemmBiasGelu, GemmBiasResidualLayernorm

Ids = npt.NDArray[np.int64]
Embeddings = npt.NDArray[np.float32]
Peer = Callable[[Ids, Ids], Embeddings]
"""(ids [batch, seq], mask [batch, seq]) to embeddings [batch, hidden]."""


def open_peers(encoder: TextEncoder) -> dict[str, Peer]:
    """Every stock stack that is installed, by name."""
    found: dict[str, Peer] = {}
    for name, opener in _OPENERS.items():
        try:
            found[name] = opener(encoder)
        except ImportError:
            continue
    return found


def _onnxruntime(encoder: TextEncoder) -> Peer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        encoder.model, options, providers=["CPUExecutionProvider"]
    )
    ids_name, mask_name = encoder.input_names
    output = [encoder.output_name]

    def call(ids: Ids, mask: Ids) -> Embeddings:
        return cast("Embeddings", session.run(output, {ids_name: ids, mask_name: mask})[0])

    return call


def _openvino(encoder: TextEncoder) -> Peer:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
    }
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(encoder.model), "CPU", options)
    request = compiled.create_infer_request()
    ids_name, mask_name = encoder.input_names
    output = compiled.output(encoder.output_name)

    def call(ids: Ids, mask: Ids) -> Embeddings:
        feeds = {ids_name: ids, mask_name: mask}
        result = request.infer(feeds, share_inputs=True, share_outputs=True)
        return cast("Embeddings", result[output])

    return call


def _torch(encoder: TextEncoder) -> Peer:
    """PyTorch's own fused operators over the recognised graph: it reads no ONNX itself."""
    import torch

    torch.set_num_threads(1)
    graph = encoder.graph
    weights = [[torch.from_numpy(w.copy()) for w in step.weights] for step in graph.steps]

    def call(ids: Ids, mask: Ids) -> Embeddings:
        with torch.inference_mode():
            result = _torch_forward(torch, graph, weights, ids, mask)
        return cast("Embeddings", result.numpy())

    return call


def _torch_forward(
    torch: Any, graph: Graph, weights: Sequence[Sequence[Any]], ids: Ids, mask: Ids
) -> Any:
    layers = torch.nn.functional
    keep = torch.from_numpy(mask).bool()
    batch, length = ids.shape
    values: dict[str, Any] = {}
    for step, own in zip(graph.steps, weights, strict=True):
        operator = step.operator
        if isinstance(operator, EmbedLayernorm):
            total = own[0][torch.from_numpy(ids)] + own[1][:length] + own[2]
            made = layers.layer_norm(total, (graph.hidden,), own[3], own[4], operator.epsilon)
        elif isinstance(operator, Attention):
            split = values[step.inputs[0]].view(batch, length, 3, operator.heads, -1)
            q, k, v = split.permute(2, 0, 3, 1, 4)
            one = layers.scaled_dot_product_attention(
                q, k, v, attn_mask=keep[:, None, None, :], scale=operator.scale
            )
            made = one.transpose(1, 2).reshape(batch, length, -1)
        elif isinstance(operator, GemmBiasResidualLayernorm):
            total = values[step.inputs[0]] @ own[0] + own[1] + values[step.inputs[1]]
            made = layers.layer_norm(total, (operator.n,), own[2], own[3], operator.epsilon)
        elif step.row_wise:
            made = values[step.inputs[0]] @ own[0] + own[1]
            if isinstance(operator, GemmBiasGelu):
                made = layers.gelu(made)
        else:
            states = values[step.inputs[0]] * keep[..., None]
            made = states.sum(1) / keep.sum(1, keepdim=True)
        values[step.output] = made
    return values[graph.steps[-1].output]


_OPENERS: Mapping[str, Callable[[TextEncoder], Peer]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}


def pad(samples: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Samples as one padded batch: ids and mask, both [n, longest]."""
    longest = max(len(one) for one in samples)
    ids = np.zeros((len(samples), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, one in enumerate(samples):
        ids[row, : len(one)] = one
        mask[row, : len(one)] = 1
    return ids, mask


def arrangements(samples: Sequence[Ids]) -> dict[str, list[tuple[Ids, Ids]]]:
    """The ways a stock stack may take `samples`: one padded batch, one by one, grouped by equal
    length.

    Batches are laid out beforehand: no stack pays for padding in its time.
    """
    if len(samples) == 1:
        return {"single": [pad(samples)]}
    by_length: dict[int, list[Ids]] = {}
    for one in samples:
        by_length.setdefault(len(one), []).append(one)
    return {
        "padded": [pad(samples)],
        "single": [pad([one]) for one in samples],
        "grouped": [pad(group) for _, group in sorted(by_length.items())],
    }
