"""Peers of attention over whole sequences with grouped queries.

In: `AttentionPrefill`. Out: `PEERS`. Never here: a cache.

Every sequence is its own node, its rows laid out outside the clock as the node likes them: a
model's products can write them so.
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
from kernelgen.ops.attention_prefill import AttentionPrefill
from kernelgen.ops.operator import Array

Node = Callable[[AttentionPrefill, Copy, str], str]


def _rows(x: Arrays) -> dict[str, Array]:
    """Queries, keys, values of every sequence as [1, length, heads * d]."""
    found = {}
    for place, (begin, end) in enumerate(itertools.pairwise(x["offsets"])):
        for letter in "qkv":
            found[f"{letter}s{place}"] = x[letter][begin:end].reshape(1, end - begin, -1)
    return found


def _heads(x: Arrays) -> dict[str, Array]:
    """Queries, keys, values of every sequence as [1, heads, length, d]."""
    found = {}
    for place, (begin, end) in enumerate(itertools.pairwise(x["offsets"])):
        for letter in "qkv":
            found[f"{letter}s{place}"] = x[letter][begin:end].transpose(1, 0, 2)[None]
    return found


def _inputs(copy: Copy, place: str) -> list[str]:
    return [copy.input(f"{letter}s{place}") for letter in "qkv"]


def _grouped(operator: AttentionPrefill, copy: Copy, place: str) -> str:
    length = copy.feeds[f"qs{place}"].shape[1]
    past = copy.constant("no_past", np.empty((1, operator.kv_heads, 0, operator.head_size), "f4"))
    last = copy.constant(f"last_{length}", np.array([length - 1], np.int32))
    whole = copy.constant(f"whole_{length}", np.array([length], np.int32))
    made = copy.nodes(
        "GroupQueryAttention",
        *_inputs(copy, place),
        past,
        past,
        last,
        whole,
        count=3,
        domain=CONTRIB,
        num_heads=operator.q_heads,
        kv_num_heads=operator.kv_heads,
        scale=operator.scale,
    )
    return made[0]


def _standard(operator: AttentionPrefill, copy: Copy, place: str) -> str:
    return copy.node(
        "Attention",
        *_inputs(copy, place),
        q_num_heads=operator.q_heads,
        kv_num_heads=operator.kv_heads,
        scale=operator.scale,
        is_causal=operator.causal,
    )


def _turned_back(operator: AttentionPrefill, copy: Copy, value: str) -> str:
    rows = copy.node("Transpose", value, perm=[0, 2, 1, 3])
    return copy.node("Reshape", rows, copy.ints(0, 0, operator.q_heads * operator.head_size))


def _by_heads(operator: AttentionPrefill, copy: Copy, place: str) -> str:
    made = copy.node(
        "Attention", *_inputs(copy, place), scale=operator.scale, is_causal=operator.causal
    )
    return _turned_back(operator, copy, made)


def _plain(operator: AttentionPrefill, copy: Copy, place: str) -> str:
    """Query heads that share keys become rows of one product."""
    length = copy.feeds[f"qs{place}"].shape[2]
    group = operator.q_heads // operator.kv_heads
    q, k, v = _inputs(copy, place)
    rows = copy.ints(1, operator.kv_heads, group * length, operator.head_size)
    scores = copy.node(
        "MatMul", copy.node("Reshape", q, rows), copy.node("Transpose", k, perm=[0, 1, 3, 2])
    )
    scale = copy.constant("scale", np.array(operator.scale, np.float32))
    scores = copy.node("Mul", scores, scale)
    if operator.causal:
        mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        full = copy.constant(f"mask_{length}", np.tile(mask, (group, 1))[None, None])
        scores = copy.node("Add", scores, full)
    made = copy.node("MatMul", copy.node("Softmax", scores, axis=-1), v)
    heads = copy.ints(1, operator.q_heads, length, operator.head_size)
    return _turned_back(operator, copy, copy.node("Reshape", made, heads))


def _body(operator: AttentionPrefill, node: Node, copy: Copy) -> None:
    count = copy.dims["n"]
    made = [node(operator, copy, str(place)) for place in range(count)]
    whole = made[0] if count == 1 else copy.node("Concat", *made, axis=1)
    copy.output("out", whole, (1, copy.dims["tokens"], operator.q_heads * operator.head_size))


def _forms(operator: AttentionPrefill, dims: Dims) -> Mapping[str, Form]:
    ours = ("onnxruntime",)
    found = {
        # OpenVINO 2026.4 ends the process on this form with grouped queries.
        "Attention, rows": Form(partial(_body, operator, _standard), ours, _rows, opset=23),
        "Attention, heads": Form(partial(_body, operator, _by_heads), feed=_heads, opset=23),
        "MatMul+Softmax+MatMul": Form(partial(_body, operator, _plain), feed=_heads),
    }
    if operator.causal:
        found["GroupQueryAttention"] = Form(partial(_body, operator, _grouped), ours, _rows)
    return found


def _numpy(operator: AttentionPrefill, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    kv, size = operator.kv_heads, operator.head_size
    group = operator.q_heads // kv
    scale = np.float32(operator.scale)
    views = []
    for begin, end in itertools.pairwise(x["offsets"]):
        length = int(end - begin)
        q = x["q"][begin:end].reshape(length, kv, group, size).transpose(1, 2, 0, 3)
        k = x["k"][begin:end].transpose(1, 2, 0)[:, None]
        v = x["v"][begin:end].transpose(1, 0, 2)[:, None]
        to = out["out"][begin:end].reshape(length, kv, group, size).transpose(1, 2, 0, 3)
        mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        views.append((q, k, v, to, mask))

    def call() -> None:
        for q, k, v, to, mask in views:
            scores = q @ k
            scores *= scale
            if operator.causal:
                scores += mask
            softmax_rows(scores)
            np.copyto(to, scores @ v)

    return call


def _torch(torch: Any, operator: AttentionPrefill, dims: Dims) -> Any:
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = operator.q_heads != operator.kv_heads

    def one(x: Any, w: Any) -> Any:
        made = []
        for begin, end in itertools.pairwise(x["offsets"].tolist()):
            q, k, v = (x[name][begin:end].transpose(0, 1)[None] for name in "qkv")
            rows = attend(
                q, k, v, scale=operator.scale, is_causal=bool(operator.causal), enable_gqa=grouped
            )
            made.append(rows[0].transpose(0, 1))
        return {"out": made[0] if len(made) == 1 else torch.cat(made)}

    return one


PEERS = Peers(_forms, _numpy, _torch, fixed=("offsets",))
