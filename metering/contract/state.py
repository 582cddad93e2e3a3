"""What goes into `fee` besides the contract: verified savings, and what earlier periods left.

In: savings lines an auditor approved; the state the previous period returned.
Out: frozen records with strict JSON.
Never here: savings without the digest of their evidence; a state that is edited in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

from metering.canonical import digest
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.money import check_currency
from metering.plan import Period
from metering.refusal import Refusal

__all__ = ["LedgerState", "VerifiedLine", "VerifiedSavings"]


@dataclass(frozen=True)
class LedgerState:
    """What earlier periods of one contract left behind; all amounts zero or more.

    `losses`: savings below zero not yet set off. `recouped`: search cost recovered so far from
    the pool. `instalments`: months of an amortised search already taken. `deferred`: fee above
    the cap carried into later periods. `settled_through`: label of the last period in it.
    `recorded`: what searches have really cost so far, above which nothing is recouped; None: as
    much as the contract's pool.
    """

    losses: Decimal = Decimal(0)
    recouped: Decimal = Decimal(0)
    instalments: int = 0
    deferred: Decimal = Decimal(0)
    settled_through: str | None = None
    recorded: Decimal | None = None

    def __post_init__(self) -> None:
        for name in ("losses", "recouped", "deferred", "recorded"):
            if name == "recorded" and self.recorded is None:
                continue
            value = parse_decimal(getattr(self, name), f"state.{name}")
            if value < 0:
                raise Refusal(f"state.{name}", to_text(value), "zero or more")
            object.__setattr__(self, name, value)
        if self.instalments < 0:
            raise Refusal("state.instalments", self.instalments, "zero or more")

    def replaced(self, taken: LedgerState, instead: LedgerState) -> LedgerState:
        """This state as it is when an earlier period ends in `instead` and not in `taken`.

        What an audit or a credit note changes in a settled period is carried to where the
        contract stands now: losses it adds count against later savings, search cost it gives
        back returns to the pool. No amount falls below zero.
        """
        with exact():
            amounts = {
                name: max(
                    Decimal(0), getattr(self, name) + getattr(instead, name) - getattr(taken, name)
                )
                for name in ("losses", "recouped", "deferred")
            }
        latest = self.settled_through == taken.settled_through
        return LedgerState(
            **amounts,
            instalments=max(0, self.instalments + instead.instalments - taken.instalments),
            settled_through=instead.settled_through if latest else self.settled_through,
            recorded=self.recorded,
        )

    def to_json(self) -> dict[str, object]:
        """JSON object; `recorded` only where it is known."""
        known = {} if self.recorded is None else {"recorded": to_text(self.recorded)}
        return {
            "losses": to_text(self.losses),
            "recouped": to_text(self.recouped),
            "instalments": self.instalments,
            "deferred": to_text(self.deferred),
            "settled_through": self.settled_through,
            **known,
        }

    @classmethod
    def from_json(cls, value: object) -> LedgerState:
        """Inverse of `to_json`."""
        fields = Fields(value, "state")
        state = cls(
            losses=fields.decimal("losses"),
            recouped=fields.decimal("recouped"),
            instalments=fields.integer("instalments"),
            deferred=fields.decimal("deferred"),
            settled_through=fields.optional_text("settled_through"),
            recorded=fields.optional_decimal("recorded"),
        )
        fields.finish()
        return state


@dataclass(frozen=True)
class VerifiedLine:
    """Savings of one model on one system in one period, unrounded, in the contract's currency.

    `point` is the estimate, `bound` the same at the one-sided 95 % lower bound, `counterfactual`
    what the volume would have cost on the baseline (None when not stated: then nothing is
    capped). `gate` is the reason why the line may not bill, or None. `segment` tells two lines of
    one model apart, such as before and after a baseline reset inside the period. `corrects` is
    the label of the earlier, invoiced period whose late usage this is, or "".
    """

    model: str
    system: str
    point: Decimal
    bound: Decimal
    counterfactual: Decimal | None = None
    gate: str | None = None
    segment: str = ""
    baseline_id: str = ""
    uplift_id: str = ""
    volume: int | None = None
    corrects: str = ""

    def __post_init__(self) -> None:
        if not self.model or not self.system:
            raise Refusal("verified.line", "a line without model or system", "both named")
        for name in ("point", "bound"):
            object.__setattr__(self, name, parse_decimal(getattr(self, name), f"verified.{name}"))
        if self.bound > self.point:
            raise Refusal("verified.bound", to_text(self.bound), "at most the point estimate")
        if self.counterfactual is not None:
            cost = parse_decimal(self.counterfactual, "verified.counterfactual")
            if cost < 0:
                raise Refusal("verified.counterfactual", to_text(cost), "zero or more")
            object.__setattr__(self, "counterfactual", cost)

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes the line unique in its period."""
        return (self.model, self.system, self.segment)

    def to_json(self) -> dict[str, object]:
        """JSON object; `corrects` only on a correction."""
        correction = {"corrects": self.corrects} if self.corrects else {}
        return {
            **correction,
            "model": self.model,
            "system": self.system,
            "segment": self.segment,
            "point": to_text(self.point),
            "bound": to_text(self.bound),
            "counterfactual": None if self.counterfactual is None else to_text(self.counterfactual),
            "gate": self.gate,
            "baseline_id": self.baseline_id,
            "uplift_id": self.uplift_id,
            "volume": self.volume,
        }

    @classmethod
    def from_json(cls, value: object, where: str = "verified.line") -> VerifiedLine:
        """Inverse of `to_json`; segment, ids, gate and volume may be left out."""
        fields = Fields(value, where)
        line = cls(
            model=fields.text("model"),
            system=fields.text("system"),
            point=fields.decimal("point"),
            bound=fields.decimal("bound"),
            counterfactual=fields.optional_decimal("counterfactual"),
            gate=fields.optional_text("gate"),
            segment=_maybe_empty(fields, "segment"),
            baseline_id=_maybe_empty(fields, "baseline_id"),
            uplift_id=_maybe_empty(fields, "uplift_id"),
            volume=fields.integer("volume") if fields.has("volume") else None,
            corrects=_maybe_empty(fields, "corrects"),
        )
        fields.finish()
        return line


@dataclass(frozen=True)
class VerifiedSavings:
    """All approved savings lines of one contract in one period; the order never matters."""

    period: Period
    currency: str
    lines: tuple[VerifiedLine, ...]
    evidence_digest: str

    def __post_init__(self) -> None:
        check_currency(self.currency, "verified.currency")
        if not self.evidence_digest:
            raise Refusal("verified.evidence_digest", "nothing", "the digest of the evidence")
        ordered = tuple(sorted(self.lines, key=lambda line: line.key))
        for first, second in pairwise(ordered):
            if first.key == second.key:
                raise Refusal(
                    "verified.lines", " / ".join(first.key), "one line per model and system",
                    "measure overlapping kernels together, or name the segments",
                )  # fmt: skip
        object.__setattr__(self, "lines", ordered)

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, object]:
        """JSON object, lines in key order."""
        return {
            "schema": "ignition.verified.v1",
            "period": self.period.to_json(),
            "currency": self.currency,
            "lines": [line.to_json() for line in self.lines],
            "evidence_digest": self.evidence_digest,
        }

    @classmethod
    def from_json(cls, value: object) -> VerifiedSavings:
        """Inverse of `to_json`."""
        fields = Fields(value, "verified")
        fields.text("schema", ["ignition.verified.v1"])
        savings = cls(
            period=Period.from_json(fields.any("period")),
            currency=fields.text("currency"),
            lines=tuple(
                VerifiedLine.from_json(item, f"verified.lines[{index}]")
                for index, item in enumerate(fields.items("lines"))
            ),
            evidence_digest=fields.text("evidence_digest"),
        )
        fields.finish()
        return savings


def _maybe_empty(fields: Fields, name: str) -> str:
    return fields.text(name) if fields.has(name) and fields.any(name) != "" else ""
