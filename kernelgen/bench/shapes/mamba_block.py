"""A state-space block of a small decoder: 768 channels of 16 states.

In: nothing. Out: the scan over 128 and 512 tokens.
Never here: other models.
"""

from __future__ import annotations

from kernelgen.bench.cases import Case
from kernelgen.ops.selective_scan import SelectiveScan

CHANNELS, STATES = 768, 16
TOKENS = (128, 512)


def cases() -> list[Case]:
    scan = SelectiveScan(CHANNELS, STATES)
    return [Case("mamba", scan, {"length": tokens}, tokens == 128) for tokens in TOKENS]
