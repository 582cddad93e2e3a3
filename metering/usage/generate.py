"""A month of generated usage for the demonstration. It is not measured traffic.

In: traffic shares per model and system, a month, a seed.
Out: CloudEvents JSON lines as a gateway would send them: daily rhythm, quiet weekends, some
lines sent twice (a retry that got no answer), some received days late, in order of arrival.
Never here: anything that a bill may be made from outside a demonstration; every event's source
begins with `generated/` so that nobody mistakes it for a customer's.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from metering import canonical
from metering.fields import check_zone, instant_text
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage.events import EVENT_TYPE

__all__ = ["TrafficShare", "generate_month"]


@dataclass(frozen=True)
class TrafficShare:
    """`weight` of the month's samples goes to `model` on `system`."""

    model: str
    system: str
    weight: int = 1


def generate_month(
    shares: Sequence[TrafficShare],
    period: Period,
    *,
    samples: int,
    seed: int,
    events_per_hour: int = 1,
    duplicate_rate: float = 0.02,
    late_rate: float = 0.01,
    gateway: str = "gateway-1",
) -> list[str]:
    """JSON lines for `period` whose distinct events sum to exactly `samples`, seeded.

    About `duplicate_rate` of the lines are repeated word for word and `late_rate` arrive one to
    four days after they happened (some of them after the month has ended). Deterministic.
    """
    if not shares or any(share.weight < 1 for share in shares):
        raise Refusal("shares", shares, "at least one share with a weight above zero")
    if samples < 0 or events_per_hour < 1:
        raise Refusal("samples", (samples, events_per_hour), "samples >= 0, events_per_hour >= 1")
    rng = random.Random(seed)  # noqa: S311 - traffic for a demonstration, not a secret
    slots = _slots(shares, period, events_per_hour, rng)
    volumes = _spread(samples, [weight for _, _, weight in slots])
    arrivals: list[tuple[datetime, int, str]] = []
    for number, ((share, occurred, _), volume) in enumerate(zip(slots, volumes, strict=True)):
        if volume == 0:
            continue
        delay = timedelta(seconds=rng.randint(1, 90))
        if rng.random() < late_rate:
            delay = timedelta(hours=rng.randint(24, 96))
        event: dict[str, object] = {
            "specversion": "1.0",
            "type": EVENT_TYPE,
            "source": f"generated/{gateway}",
            "id": f"{period.label}-{number:06d}-{rng.getrandbits(48):012x}",
            "time": instant_text(occurred),
            "datacontenttype": "application/json",
            "data": {"model": share.model, "system": share.system, "samples": volume},
        }
        received = occurred + delay
        arrivals.append((received, number, _line(event, received)))
        if rng.random() < duplicate_rate:
            again = received + timedelta(seconds=rng.randint(2, 600))
            arrivals.append((again, number, _line(event, again)))
    return [line for _, _, line in sorted(arrivals)]


def _slots(
    shares: Sequence[TrafficShare], period: Period, events_per_hour: int, rng: random.Random
) -> list[tuple[TrafficShare, datetime, float]]:
    """Each share's reporting moments with their expected volume."""
    zone = check_zone(period.zone)
    step = timedelta(hours=1) / events_per_hour
    slots = []
    moment = period.start
    while moment < period.end:
        span = min(step, period.end - moment)
        for share in shares:
            occurred = moment + timedelta(seconds=int(rng.random() * span.total_seconds()))
            local = occurred.astimezone(zone)
            rhythm = 1.0 + 0.8 * math.sin((local.hour - 8) / 24 * 2 * math.pi)
            weekend = 0.4 if local.weekday() >= 5 else 1.0
            weight = share.weight * rhythm * weekend * rng.uniform(0.8, 1.2)
            slots.append((share, occurred, weight))
        moment += step
    return slots


def _spread(samples: int, weights: list[float]) -> list[int]:
    """Whole samples in proportion to the weights, summing exactly."""
    total = math.fsum(weights)
    edges = [0.0]
    for weight in weights:
        edges.append(edges[-1] + weight)
    marks = [min(samples, int(samples * edge / total)) for edge in edges]
    marks[-1] = samples
    return [after - before for before, after in pairwise(marks)]


def _line(event: dict[str, object], received: datetime) -> str:
    return canonical.dumps({**event, "receivedtime": instant_text(received)}).decode()
