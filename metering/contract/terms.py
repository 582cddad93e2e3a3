"""Contract terms as data.

In: what both parties signed.
Out: a frozen, hashed record rich enough that `fee` needs nothing else from the contract.
Never here: arithmetic on savings beyond the marginal tiers; a default that decides money.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from metering.canonical import digest
from metering.contract.party import Party
from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields, check_zone, instant_text
from metering.money import check_currency, to_minor_units
from metering.refusal import Refusal

__all__ = [
    "BaselinePolicy",
    "Contract",
    "Party",
    "Recoupment",
    "Tier",
    "TierPart",
    "flat_share",
    "in_force",
    "marginal_fee",
    "tier_parts",
]

BOUNDS = ("lower_95", "point")
CAP_EXCESS = ("forfeit", "carry")
RECOUPMENT_KINDS = ("pool", "amortised")
POLICY_KINDS = ("fixed", "reset", "ratchet", "glide")
HOLDBACK_TAX = ("release", "issue")
TAX_CATEGORIES = ("S", "Z", "E", "AE", "O", "G", "K")
ROUNDING = "ROUND_HALF_UP"


@dataclass(frozen=True)
class Tier:
    """`rate` of the savings between the tier below and `upper` (None: without end)."""

    upper: Decimal | None
    rate: Decimal

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        upper = None if self.upper is None else to_text(self.upper)
        return {"upper": upper, "rate": to_text(self.rate)}


def flat_share(rate: object) -> tuple[Tier, ...]:
    """One share of all savings."""
    return (Tier(None, parse_decimal(rate, "contract.share")),)


@dataclass(frozen=True)
class TierPart:
    """The part of some savings that lies inside one tier, and the unrounded fee on it."""

    tier: Tier
    savings: Decimal
    fee: Decimal


def tier_parts(tiers: tuple[Tier, ...], savings: Decimal) -> tuple[TierPart, ...]:
    """Savings >= 0 cut at the tiers they reach: each rate applies only to the part inside it."""
    parts, below = [], Decimal(0)
    with exact():
        for tier in tiers:
            top = savings if tier.upper is None else min(savings, tier.upper)
            if top > below:
                parts.append(TierPart(tier, top - below, (top - below) * tier.rate))
                below = top
    return tuple(parts)


def marginal_fee(tiers: tuple[Tier, ...], savings: Decimal) -> Decimal:
    """Unrounded fee on `savings` >= 0: the sum over `tier_parts`."""
    with exact():
        return sum((part.fee for part in tier_parts(tiers, savings)), Decimal(0))


@dataclass(frozen=True)
class Recoupment:
    """How the cost of the kernel search is paid back.

    `pool`: on top of the share, `share` of the chargeable savings until `amount` is recovered.
    `amortised`: `amount` / `months` is taken off each month's savings before the share.
    """

    kind: str
    amount: Decimal
    share: Decimal | None = None
    months: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in RECOUPMENT_KINDS:
            raise Refusal("contract.recoupment.kind", repr(self.kind), "pool or amortised")
        amount = parse_decimal(self.amount, "contract.recoupment.amount")
        object.__setattr__(self, "amount", amount)
        if amount < 0:
            raise Refusal("contract.recoupment.amount", to_text(amount), "zero or more")
        if self.kind == "pool":
            if self.share is None or self.months is not None:
                raise Refusal("contract.recoupment.share", "nothing", "a share, and no months")
            _fraction("contract.recoupment.share", self.share)
        elif self.months is None or self.share is not None or self.months < 1:
            raise Refusal("contract.recoupment.months", self.months, "months, and no share")

    def to_json(self) -> dict[str, object]:
        """JSON object with only the fields of its kind."""
        common: dict[str, object] = {"kind": self.kind, "amount": to_text(self.amount)}
        if self.share is not None:
            return {**common, "share": to_text(self.share)}
        return {**common, "months": self.months}

    @classmethod
    def from_json(cls, value: object) -> Recoupment:
        """Inverse of `to_json`."""
        fields = Fields(value, "contract.recoupment")
        term = cls(
            kind=fields.text("kind"),
            amount=fields.decimal("amount"),
            share=fields.optional_decimal("share"),
            months=fields.integer("months") if fields.has("months") else None,
        )
        fields.finish()
        return term


@dataclass(frozen=True)
class BaselinePolicy:
    """What a re-measured vendor stack does to the baseline cost per unit.

    `fixed`: nothing; `reset`: the new cost counts from its date; `ratchet`: the lower of both;
    `glide`: `fraction` of the way from the old cost to the new one.
    """

    kind: str = "fixed"
    fraction: Decimal | None = None

    def __post_init__(self) -> None:
        if self.kind not in POLICY_KINDS:
            raise Refusal(
                "contract.baseline_policy.kind",
                repr(self.kind),
                "one of " + ", ".join(POLICY_KINDS),
            )
        if (self.fraction is not None) != (self.kind == "glide"):
            raise Refusal(
                "contract.baseline_policy.fraction", self.fraction, "a fraction with glide only"
            )
        if self.fraction is not None:
            _fraction("contract.baseline_policy.fraction", self.fraction)

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        if self.fraction is None:
            return {"kind": self.kind}
        return {"kind": self.kind, "fraction": to_text(self.fraction)}

    @classmethod
    def from_json(cls, value: object) -> BaselinePolicy:
        """Inverse of `to_json`."""
        fields = Fields(value, "contract.baseline_policy")
        policy = cls(fields.text("kind"), fields.optional_decimal("fraction"))
        fields.finish()
        return policy


@dataclass(frozen=True)
class Contract:
    """One version of a contract. Rates are fractions (0.20 is 20 %), amounts are per period.

    `cap` and `minimum` are fees per period, before holdback and tax. `minimum` never lifts a fee
    above the savings. `carry_forward` sets losses off against later savings. `holdback` of the
    fee stays unpaid until the audit; `holdback_tax` says whether its tax is due at release or at
    issue. `vat` applies in `tax_category` (EN 16931 code list: S standard, Z zero, E exempt ...).
    """

    contract_id: str
    version: int
    provider: Party
    customer: Party
    auditor: str
    currency: str
    zone: str
    valid_from: datetime
    tiers: tuple[Tier, ...]
    bound: str = "lower_95"
    cap: Decimal | None = None
    cap_excess: str = "forfeit"
    minimum: Decimal | None = None
    carry_forward: bool = True
    holdback: Decimal = Decimal(0)
    holdback_tax: str = "release"
    recoupment: Recoupment | None = None
    vat: Decimal = Decimal(0)
    tax_category: str = "S"
    tax_exemption_reason: str | None = None
    baseline_policy: BaselinePolicy = BaselinePolicy()
    payment_days: int = 30
    rounding: str = ROUNDING

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiers", tuple(self.tiers))
        for name in ("contract_id", "auditor"):
            if not getattr(self, name):
                raise Refusal(f"contract.{name}", "nothing", "text that is not empty")
        check_currency(self.currency, "contract.currency")
        check_zone(self.zone, "contract.zone")
        instant_text(self.valid_from)
        self._check_choices()
        self._check_rates()
        self._check_amounts()

    def _check_choices(self) -> None:
        choices = {
            "bound": BOUNDS,
            "cap_excess": CAP_EXCESS,
            "holdback_tax": HOLDBACK_TAX,
            "tax_category": TAX_CATEGORIES,
            "rounding": (ROUNDING,),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                got = repr(getattr(self, name))
                raise Refusal(f"contract.{name}", got, "one of " + ", ".join(allowed))
        for name in ("version", "payment_days"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise Refusal(f"contract.{name}", repr(value), "a whole number from 0")

    def _check_rates(self) -> None:
        if not self.tiers or self.tiers[-1].upper is not None:
            raise Refusal("contract.tiers", "a last tier with an end", "a last tier without one")
        below = Decimal(0)
        for index, tier in enumerate(self.tiers):
            _fraction(f"contract.tiers[{index}].rate", tier.rate)
            if tier.upper is not None:
                if tier.upper <= below:
                    raise Refusal(f"contract.tiers[{index}].upper", tier.upper, f"above {below}")
                below = tier.upper
        for name in ("holdback", "vat"):
            object.__setattr__(self, name, _fraction(f"contract.{name}", getattr(self, name)))
        highest = max(tier.rate for tier in self.tiers)
        if self.recoupment is not None and self.recoupment.share is not None:
            highest += self.recoupment.share
        if highest > 1:
            raise Refusal(
                "contract.recoupment.share", to_text(highest), "with the share, at most 1"
            )
        if self.vat and self.tax_category != "S":
            raise Refusal("contract.tax_category", self.tax_category, "S when vat is above 0")
        if self.tax_category in ("E", "AE", "O", "G", "K") and not self.tax_exemption_reason:
            raise Refusal("contract.tax_exemption_reason", "nothing", "why no tax is charged")

    def _check_amounts(self) -> None:
        for name in ("cap", "minimum"):
            value = getattr(self, name)
            if value is not None:
                amount = parse_decimal(value, f"contract.{name}")
                to_minor_units(amount, self.currency, f"contract.{name}")
                if amount < 0:
                    raise Refusal(f"contract.{name}", to_text(amount), "zero or more")
                object.__setattr__(self, name, amount)
        if self.cap is not None and self.minimum is not None and self.minimum > self.cap:
            raise Refusal("contract.minimum", to_text(self.minimum), "at most the cap")
        if self.recoupment is not None:
            amount = self.recoupment.amount
            to_minor_units(amount, self.currency, "contract.recoupment.amount")

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes: what the parties and the auditor sign."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`; every field is present."""
        return {
            "schema": "ignition.contract.v1",
            "contract_id": self.contract_id,
            "version": self.version,
            "provider": self.provider.to_json(),
            "customer": self.customer.to_json(),
            "auditor": self.auditor,
            "currency": self.currency,
            "zone": self.zone,
            "valid_from": instant_text(self.valid_from),
            "tiers": [tier.to_json() for tier in self.tiers],
            "bound": self.bound,
            "cap": None if self.cap is None else to_text(self.cap),
            "cap_excess": self.cap_excess,
            "minimum": None if self.minimum is None else to_text(self.minimum),
            "carry_forward": self.carry_forward,
            "holdback": to_text(self.holdback),
            "holdback_tax": self.holdback_tax,
            "recoupment": None if self.recoupment is None else self.recoupment.to_json(),
            "vat": to_text(self.vat),
            "tax_category": self.tax_category,
            "tax_exemption_reason": self.tax_exemption_reason,
            "baseline_policy": self.baseline_policy.to_json(),
            "payment_days": self.payment_days,
            "rounding": self.rounding,
        }

    @classmethod
    def from_json(cls, value: object) -> Contract:
        """Inverse of `to_json`. Every field that decides money must be there."""
        fields = Fields(value, "contract")
        fields.text("schema", ["ignition.contract.v1"])
        recoupment = fields.any("recoupment")
        contract = cls(
            contract_id=fields.text("contract_id"),
            version=fields.integer("version"),
            provider=Party.from_json(fields.any("provider"), "contract.provider"),
            customer=Party.from_json(fields.any("customer"), "contract.customer"),
            auditor=fields.text("auditor"),
            currency=fields.text("currency"),
            zone=fields.text("zone"),
            valid_from=fields.instant("valid_from"),
            tiers=tuple(_tier(item, i) for i, item in enumerate(fields.items("tiers"))),
            bound=fields.text("bound"),
            cap=_stated(fields, "cap"),
            cap_excess=fields.text("cap_excess"),
            minimum=_stated(fields, "minimum"),
            carry_forward=fields.boolean("carry_forward"),
            holdback=fields.decimal("holdback"),
            holdback_tax=fields.text("holdback_tax"),
            recoupment=None if recoupment is None else Recoupment.from_json(recoupment),
            vat=fields.decimal("vat"),
            tax_category=fields.text("tax_category"),
            tax_exemption_reason=fields.optional_text("tax_exemption_reason"),
            baseline_policy=BaselinePolicy.from_json(fields.any("baseline_policy")),
            payment_days=fields.integer("payment_days"),
            rounding=fields.text("rounding"),
        )
        fields.finish()
        return contract


def in_force(versions: Sequence[Contract], instant: datetime) -> Contract:
    """The version that holds at `instant`: the latest start, and of equal starts the later one."""
    started = [version for version in versions if version.valid_from <= instant]
    if not started:
        raise Refusal(
            "contract.valid_from", instant_text(instant), "a version that has started by then",
            "nothing is billed before the contract's start",
        )  # fmt: skip
    return max(started, key=lambda version: (version.valid_from, version.version))


def _stated(fields: Fields, name: str) -> Decimal | None:
    """An amount or an explicit null: leaving a cap out is not the same as having none."""
    return None if fields.any(name) is None else fields.decimal(name)


def _tier(value: object, index: int) -> Tier:
    fields = Fields(value, f"contract.tiers[{index}]")
    tier = Tier(_stated(fields, "upper"), fields.decimal("rate"))
    fields.finish()
    return tier


def _fraction(field: str, value: object) -> Decimal:
    rate = parse_decimal(value, field)
    if not 0 <= rate <= 1:
        raise Refusal(field, to_text(rate), "a fraction from 0 to 1", "0.20 means 20 %")
    return rate
