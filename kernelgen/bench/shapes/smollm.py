"""SmolLM2-135M: hidden 576, 9 query heads and 3 key-value heads of 64, 1536 in the middle, 49152
words, 30 layers.

In: nothing. Out: the decoder's operators for one new token at several lengths of the cache, and for
a prompt of 128 tokens.
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.rmsnorm import Rmsnorm

HIDDEN, HEADS, KV_HEADS, HEAD, MIDDLE, WORDS = 576, 9, 3, 64, 1536, 49152
EPSILON = 1e-5
DECODE, PREFILL = 1, 128
CACHED = (128, 512, 2048)


def cases() -> list[Case]:
    found = []
    for rows in (DECODE, PREFILL):
        quick = rows == DECODE
        found += [Case("smollm2", Rmsnorm(HIDDEN, EPSILON), {"m": rows}, quick)]
    return found
