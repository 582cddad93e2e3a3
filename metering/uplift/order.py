"""Which arm of a pair runs first: drawn from a signed seed, never with a lean.

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

    The low bit of SHA-256("seed:pair"), so that a verifier in any language draws the same. A seed
    can be sought until it puts the baseline first in every pair; so an order that leans is drawn
    again, from "seed.1:pair", "seed.2:pair" and so on.
    """
    draw, order = 0, _draw(f"{seed}", pairs)
    while leans(order):
        draw += 1
        order = _draw(f"{seed}.{draw}", pairs)
    return order


def _draw(name: str, pairs: int) -> tuple[Arm, ...]:
    digests = (hashlib.sha256(f"{name}:{pair}".encode()).digest() for pair in range(pairs))
    return tuple(ARMS[digest[-1] & 1] for digest in digests)


def leans(order: Sequence[Arm]) -> bool:
    """Whether an arm goes first in less than a sixth of the counted pairs, of six or more."""
    counted = order[WARM_UP_PAIRS:]
    if len(counted) < SMALLEST_SHARE:
        return False
    return min(counted.count(arm) for arm in ARMS) * SMALLEST_SHARE < len(counted)
