"""Blocks of our own, seeded, where no small real model is at hand: a mixture of experts.

In: nothing. Out: the operators at the sizes of small models of that kind.
Never here: sizes of real models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.moe import Moe

HIDDEN, MIDDLE, EXPERTS = 512, 1024, 8
ROWS = (1, 16, 128)


def cases() -> list[Case]:
    mixture = Moe(HIDDEN, MIDDLE, EXPERTS, "swiglu", 1)
    found = [Case("moe_block", mixture, {"m": rows}, quick=rows == 1) for rows in ROWS]
    return [*found, Case("moe_block", Moe(384, 1536, 4, "gelu", 0), {"m": 32})]
