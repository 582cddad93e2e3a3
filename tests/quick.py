"""The quick form of a slow proof: the same checks on fewer cases, for CI's time limit.

`IGNITION_QUICK=1` chooses it; without it every case runs.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")


def some(cases: Sequence[Case], quick: int) -> Sequence[Case]:
    """All `cases`, or about `quick` of them spread evenly when the quick form is asked for."""
    if os.environ.get("IGNITION_QUICK") != "1" or len(cases) <= quick:
        return cases
    step = len(cases) / quick
    return [cases[int(number * step)] for number in range(quick)]
