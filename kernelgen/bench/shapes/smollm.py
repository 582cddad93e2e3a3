"""SmolLM2-135M: hidden 576, 9 query heads and 3 key-value heads of 64, 1536 in the middle, 49152
words, 30 layers.

In: nothing. Out: the decoder's operators for one new token at several lengths of the cache, and for
a prompt of 128 tokens.
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.activation import Swiglu
from kernelgen.ops.attention_decode import PAGE, AttentionDecode, AttentionDecodePaged
from kernelgen.ops.attention_prefill import AttentionPrefill
from kernelgen.ops.embedding import Embedding
from kernelgen.ops.gemm_plain import Gemm
from kernelgen.ops.gemv import Gemv
from kernelgen.ops.gemv_int4 import GemvInt4
from kernelgen.ops.gemv_int8 import GemvInt8
from kernelgen.ops.operator import Operator
from kernelgen.ops.rmsnorm import ResidualRmsnorm, Rmsnorm
from kernelgen.ops.rope import Rope
from kernelgen.ops.softmax import Softmax
from kernelgen.ops.topk import TopK

HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, WORDS = 576, 9, 3, 64, 1536, 49152
QKV = (HEADS + 2 * KV_HEADS) * HEAD
EPSILON = 1e-5
POSITIONS, DRAWN_FROM = 2048, 40
DECODE, SPECULATED, PREFILL = 1, 4, 128
GROUP = 32
CACHED = (128, 512, 2048)


def cases() -> list[Case]:
    return [*_products(), *_attention(), *_rows(), *_tokens()]


def _case(operator: Operator, quick: bool = False, **dims: int) -> Case:
    return Case("smollm2", operator, dims, quick)


def _products() -> list[Case]:
    one = ((HIDDEN, QKV), (HIDDEN, HIDDEN), (HIDDEN, 2 * MIDDLE), (MIDDLE, HIDDEN), (HIDDEN, WORDS))
    found = [_case(Gemv(k, n), quick=n == QKV) for k, n in one]
    prompt = (
        Gemm(HIDDEN, QKV),
        Gemm(HIDDEN, HIDDEN, "residual"),
        Gemm(HIDDEN, 2 * MIDDLE),
        Gemm(MIDDLE, HIDDEN, "residual"),
    )
    found += [_case(operator, quick=operator.n == QKV, m=PREFILL) for operator in prompt]
    for k, n in one:
        found.append(_case(GemvInt8(k, n), quick=n == QKV, m=DECODE))
        found.append(_case(GemvInt4(k, n, GROUP), quick=n == QKV, m=DECODE))
    found.append(_case(GemvInt8(HIDDEN, 2 * MIDDLE, GROUP), m=DECODE))
    return [*found, _case(GemvInt4(HIDDEN, 2 * MIDDLE, GROUP), m=SPECULATED)]


def _attention() -> list[Case]:
    grouped = (HEADS, KV_HEADS, HEAD, HEAD**-0.5)
    whole, paged = AttentionDecode(*grouped), AttentionDecodePaged(*grouped)
    prefill = AttentionPrefill(*grouped, 1)
    found = [_case(whole, n=1, max_len=most) for most in CACHED]
    found.append(_case(whole, quick=True, n=4, max_len=512))
    for most in CACHED:
        pages = most // PAGE
        found.append(_case(paged, quick=most == 128, n=1, max_pages=pages, pages=2 * pages))
    found += [_case(prefill, quick=n == PREFILL, n=1, tokens=n) for n in (PREFILL, 4 * PREFILL)]
    return [*found, _case(prefill, n=4, tokens=2 * PREFILL)]


def _rows() -> list[Case]:
    by_rows = (Rmsnorm(HIDDEN, EPSILON), ResidualRmsnorm(HIDDEN, EPSILON), Swiglu(MIDDLE))
    found = [
        _case(operator, quick=m == DECODE, m=m) for operator in by_rows for m in (DECODE, PREFILL)
    ]
    found.append(_case(Softmax(WORDS), m=DECODE))
    return [*found, _case(TopK(WORDS, DRAWN_FROM), quick=True, m=DECODE)]


def _tokens() -> list[Case]:
    found = [
        _case(
            Rope(heads, HEAD, POSITIONS), quick=tokens == PREFILL and heads == HEADS, tokens=tokens
        )
        for heads in (HEADS, KV_HEADS)
        for tokens in (DECODE, PREFILL)
    ]
    return [*found, _case(Embedding(WORDS, HIDDEN), quick=True, tokens=PREFILL)]
