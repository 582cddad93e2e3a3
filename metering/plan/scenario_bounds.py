"""What a plan has to say more where its scenario asks in queries that must be answered in time.

In: the latency bound of Server, the size of a MultiStream query. Out: a frozen record, in JSON as
the scenario has it. LoadGen holds Server to the 99th percentile, and MLPerf asks eight samples in a
MultiStream query; a plan writes both out, and one that says otherwise cannot be measured.
Never here: a limit on queued queries or on the length of a run; those follow from the rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from metering.decimals import parse_decimal, to_text
from metering.fields import Fields
from metering.refusal import Refusal

SERVER_PERCENTILE = Decimal("0.99")
MULTI_STREAM_SAMPLES = 8
LONGEST_LATENCY_NS = 10**13


@dataclass(frozen=True)
class ServerBounds:
    """``percentile`` of the latencies of a Server run stay within ``target_latency_ns``."""

    target_latency_ns: int
    percentile: Decimal = SERVER_PERCENTILE

    def __post_init__(self) -> None:
        value = self.target_latency_ns
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not 0 < value <= LONGEST_LATENCY_NS
        ):
            raise Refusal(
                "plan.bounds.target_latency_ns", value,
                f"whole nanoseconds from 1 to {LONGEST_LATENCY_NS}",
            )  # fmt: skip
        percentile = parse_decimal(self.percentile, "plan.bounds.percentile")
        object.__setattr__(self, "percentile", percentile)
        if percentile != SERVER_PERCENTILE:
            raise Refusal(
                "plan.bounds.percentile", to_text(percentile),
                f"{SERVER_PERCENTILE}, the one that LoadGen judges a Server run by",
            )  # fmt: skip


@dataclass(frozen=True)
class MultiStreamBounds:
    """Samples in one query, all of them answered before the next is asked."""

    samples_per_query: int = MULTI_STREAM_SAMPLES

    def __post_init__(self) -> None:
        if self.samples_per_query != MULTI_STREAM_SAMPLES:
            raise Refusal(
                "plan.bounds.samples_per_query", self.samples_per_query,
                f"{MULTI_STREAM_SAMPLES}, as MLPerf asks",
            )  # fmt: skip


Bounds = ServerBounds | MultiStreamBounds
_WANTED: Mapping[str, tuple[type[Bounds], str]] = MappingProxyType(
    {
        "Server": (ServerBounds, "target_latency_ns and percentile"),
        "MultiStream": (MultiStreamBounds, "samples_per_query"),
    }
)


def check_bounds(scenario: str, bounds: Bounds | None, *, demanded: bool) -> None:
    """Refuse bounds of another scenario, and none where ``demanded`` and the scenario has some."""
    wanted = _WANTED.get(scenario)
    if bounds is None and (wanted is None or not demanded):
        return
    if wanted is None:
        raise Refusal("plan.bounds", bounds, f"null: {scenario} has none")
    kind, names = wanted
    if not isinstance(bounds, kind):
        raise Refusal("plan.bounds", bounds or "nothing", f"{names}, as {scenario} needs")


def bounds_json(bounds: Bounds | None) -> dict[str, object] | None:
    """JSON object, or null for a scenario without bounds."""
    if bounds is None:
        return None
    if isinstance(bounds, MultiStreamBounds):
        return {"samples_per_query": bounds.samples_per_query}
    return {
        "target_latency_ns": bounds.target_latency_ns,
        "percentile": to_text(bounds.percentile),
    }


def bounds_from_json(value: object, scenario: str) -> Bounds | None:
    """Inverse of `bounds_json` for a plan of ``scenario``; refuses unknown and missing fields."""
    if value is None:
        return None
    fields = Fields(value, "plan.bounds")
    bounds: Bounds
    if scenario == "Server":
        bounds = ServerBounds(fields.integer("target_latency_ns"), fields.decimal("percentile"))
    elif scenario == "MultiStream":
        bounds = MultiStreamBounds(fields.integer("samples_per_query"))
    else:
        raise Refusal("plan.bounds", repr(value), f"null: {scenario} has none")
    fields.finish()
    return bounds
