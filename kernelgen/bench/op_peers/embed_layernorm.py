"""Peers of the embeddings of a text encoder.

In: `EmbedLayernorm`. Out: `PEERS`. Never here: a lookup alone.

The type row is the same for every token, so it is added to the position table beforehand: a graph
optimiser's constant folding would do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.norms import layernorm_rows
from kernelgen.ops import EmbedLayernorm
from kernelgen.ops.operator import Array


def places(offsets: Array) -> Array:
    """Every token's place in its own sequence, int64."""
    return np.concatenate([np.arange(length) for length in np.diff(offsets)])


def _table(w: Mapping[str, Array]) -> Array:
    table: Array = w["position"] + w["token_type"]
    return table


def _feed(x: Arrays) -> dict[str, Array]:
    small = x["ids"].astype(np.int32)
    return {"ids": small[None], "places": places(x["offsets"]).astype(np.int32)[None]}


def _plain(operator: EmbedLayernorm, copy: Copy) -> None:
    word = copy.node("Gather", copy.weight("word"), copy.input("ids"), axis=0)
    rows = _table(copy.weights)[places(copy.inputs["offsets"])]
    total = copy.node("Add", word, copy.own("place_rows", rows))
    gamma, beta = copy.weight("gamma"), copy.weight("beta")
    made = copy.node("LayerNormalization", total, gamma, beta, axis=-1, epsilon=operator.epsilon)
    copy.output("out", made)


def _skip(operator: EmbedLayernorm, copy: Copy) -> None:
    word = copy.node("Gather", copy.weight("word"), copy.input("ids"), axis=0)
    rows = _table(copy.weights)[places(copy.inputs["offsets"])]
    made = copy.node(
        "SkipLayerNormalization",
        word,
        copy.own("place_rows", rows),
        copy.weight("gamma"),
        copy.weight("beta"),
        domain=CONTRIB,
        epsilon=operator.epsilon,
    )
    copy.output("out", made)


def _fused(operator: EmbedLayernorm, copy: Copy) -> None:
    made = copy.nodes(
        "EmbedLayerNormalization",
        copy.input("ids"),
        "",
        copy.weight("word"),
        copy.own("place_table", _table(copy.weights)),
        "",
        copy.weight("gamma"),
        copy.weight("beta"),
        "",
        copy.input("places"),
        count=2,
        domain=CONTRIB,
        epsilon=operator.epsilon,
    )
    copy.output("out", made[0], (1, copy.dims["tokens"], operator.hidden))


def _forms(operator: EmbedLayernorm, dims: Dims) -> Mapping[str, Form]:
    return {
        "Gather+Add+LayerNormalization": Form(partial(_plain, operator)),
        "Gather+SkipLayerNormalization": Form(partial(_skip, operator), ("onnxruntime",)),
        "EmbedLayerNormalization": Form(partial(_fused, operator), ("onnxruntime",), _feed),
    }


def _numpy(operator: EmbedLayernorm, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    made = out["out"]
    rows = _table(w)[places(x["offsets"])]

    def call() -> None:
        # The default mode copies through a buffer; ids are inside the table here.
        np.take(w["word"], x["ids"], axis=0, out=made, mode="clip")
        np.add(made, rows, out=made)
        layernorm_rows(made, w["gamma"], w["beta"], operator.epsilon)

    return call


def _torch(torch: Any, operator: EmbedLayernorm, dims: Dims) -> Any:
    layers = torch.nn.functional
    shape = (operator.hidden,)

    def one(x: Any, w: Any) -> Any:
        place = torch.from_numpy(places(x["offsets"].numpy()))
        total = layers.embedding(x["ids"], w["word"]) + w["position"][place] + w["token_type"]
        made = layers.layer_norm(total, shape, w["gamma"], w["beta"], operator.epsilon)
        return {"out": made}

    return one


PEERS = Peers(_forms, _numpy, _torch, shared_weights=True, fixed=("offsets",))
