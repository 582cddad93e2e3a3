"""Peers of multi-head self-attention over sequences laid end to end.

In: `Attention`. Out: `PEERS`. Never here: causal masks, grouped queries.

The engines take queries, keys and values apart, each sequence as its own node: the split of the
fused rows happens outside the clock, since a model's products can write them apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import CONTRIB, Copy
from kernelgen.bench.op_peers.rows import softmax_rows
from kernelgen.ops import Attention
from kernelgen.ops.operator import Array


def _feed(hidden: int, x: Arrays) -> dict[str, Array]:
    found = {}
    for place, (begin, end) in enumerate(itertools.pairwise(x["offsets"])):
        rows = x["qkv"][begin:end]
        for part, letter in enumerate("qkv"):
            found[f"{letter}{place}"] = rows[None, :, part * hidden : (part + 1) * hidden]
    return found


def _contrib(operator: Attention, copy: Copy, q: str, k: str, v: str) -> str:
    return copy.node(
        "MultiHeadAttention",
        q,
        k,
        v,
        domain=CONTRIB,
        num_heads=operator.heads,
        scale=operator.scale,
    )


def _standard(operator: Attention, copy: Copy, q: str, k: str, v: str) -> str:
    return copy.node(
        "Attention",
        q,
        k,
        v,
        q_num_heads=operator.heads,
        kv_num_heads=operator.heads,
        scale=operator.scale,
    )


def _plain(operator: Attention, copy: Copy, q: str, k: str, v: str) -> str:
    split = copy.ints(0, 0, operator.heads, operator.head_size)
    parts = [copy.node("Reshape", one, split) for one in (q, k, v)]
    orders = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (
        copy.node("Transpose", one, perm=order) for one, order in zip(parts, orders, strict=True)
    )
    scale = copy.constant("scale", np.array(operator.scale, np.float32))
    scores = copy.node("Softmax", copy.node("Mul", copy.node("MatMul", q, k), scale), axis=-1)
    mixed = copy.node("Transpose", copy.node("MatMul", scores, v), perm=[0, 2, 1, 3])
    return copy.node("Reshape", mixed, copy.ints(0, 0, operator.hidden))


Node = Callable[[Attention, Copy, str, str, str], str]


def _body(operator: Attention, node: Node, copy: Copy) -> None:
    count = copy.dims["n"]
    made = [
        node(operator, copy, *(copy.input(f"{letter}{place}") for letter in "qkv"))
        for place in range(count)
    ]
    whole = made[0] if count == 1 else copy.node("Concat", *made, axis=1)
    copy.output("out", whole, (1, copy.dims["tokens"], operator.hidden))


def _forms(operator: Attention, dims: Dims) -> Mapping[str, Form]:
    feed = partial(_feed, operator.hidden)
    return {
        "MultiHeadAttention": Form(partial(_body, operator, _contrib), ("onnxruntime",), feed),
        "Attention": Form(partial(_body, operator, _standard), feed=feed, opset=23),
        "MatMul+Softmax+MatMul": Form(partial(_body, operator, _plain), feed=feed),
    }


def _numpy(operator: Attention, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    heads, size = operator.heads, operator.head_size
    scale = np.float32(operator.scale)
    views = []
    for begin, end in itertools.pairwise(x["offsets"]):
        split = x["qkv"][begin:end].reshape(-1, 3, heads, size)
        q, k, v = (split[:, part].transpose(1, 0, 2) for part in range(3))
        to = out["out"][begin:end].reshape(-1, heads, size).transpose(1, 0, 2)
        views.append((q, k.transpose(0, 2, 1), v, to))

    def call() -> None:
        for q, k, v, to in views:
            scores = q @ k
            scores *= scale
            softmax_rows(scores)
            np.copyto(to, scores @ v)

    return call


def _torch(torch: Any, operator: Attention, dims: Dims) -> Any:
    attend = torch.nn.functional.scaled_dot_product_attention
    heads, size = operator.heads, operator.head_size

    def one(x: Any, w: Any) -> Any:
        made = []
        for begin, end in itertools.pairwise(x["offsets"].tolist()):
            q, k, v = x["qkv"][begin:end].view(1, -1, 3, heads, size).permute(2, 0, 3, 1, 4)
            rows = attend(q, k, v, scale=operator.scale)
            made.append(rows.transpose(1, 2).reshape(end - begin, -1))
        return {"out": made[0] if len(made) == 1 else torch.cat(made)}

    return one


PEERS = Peers(_forms, _numpy, _torch, fixed=("offsets",))
