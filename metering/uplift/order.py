"""Which arm of a pair runs first: drawn from a signed seed, and refused when the draw is lopsided.

In: the plan's seed, fixed before the first run. Out: the order of the arms, pair by pair. With each
order drawn like a coin, whatever favours the first or the second run of a pair (a warm cache, a hot
core) makes the ratios wider and leaves their middle alone. Nothing here sees a result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

Arm = Literal["base", "other"]
ARMS: tuple[Arm, Arm] = ("base", "other")
WARM_UP_PAIRS = 1
SMALLEST_SHARE = 6


def draw_order(seed: int, pairs: int) -> tuple[Arm, ...]:
    """Which arm goes first in each pair, warm-up included.

    The low bit of SHA-256("seed:pair"), so that a verifier in any language draws the same.
    """
    bits = (hashlib.sha256(f"{seed}:{pair}".encode()).digest()[-1] & 1 for pair in range(pairs))
    return tuple(ARMS[bit] for bit in bits)


def check_order(order: Sequence[Arm]) -> str:
    """Why an order with its warm-up pairs may not be measured; empty when it may.

    A seed can be chosen until it puts the baseline first in every pair. So each arm must go first
    in at least a sixth of the counted pairs; that is known before the first run.
    """
    counted = order[WARM_UP_PAIRS:]
    for arm in ARMS:
        first = counted.count(arm)
        if first * SMALLEST_SHARE < len(counted):
            return (
                f"seed: arm {arm} goes first in {first} of {len(counted)} pairs, wanted at least "
                f"one in {SMALLEST_SHARE}; sign a plan with another seed"
            )
    return ""
