"""How the samples of an Offline query are handed to a system: the arrangement.

In: sample positions, their lengths, and the arrangement a :class:`SutSpec` names. Out: batches of
positions, each position exactly once. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from metering.loadgen.spec import Arrangement


def arrange(lengths: Sequence[int], arrangement: Arrangement, batch: int) -> list[list[int]]:
    """Batches of positions into ``lengths``.

    ``single``: one by one. ``padded`` and ``ragged``: in the order of arrival, ``batch`` at a time
    (a ragged system does not pad, so order costs it nothing). ``grouped``: sorted by length first,
    the longest first, so that a batch pads little and the last batches are the cheapest.
    """
    positions = list(range(len(lengths)))
    if arrangement == "grouped":
        positions.sort(key=lambda position: -lengths[position])
    step = 1 if arrangement == "single" else batch
    return [positions[start : start + step] for start in range(0, len(positions), step)]
