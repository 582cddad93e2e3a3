"""From an ONNX text encoder to the compiler's graph, by walking the data flow backwards from the
embedding.

In: an `OnnxModel`. Out: a `Graph`. Never here: tensor names, tolerance for "almost" patterns: what
does not match exactly is refused with the node, what was got and what was wanted.

The pattern: embeddings -> LayerNorm -> layers of [attention, LayerNorm(+), GELU feed-forward,
LayerNorm(+)] -> masked mean. Masks vanish on the way: a ragged batch holds real tokens only, and
there the additive mask is 0 and the mean divides by the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import cast

import numpy as np

from kernelgen.graph.interpreter import RULES
from kernelgen.graph.match import Floats, Flow
from kernelgen.graph.onnx_file import GraphError, OnnxModel, OnnxNode, read
from kernelgen.graph.shapes import fold
from kernelgen.graph.types import IDS, OFFSETS, Graph, Step
from kernelgen.ops import (
    Attention,
    EmbedLayernorm,
    GemmBias,
    GemmBiasGelu,
    GemmBiasResidualLayernorm,
    MeanPool,
)

MASKED = -1e30
"""An additive mask at or below this removes a token from float32 softmax altogether."""


@dataclass(frozen=True, eq=False)
class _Layer:
    """One layer as found, before it becomes steps; `states` is the value that enters it."""

    states: str
    heads: int
    scale: float
    qkv: tuple[Floats, Floats]
    attended: tuple[Floats, Floats, Floats, Floats, float]
    widened: tuple[Floats, Floats]
    narrowed: tuple[Floats, Floats, Floats, Floats, float]


def load(path: Path) -> Graph:
    """Read and recognise the encoder at `path`. Raises `GraphError`."""
    return recognise(read(path))


def recognise(model: OnnxModel) -> Graph:
    """The encoder in `model` as a graph of operators. Raises `GraphError` where it is something
    else.
    """
    flow = flow_of(model)
    states, mask = _pool(flow, embedding_output(flow))
    layers: list[_Layer] = []
    while not _is_embedding(flow, states):
        layer = _layer(flow, states, mask)
        layers.append(layer)
        states = layer.states
    layers.reverse()
    return _assemble(flow, states, mask, layers)


def flow_of(model: OnnxModel) -> Flow:
    """The model with its shape arithmetic folded. Raises `GraphError` unless it takes ids and
    mask.
    """
    if len(model.inputs) != 2 or any(len(shape) != 2 for shape in model.inputs.values()):
        raise GraphError(
            f"inputs: got {dict(model.inputs)}, wanted ids and mask, both [batch, sequence]"
        )
    for node in model.nodes:
        if node.op not in RULES:
            raise GraphError(f"{node.where}: unknown operator, wanted one of {sorted(RULES)}")
    return Flow(model, fold(model, {name: ("batch", "seq") for name in model.inputs}))


def embedding_output(flow: Flow) -> str:
    """The graph output that is one row per sequence."""
    found = []
    for output in flow.model.outputs:
        shape = flow.facts(output).shape
        if shape is not None and len(shape) == 2 and shape[0] == "batch" and shape[1] != "seq":
            found.append(output)
    if len(found) != 1:
        shapes = {output: flow.facts(output).shape for output in flow.model.outputs}
        raise GraphError(f"outputs: got {shapes}, wanted exactly one of [batch, hidden]")
    return found[0]


def _pool(flow: Flow, value: str) -> tuple[str, str]:
    """Token states and mask input of a masked mean: sum(states * mask) / max(sum(mask), tiny)."""
    while (join := flow.maybe(value, "Concat")) is not None and len(join.inputs) == 1:
        value = join.inputs[0]
    ratio = flow.node(value, "Div", "mean pooling")
    top = flow.node(ratio.inputs[0], "ReduceSum", "the sum of masked states")
    clip = flow.node(ratio.inputs[1], "Clip", "the token count")
    bottom = flow.node(clip.inputs[0], "ReduceSum", "the token count")
    floor = flow.number(clip.inputs[1])
    if floor is None or not 0.0 < floor <= 1.0:
        raise GraphError(f"{clip.where}: got a floor of {floor}, wanted one in (0, 1] tokens")
    for node in (top, bottom):
        flow.attribute(node, "keepdims", 0)
        if flow.facts(node.inputs[1]).content != (1,):
            raise GraphError(f"{node.where}: wanted a sum over axis 1, the tokens")
    product = flow.node(top.inputs[0], "Mul", "masking the states")
    weight = bottom.inputs[0]
    if weight not in product.inputs:
        raise GraphError(f"{product.where}: wanted the mask that is counted in {bottom.where}")
    states = product.inputs[1 - product.inputs.index(weight)]
    spread = flow.node(flow.node(weight, "Cast", "the mask").inputs[0], "Expand", "the mask")
    mask = flow.node(spread.inputs[0], "Unsqueeze", "the mask").inputs[0]
    if mask not in flow.model.inputs:
        raise GraphError(f"{spread.where}: got a mask made of {mask!r}, wanted a graph input")
    return states, mask


def _is_embedding(flow: Flow, value: str) -> bool:
    node = flow.maybe(value, "LayerNormalization")
    return node is not None and not any(
        flow.is_linear(operand) for operand in _operands(flow, node.inputs[0])
    )


def _operands(flow: Flow, value: str) -> tuple[str, ...]:
    add = flow.maybe(value, "Add")
    return add.inputs if add is not None else ()


def _residual_norm(
    flow: Flow, value: str, purpose: str
) -> tuple[str, str, tuple[Floats, Floats, Floats, Floats, float]]:
    """x, residual, (w, bias, gamma, beta, epsilon) of LayerNorm(x w + bias + residual)."""
    total, gamma, beta, epsilon = flow.layernorm(value, purpose)
    add = flow.node(total, "Add", f"the residual of {purpose}")
    for product, residual in (tuple(add.inputs), tuple(reversed(add.inputs))):
        if flow.is_linear(product):
            x, w, b = flow.linear(product, purpose)
            return x, residual, (w, b, gamma, beta, epsilon)
    raise GraphError(f"{add.where}: wanted a product plus residual for {purpose}")


def _layer(flow: Flow, value: str, mask: str) -> _Layer:
    wide, middle, narrowed = _residual_norm(flow, value, "the feed-forward block")
    x, *widened = flow.linear(_gelu(flow, wide), "the widening product")
    if x != middle:
        raise GraphError(
            f"value {x!r}: wanted the residual {middle!r} to enter the feed-forward block"
        )
    context, states, attended = _residual_norm(flow, middle, "the attention block")
    heads, scale, qkv = _attention(flow, context, states, mask)
    return _Layer(states, heads, scale, qkv, attended, (widened[0], widened[1]), narrowed)


def _gelu(flow: Flow, value: str) -> str:
    """y of y (1 + erf(y / sqrt 2)) / 2."""
    half = flow.node(value, "Mul", "GELU")
    product = flow.node(flow.scaled(half, 0.5, "GELU"), "Mul", "GELU")
    for y, factor in (tuple(product.inputs), tuple(reversed(product.inputs))):
        plus = flow.maybe(factor, "Add")
        erfs = [flow.maybe(operand, "Erf") for operand in plus.inputs] if plus else []
        erf = next((node for node in erfs if node is not None), None)
        if plus is None or erf is None:
            continue
        flow.scaled(plus, 1.0, "GELU")
        inner = flow.node(erf.inputs[0], "Div", "GELU")
        if inner.inputs[0] == y and flow.scaled(inner, sqrt(2.0), "GELU") == y:
            return y
    raise GraphError(f"{product.where}: wanted y and 1 + erf(y / sqrt 2) for GELU")


def _attention(
    flow: Flow, context: str, states: str, mask: str
) -> tuple[int, float, tuple[Floats, Floats]]:
    """Heads, scale and the fused weights [hidden, 3 hidden] and bias of self-attention over
    `states`.
    """
    merge = flow.node(context, "Reshape", "joining the heads")
    turn = _transpose(flow, merge.inputs[0], [0, 2, 1, 3], "joining the heads")
    weigh = flow.node(turn.inputs[0], "MatMul", "attention times values")
    softmax = flow.node(weigh.inputs[0], "Softmax", "attention")
    if softmax.attributes.get("axis", -1) not in (-1, 3):
        raise GraphError(f"{softmax.where}: got axis {softmax.attributes.get('axis')}, wanted -1")
    masked = flow.node(softmax.inputs[0], "Add", "the attention mask")
    scores = _scores(flow, masked, mask)
    scale_node = flow.node(scores, "Div", "scaling the scores")
    divisor = flow.number(scale_node.inputs[1])
    if not divisor:
        raise GraphError(f"{scale_node.where}: got a computed divisor, wanted a constant")
    dot = flow.node(scale_node.inputs[0], "MatMul", "queries times keys")
    parts = []
    sizes = set()
    for value, order in (
        (dot.inputs[0], [0, 2, 1, 3]),
        (dot.inputs[1], [0, 2, 3, 1]),
        (weigh.inputs[1], [0, 2, 1, 3]),
    ):
        split = flow.node(
            _transpose(flow, value, order, "splitting the heads").inputs[0],
            "Reshape",
            "splitting the heads",
        )
        shape = flow.facts(split.outputs[0]).shape
        if shape is None or len(shape) != 4 or shape[:2] != ("batch", "seq"):
            raise GraphError(f"{split.where}: got shape {shape}, wanted [batch, seq, heads, size]")
        sizes.add(shape[2:])
        x, w, b = flow.linear(split.inputs[0], "a projection")
        if x != states:
            raise GraphError(f"{split.where}: projects {x!r}, wanted {states!r} (self-attention)")
        parts.append((w, b))
    if len(sizes) != 1:
        raise GraphError(f"{dot.where}: got head shapes {sorted(map(str, sizes))}, wanted one")
    heads, size = cast("tuple[int, int]", sizes.pop())
    if any(w.shape[1] != heads * size for w, _ in parts):
        raise GraphError(f"{dot.where}: wanted projections to {heads} heads of {size}")
    fused = np.concatenate([w for w, _ in parts], axis=1), np.concatenate([b for _, b in parts])
    return heads, 1.0 / divisor, fused


def _transpose(flow: Flow, value: str, order: list[int], purpose: str) -> OnnxNode:
    node = flow.node(value, "Transpose", purpose)
    flow.attribute(node, "perm", order)
    return node


def _scores(flow: Flow, add: OnnxNode, mask: str) -> str:
    """The operand of `add` that is not the mask; the mask must be (1 - mask) * very negative."""
    for scores, extra in (tuple(add.inputs), tuple(reversed(add.inputs))):
        product = flow.maybe(extra, "Mul")
        if product is None:
            continue
        for inverse, low in (tuple(product.inputs), tuple(reversed(product.inputs))):
            number = flow.number(low)
            flip = flow.maybe(inverse, "Sub")
            if number is None or number > MASKED or flip is None:
                continue
            cast_node = flow.node(flip.inputs[1], "Cast", "the attention mask")
            source = cast_node.inputs[0]
            while (unsqueeze := flow.maybe(source, "Unsqueeze")) is not None:
                source = unsqueeze.inputs[0]
            if flow.number(flip.inputs[0]) == 1.0 and source == mask:
                return scores
    raise GraphError(f"{add.where}: wanted scores plus (1 - mask) * c with c <= {MASKED:g}")


def _embedding(flow: Flow, value: str, mask: str) -> Step:
    total, gamma, beta, epsilon = flow.layernorm(value, "the embeddings")
    ids = next(name for name in flow.model.inputs if name != mask)
    tables: dict[str, Floats] = {}
    pending = [total]
    while pending:
        operand = pending.pop()
        add = flow.maybe(operand, "Add")
        if add is not None:
            pending.extend(add.inputs)
            continue
        gather = flow.node(operand, "Gather", "an embedding")
        table = flow.constant(gather.inputs[0], gather, "an embedding table")
        index = flow.facts(gather.inputs[1])
        if gather.inputs[1] == ids:
            kind = "word"
        elif index.fill == 0.0:
            kind = "type"
        elif index.counting:
            kind = "position"
        else:
            raise GraphError(
                f"{gather.where}: got a computed index, wanted ids, positions 0, 1, ... or type 0"
            )
        if kind in tables:
            raise GraphError(f"{gather.where}: a second {kind} embedding, wanted one")
        tables[kind] = table
    if set(tables) != {"word", "position", "type"}:
        raise GraphError(f"embeddings: got {sorted(tables)}, wanted word, position and type")
    word, position = tables["word"], tables["position"]
    operator = EmbedLayernorm(word.shape[0], position.shape[0], word.shape[1], epsilon)
    weights = (word, position, tables["type"][0], gamma, beta)
    return Step("embeddings", operator, (IDS, OFFSETS), "states0", weights)


def _assemble(flow: Flow, value: str, mask: str, layers: list[_Layer]) -> Graph:
    first = _embedding(flow, value, mask)
    embed = cast("EmbedLayernorm", first.operator)
    hidden, steps, states = embed.hidden, [first], first.output
    for index, layer in enumerate(layers):
        tag = f"layer{index}"
        attention = Attention(layer.heads, hidden // layer.heads, layer.scale)
        w, bias, gamma, beta, epsilon = layer.attended
        w2, bias2, gamma2, beta2, epsilon2 = layer.narrowed
        joined = GemmBiasResidualLayernorm(w.shape[0], w.shape[1], epsilon)
        narrow = GemmBiasResidualLayernorm(w2.shape[0], w2.shape[1], epsilon2)
        steps += [
            Step(f"{tag}.qkv", GemmBias(*layer.qkv[0].shape), (states,), f"qkv{index}", layer.qkv),
            Step(f"{tag}.attention", attention, (f"qkv{index}", OFFSETS), f"context{index}", ()),
            Step(
                f"{tag}.join",
                joined,
                (f"context{index}", states),
                f"middle{index}",
                (w, bias, gamma, beta),
            ),
            Step(
                f"{tag}.widen",
                GemmBiasGelu(*layer.widened[0].shape),
                (f"middle{index}",),
                f"wide{index}",
                layer.widened,
            ),
            Step(
                f"{tag}.narrow",
                narrow,
                (f"wide{index}", f"middle{index}"),
                f"states{index + 1}",
                (w2, bias2, gamma2, beta2),
            ),
        ]
        states = f"states{index + 1}"
    steps.append(Step("pool", MeanPool(hidden), (states, OFFSETS), "embeddings", ()))
    return Graph(flow.model.sha256, tuple(steps), hidden, embed.vocabulary, embed.positions)
