"""Several models of one mix: their claims judged as one family, and the uplift of the whole.

In: what each evidence folder came to, and the traffic of each model. Out: a
:class:`RecomputedFamily`. A model whose plan makes no claim stands in the mix at uplift 1.0 and is
no claim: it takes nothing from the others, and its time counts in full. Whether a model has a claim
is in its signed plan, so a claim that failed cannot be turned into none afterwards.
Never here: a run, a figure that no evidence gave, a mean of ratios.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from metering.energy import NOT_MEASURED
from metering.evidence import NO_CANDIDATE, Recomputed, Unclaimed
from metering.uplift.estimate import fraction_text
from metering.uplift.family import Claim, Traffic, family, mix_uplift

NOT_KEPT = "not kept: goes on at its baseline"


@dataclass(frozen=True)
class Member:
    """One model of the mix. ``uplift`` is what counts for it: a kept claim's bound, or 0.

    ``seconds_before`` and ``seconds_after`` are samples over rate, None without traffic.
    """

    name: str
    samples_per_second: str
    uplift: float
    note: str
    energy: str
    seconds_before: float | None
    seconds_after: float | None

    def to_dict(self) -> dict[str, Any]:
        seconds = {"before": self.seconds_before, "after": self.seconds_after}
        return {
            "name": self.name,
            "baseline_samples_per_second": self.samples_per_second,
            "uplift": fraction_text(self.uplift, down=True),
            "factor": fraction_text(1 + self.uplift, down=True),
            "note": self.note,
            "energy": self.energy,
            **{
                f"seconds_{when}": None if value is None else fraction_text(value)
                for when, value in seconds.items()
            },
        }


@dataclass(frozen=True)
class RecomputedFamily:
    """Several models together. ``uplift`` is that of the mix; None without traffic."""

    claims: tuple[Claim, ...]
    kept: tuple[str, ...]
    reasons: Mapping[str, tuple[str, ...]]
    members: tuple[Member, ...]
    uplift: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "claims": [claim.to_dict() for claim in self.claims],
            "kept": list(self.kept),
            "reasons": {name: list(found) for name, found in self.reasons.items()},
            "members": [member.to_dict() for member in self.members],
            "mix_uplift": None if self.uplift is None else fraction_text(self.uplift, down=True),
        }


def recompute_family(
    members: Mapping[str, Recomputed | Unclaimed], traffic: Sequence[int] | None = None
) -> RecomputedFamily:
    """Judge claims as one family: Holm decides, bounds at 5 % / k, and each one's own guards.

    ``traffic`` is samples served per member, in order. k counts the claims that were planned.
    Raises ValueError with too few pairs.
    """
    claimed = {name: found for name, found in members.items() if isinstance(found, Recomputed)}
    logs = {name: found.log_ratios for name, found in claimed.items() if found.log_ratios}
    effects = {name: found.minimum_effect for name, found in claimed.items()}
    claims = family(logs, effects, planned=len(claimed)) if logs else ()
    reasons = {
        name: found.decision.reasons if isinstance(found, Recomputed) else (NO_CANDIDATE,)
        for name, found in members.items()
    }
    for claim in claims:
        reasons[claim.name] += _against(claim, claimed[claim.name], len(claimed))
    kept = tuple(claim.name for claim in claims if not reasons[claim.name])
    bounds = {claim.name: claim.bound for claim in claims if claim.name in kept}
    uplifts = {name: bounds.get(name, 0.0) for name in members}
    if traffic is None:
        parts, mix = None, None
    else:
        parts = {
            name: Traffic(samples, found.baseline_samples_per_second)
            for (name, found), samples in zip(members.items(), traffic, strict=True)
        }
        mix = mix_uplift(uplifts, parts)
    rows = tuple(_member(name, found, uplifts[name], parts) for name, found in members.items())
    return RecomputedFamily(claims, kept, reasons, rows, mix)


def _against(claim: Claim, found: Recomputed, size: int) -> tuple[str, ...]:
    """What the family says against a claim that its own evidence may allow."""
    aa = found.aa
    if not claim.billable:
        return (
            f"no claim among {size}: bound {claim.bound:.2%} at 5 % / {size}, "
            f"Holm p {claim.adjusted_p:.4f}, minimum effect {claim.minimum_effect:.2%}",
        )
    if aa.passed and not aa.hi - aa.lo < claim.bound / 2:
        return (
            f"host not measurable: A/A interval {aa.hi - aa.lo:.2%} wide, wanted less than "
            f"half the claim of {claim.bound:.2%}",
        )
    return ()


def _member(
    name: str,
    found: Recomputed | Unclaimed,
    uplift: float,
    traffic: Mapping[str, Traffic] | None,
) -> Member:
    note, energy = NO_CANDIDATE, NOT_MEASURED
    if isinstance(found, Recomputed):
        energy = found.energy.words
        note = "kept" if uplift else NOT_KEPT
    before = None
    if traffic is not None:
        before = traffic[name].samples / float(found.baseline_samples_per_second)
    return Member(
        name=name,
        samples_per_second=str(found.baseline_samples_per_second),
        uplift=uplift,
        note=note,
        energy=energy,
        seconds_before=before,
        seconds_after=None if before is None else before / (1 + uplift),
    )
