"""The case file: read strictly, with every period it needs worked out.

In: one JSON object of schema `ignition.fee-case.v2` (`fee_case.schema.json`).
Out: a frozen case.
Never here: a field that is ignored; a period guessed from the machine's zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from importlib.resources import files
from typing import cast

from metering.canonical import digest
from metering.cases.facts import Backing, Gate, Stated, UnitCost, Usage
from metering.cases.steps import Step
from metering.contract import Contract, LedgerState
from metering.decimals import parse_decimal
from metering.fields import Fields
from metering.plan import Period
from metering.refusal import Refusal
from metering.savings import UNCERTAINTIES, NonRoutine

__all__ = ["CASE_SCHEMA", "Case", "schema_text"]

CASE_SCHEMA = "ignition.fee-case.v2"


def schema_text() -> str:
    """The JSON Schema (2020-12) of a case file, as published in this package."""
    return files("metering.cases").joinpath("fee_case.schema.json").read_text("utf-8")


@dataclass(frozen=True)
class Case:
    """Versions of one contract, the facts of its periods, and the steps in order.

    `digest` is that of the file's canonical bytes: the evidence that a case's amounts rest on.
    `allocation` is a weight per cost centre, or None.
    """

    contracts: tuple[Contract, ...]
    state: LedgerState
    periods: tuple[Period, ...]
    costs: tuple[UnitCost, ...]
    usage: tuple[Usage, ...]
    cutoff_days: int | None
    savings: tuple[Stated, ...]
    uncertainty: str
    gates: tuple[Gate, ...]
    evidence: tuple[Backing, ...]
    adjustments: tuple[NonRoutine, ...]
    steps: tuple[Step, ...]
    allocation: Mapping[str, Decimal] | None
    digest: str

    def period(self, label: str, field: str) -> Period:
        """The period of that label; refused when the case has none."""
        for period in self.periods:
            if period.label == label:
                return period
        known = ", ".join(period.label for period in self.periods)
        raise Refusal(field, repr(label), f"a period of the case: {known or 'it has none'}")

    @classmethod
    def from_json(cls, value: object) -> Case:
        """Read a case; facts and steps may be left out when there are none."""
        fields = Fields(value, "case")
        fields.text("schema", [CASE_SCHEMA])
        contracts = tuple(Contract.from_json(item) for item in fields.items("contracts"))
        _check_versions(contracts)
        state = fields.any("state")
        usage = tuple(Usage.from_json(*item) for item in _rows(fields, "usage"))
        savings = tuple(Stated.from_json(*item) for item in _rows(fields, "savings"))
        periods = _periods(fields, contracts[0].zone, usage, savings)
        case = cls(
            contracts=contracts,
            state=LedgerState() if state is None else LedgerState.from_json(state),
            periods=periods,
            costs=tuple(UnitCost.from_json(*item) for item in _rows(fields, "costs")),
            usage=usage,
            cutoff_days=_cutoff(fields),
            savings=savings,
            uncertainty=(
                fields.text("uncertainty", UNCERTAINTIES) if fields.has("uncertainty") else "each"
            ),
            gates=tuple(Gate.from_json(*item) for item in _rows(fields, "gates")),
            evidence=tuple(Backing.from_json(*item) for item in _rows(fields, "evidence")),
            adjustments=tuple(NonRoutine.from_json(*item) for item in _rows(fields, "adjustments")),
            steps=_steps(fields, periods),
            allocation=_allocation(fields),
            digest=digest(value),
        )
        fields.finish()
        for name in ("savings", "gates", "evidence", "adjustments"):
            for index, fact in enumerate(getattr(case, name)):
                case.period(fact.period, f"case.{name}[{index}].period")
        for index, step in enumerate(case.steps):
            if step.kind == "bill":
                case.period(step.period, f"case.steps[{index}].period")
        return case


def _check_versions(contracts: tuple[Contract, ...]) -> None:
    if not contracts:
        raise Refusal("case.contracts", "none", "at least one version")
    first = contracts[0]
    for index, other in enumerate(contracts[1:], start=1):
        for name in ("contract_id", "currency", "zone"):
            got, wanted = getattr(other, name), getattr(first, name)
            if got != wanted:
                raise Refusal(f"case.contracts[{index}].{name}", got, f"{wanted}, as in the first")
    if len({contract.version for contract in contracts}) != len(contracts):
        raise Refusal("case.contracts", "one version twice", "each version once")


def _rows(fields: Fields, name: str) -> list[tuple[object, str]]:
    """The objects of a list that may be absent, each with its place in the file."""
    if not fields.has(name):
        return []
    return [(item, f"case.{name}[{index}]") for index, item in enumerate(fields.items(name))]


def _periods(
    fields: Fields, zone: str, usage: tuple[Usage, ...], savings: tuple[Stated, ...]
) -> tuple[Period, ...]:
    if not fields.has("periods"):
        months = {Period.month(row.period, zone) for row in savings}
        months |= {Period.month_of(row.at, zone) for row in usage}
        return tuple(sorted(months, key=lambda period: period.start))
    value = fields.any("periods")
    if isinstance(value, Mapping):
        anchor = Fields(value, "case.periods")
        start: date = anchor.day("start")
        count = anchor.integer("count")
        anchor.finish()
        return tuple(Period.anchored(start, count, zone))
    labels = fields.texts("periods")
    if not labels or len(set(labels)) != len(labels):
        raise Refusal("case.periods", list(labels), "labels of months, each once, or null")
    months = {Period.month(label, zone) for label in labels}
    return tuple(sorted(months, key=lambda period: period.start))


def _cutoff(fields: Fields) -> int | None:
    if not fields.has("cutoff_days"):
        return None
    days = fields.integer("cutoff_days")
    if days < 0:
        raise Refusal("case.cutoff_days", days, "zero or more")
    return days


def _steps(fields: Fields, periods: tuple[Period, ...]) -> tuple[Step, ...]:
    if fields.has("steps"):
        return tuple(Step.from_json(*item) for item in _rows(fields, "steps"))
    return tuple(Step("bill", period=period.label) for period in periods)


def _allocation(fields: Fields) -> dict[str, Decimal] | None:
    if not fields.has("allocation"):
        return None
    value = fields.any("allocation")
    if not isinstance(value, Mapping) or not value:
        raise Refusal("case.allocation", type(value).__name__, "weights by cost centre, or null")
    weights = cast("Mapping[str, object]", value)
    return {
        name: parse_decimal(weight, f"case.allocation.{name}") for name, weight in weights.items()
    }
