"""Peers of attention of one new token over a cache of keys and values.

In: `AttentionDecode`. Out: `PEERS`, and the parts that the paged family shares. Never here: pages.

No engine has to append: every form gets the cache with the new token in it, laid out outside the
clock as the node likes it. All caches are full (`lengths` is `max_len`), as the operator times it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from kernelgen.bench.family import Arrays, Call, Dims, Form, Peers
from kernelgen.bench.net import Copy
from kernelgen.bench.op_peers.rows import softmax_rows
from kernelgen.ops.operator import Array

History = Callable[[Arrays], tuple[Array, Array]]


def whole_cache(x: Arrays) -> tuple[Array, Array]:
    """Keys and values [n, length, kv_heads, d] with the new token's at the end."""
    k, v = x["key_cache"].copy(), x["value_cache"].copy()
    k[:, -1], v[:, -1] = x["key"], x["value"]
    return k, v


def _heads(history: History, x: Arrays) -> dict[str, Array]:
    """[n, heads, positions, d] of queries, keys and values."""
    k, v = history(x)
    return {
        "query": x["q"][:, :, None],
        "keys": k.transpose(0, 2, 1, 3),
        "values": v.transpose(0, 2, 1, 3),
    }


def _rows(history: History, x: Arrays) -> dict[str, Array]:
    """[n, positions, heads * d] of queries, keys and values."""
    k, v = history(x)
    count, length = k.shape[:2]
    return {
        "query": x["q"].reshape(count, 1, -1),
        "keys": k.reshape(count, length, -1),
        "values": v.reshape(count, length, -1),
    }


def _turned(history: History, x: Arrays) -> dict[str, Array]:
    """As heads, keys [n, heads, d, positions]: a product without a transpose."""
    k, v = history(x)
    kv = k.shape[2]
    count, heads, size = x["q"].shape
    return {
        "query": x["q"].reshape(count, kv, heads // kv, size),
        "keys": k.transpose(0, 2, 3, 1),
        "values": v.transpose(0, 2, 1, 3),
    }


def _inputs(copy: Copy) -> list[str]:
    return [copy.input(name) for name in ("query", "keys", "values")]


def _by_heads(operator: Any, copy: Copy) -> None:
    made = copy.node("Attention", *_inputs(copy), scale=operator.scale)
    copy.output("out", made, (copy.dims["n"], operator.q_heads, 1, operator.head_size))


def _by_rows(operator: Any, copy: Copy) -> None:
    made = copy.node(
        "Attention",
        *_inputs(copy),
        q_num_heads=operator.q_heads,
        kv_num_heads=operator.kv_heads,
        scale=operator.scale,
    )
    copy.output("out", made, (copy.dims["n"], 1, operator.q_heads * operator.head_size))


def _plain(operator: Any, copy: Copy) -> None:
    q, k, v = _inputs(copy)
    scale = copy.constant("scale", np.array(operator.scale, np.float32))
    scores = copy.node("Mul", copy.node("MatMul", q, k), scale)
    made = copy.node("MatMul", copy.node("Softmax", scores, axis=-1), v)
    group = operator.q_heads // operator.kv_heads
    copy.output("out", made, (copy.dims["n"], operator.kv_heads, group, operator.head_size))


def forms(history: History, operator: Any, dims: Dims) -> Mapping[str, Form]:
    return {
        "Attention, heads": Form(
            partial(_by_heads, operator), feed=partial(_heads, history), opset=23
        ),
        # OpenVINO 2026.4 ends the process on this form with grouped queries.
        "Attention, rows": Form(
            partial(_by_rows, operator), ("onnxruntime",), partial(_rows, history), opset=23
        ),
        "MatMul+Softmax+MatMul": Form(partial(_plain, operator), feed=partial(_turned, history)),
    }


def numpy_call(history: History, operator: Any, x: Arrays, out: Arrays) -> Call:
    """Query heads that share keys are rows of one product."""
    kv, size = operator.kv_heads, operator.head_size
    group = operator.q_heads // kv
    q = x["q"].reshape(-1, kv, group, size)
    made = out["out"].reshape(q.shape)
    scale = np.float32(operator.scale)

    def call() -> None:
        k, v = history(x)
        scores = q @ k.transpose(0, 2, 3, 1)
        scores *= scale
        softmax_rows(scores)
        np.matmul(scores, v.transpose(0, 2, 1, 3), out=made)

    return call


def appended(x: Arrays) -> tuple[Array, Array]:
    """The caches themselves with the new token written into its place."""
    k, v = x["key_cache"], x["value_cache"]
    k[:, -1], v[:, -1] = x["key"], x["value"]
    return k, v


def _numpy(operator: Any, dims: Dims, x: Arrays, w: Arrays, out: Arrays) -> Call:
    return numpy_call(appended, operator, x, out)


def torch_call(torch: Any, operator: Any, history: Callable[..., Any]) -> Any:
    attend = torch.nn.functional.scaled_dot_product_attention
    grouped = operator.q_heads != operator.kv_heads

    def one(x: Any, w: Any) -> Any:
        k, v = (part.transpose(1, 2) for part in history(x))
        made = attend(x["q"][:, :, None], k, v, scale=operator.scale, enable_gqa=grouped)
        return {"out": made[:, :, 0]}

    return one


def _torch(torch: Any, operator: Any, dims: Dims) -> Any:
    return torch_call(torch, operator, appended)


PEERS = Peers(partial(forms, whole_cache), _numpy, _torch, fixed=("lengths",))
