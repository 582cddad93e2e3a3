"""The facts of a case: unit costs, usage, stated savings, failed gates, what stands behind.

In: objects of a case file.
Out: frozen records; a field that is missing, unknown or contradicts another is refused by name.
Never here: arithmetic on money.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal

from metering.decimals import parse_decimal, to_text
from metering.fields import Fields
from metering.refusal import Refusal
from metering.savings import Estimate, Override

__all__ = ["Backing", "Gate", "Stated", "UnitCost", "Usage"]

COSTS_OF = ("baseline", "optimised")


@dataclass(frozen=True)
class UnitCost:
    """A measured cost per unit of work of one model on one system, counting from `since`.

    `standard_error` (with `df` degrees of freedom) is that of `cost`; None: known exactly.
    """

    of: str
    model: str
    system: str
    since: datetime
    cost: Decimal
    standard_error: Decimal | None = None
    df: int | None = None
    measurement_id: str = ""

    @classmethod
    def from_json(cls, value: object, where: str) -> UnitCost:
        """Read one cost; it is zero or more."""
        fields = Fields(value, where)
        cost = cls(
            of=fields.text("of", COSTS_OF),
            model=fields.text("model"),
            system=fields.text("system"),
            since=fields.instant("since"),
            cost=fields.decimal("cost"),
            standard_error=fields.optional_decimal("standard_error"),
            df=_df(fields),
            measurement_id=_name(fields, "id"),
        )
        fields.finish()
        if cost.cost < 0:
            raise Refusal(f"{where}.cost", to_text(cost.cost), "zero or more")
        _check_error(where, cost.standard_error, cost.df)
        return cost


@dataclass(frozen=True)
class Usage:
    """A dated volume of accepted work; `received` is when it became known, None: at once."""

    model: str
    system: str
    at: datetime
    units: Decimal
    received: datetime | None = None

    @classmethod
    def from_json(cls, value: object, where: str) -> Usage:
        """Read one volume; a negative one is refused, never clamped."""
        fields = Fields(value, where)
        usage = cls(
            model=fields.text("model"),
            system=fields.text("system"),
            at=fields.instant("at"),
            units=fields.decimal("units"),
            received=fields.instant("received") if fields.has("received") else None,
        )
        fields.finish()
        if usage.units < 0:
            raise Refusal(
                f"{where}.units", to_text(usage.units), "zero or more",
                "reverse an event by a correction that names it",
            )  # fmt: skip
        return usage


@dataclass(frozen=True)
class Stated:
    """Savings of one model on one system, as the auditor verified them; unrounded, signed."""

    period: str
    model: str
    system: str
    estimate: Estimate
    segment: str = ""
    counterfactual: Decimal | None = None
    uplift_id: str = ""
    volume: int | None = None
    corrects: str = ""

    @classmethod
    def from_json(cls, value: object, where: str, period: str | None = None) -> Stated:
        """Read one line; `period` is given where the file need not name it (an audit)."""
        fields = Fields(value, where)
        point = fields.decimal("point")
        stated = cls(
            period=fields.text("period") if period is None else period,
            model=fields.text("model"),
            system=fields.text("system"),
            estimate=Estimate(
                point=point,
                bound=fields.optional_decimal("bound"),
                standard_error=fields.optional_decimal("standard_error"),
                df=_df(fields),
                baseline_id=_name(fields, "baseline_id"),
            ),
            segment=_name(fields, "segment"),
            counterfactual=fields.optional_decimal("counterfactual"),
            uplift_id=_name(fields, "uplift_id"),
            volume=fields.integer("volume") if fields.has("volume") else None,
            corrects=_name(fields, "corrects"),
        )
        fields.finish()
        return stated


@dataclass(frozen=True)
class Gate:
    """Why a model on a system bills zero in a period."""

    period: str
    model: str
    system: str
    reason: str

    @classmethod
    def from_json(cls, value: object, where: str) -> Gate:
        """Read one gate."""
        fields = Fields(value, where)
        gate = cls(*(fields.text(name) for name in ("period", "model", "system", "reason")))
        fields.finish()
        return gate


@dataclass(frozen=True)
class Backing:
    """What stands behind a model on a system in a period, and the auditor's overrides of rules.

    `metered_hours` of the period's hours have usage or a reported zero; `zone` is the meter's.
    """

    period: str
    model: str
    system: str
    run_days: tuple[date, ...]
    metered_hours: Decimal
    zone: str
    volumes: tuple[Decimal, ...] = ()
    conflicts: int = 0
    overrides: tuple[Override, ...] = ()

    @classmethod
    def from_json(cls, value: object, where: str) -> Backing:
        """Read one record of evidence."""
        fields = Fields(value, where)
        backing = cls(
            period=fields.text("period"),
            model=fields.text("model"),
            system=fields.text("system"),
            run_days=tuple(_day(text, f"{where}.run_days") for text in fields.texts("run_days")),
            metered_hours=fields.decimal("metered_hours"),
            zone=fields.text("zone"),
            volumes=tuple(
                parse_decimal(volume, f"{where}.volumes")
                for volume in (fields.items("volumes") if fields.has("volumes") else ())
            ),
            conflicts=fields.integer("conflicts") if fields.has("conflicts") else 0,
            overrides=tuple(
                Override.from_json(item, f"{where}.overrides[{index}]")
                for index, item in enumerate(
                    fields.items("overrides") if fields.has("overrides") else ()
                )
            ),
        )
        fields.finish()
        return backing


def _day(text: str, where: str) -> date:
    return Fields({"day": text}, where).day("day")


def _df(fields: Fields) -> int | None:
    return fields.integer("df") if fields.has("df") else None


def _name(fields: Fields, name: str) -> str:
    """Text that may be empty or absent."""
    return fields.text(name) if fields.has(name) and fields.any(name) != "" else ""


def _check_error(where: str, error: Decimal | None, df: int | None) -> None:
    if (error is None) != (df is None):
        raise Refusal(f"{where}.df", df, "degrees of freedom with each standard error")
    if error is not None and error < 0:
        raise Refusal(f"{where}.standard_error", to_text(error), "zero or more")
