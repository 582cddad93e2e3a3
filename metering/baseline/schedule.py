"""When a baseline has to be measured again.

In: the last registered baseline, the agreed interval, the time and what is installed now. Out: the
next date and every reason why it is due already. A newer stack changes no figure by itself: it
makes a re-measurement due, and the contract's policy says what its result does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from metering.baseline.registry import Entry
from metering.fields import instant_text
from metering.refusal import Refusal
from metering.stacks import StackInfo


@dataclass(frozen=True)
class Due:
    """``by`` is the date of the calendar; ``reasons`` are empty while nothing is due."""

    by: datetime
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        return {
            "by": instant_text(self.by),
            "due": bool(self.reasons),
            "reasons": list(self.reasons),
        }


def due(last: Entry, *, every_days: int, now: datetime, installed: Sequence[StackInfo]) -> Due:
    """Whether ``last`` has to be measured again.

    Due when the interval is over, or when a stack that the plan lets compete is here with another
    digest than it was measured with, or is here for the first time. A stack that is gone is no
    reason: measuring again would leave it out, and lower the baseline.
    """
    if every_days < 1:
        raise Refusal("every_days", every_days, "a whole number of days from 1")
    by = last.frozen_at + timedelta(days=every_days)
    reasons = []
    if now >= by:
        reasons.append(f"the {every_days} days since {instant_text(last.frozen_at)} are over")
    known = {stack.name: stack for stack in last.stacks}
    for info in installed:
        if not info.available or info.name not in last.swept:
            continue
        before = known.get(info.name)
        if before is None:
            reasons.append(f"{info.name} {info.version} is installed and was never measured")
        elif before.digest != info.digest:
            reasons.append(
                f"{info.name}: {info.version} ({info.digest[:12]}) is installed, measured was "
                f"{before.version} ({before.digest[:12]})"
            )
    return Due(by, tuple(reasons))
