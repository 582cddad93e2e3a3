"""A mixture-of-experts block of a small decoder: hidden 576, 8 experts of 1536, 2 chosen.

In: nothing. Out: the block for one token, a batch of 32 and a prompt of 128.
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.moe import Moe

HIDDEN, MIDDLE, EXPERTS = 576, 1536, 8
TOKENS = (1, 32, 128)


def cases() -> list[Case]:
    block = Moe(HIDDEN, MIDDLE, EXPERTS, "swiglu", 1)
    return [Case("moe", block, {"m": tokens}, tokens == 1) for tokens in TOKENS]
