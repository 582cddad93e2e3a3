"""The A/A gate and the keep rule: when a measured uplift may be billed.

In: paired runs and estimates. Out: decisions with their reasons. The same stack in both arms must
show no difference, and show it sharply enough for the claim; a host that cannot do that is not
measurable, whatever the real measurement says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from metering.uplift.accuracy import Verdict
from metering.uplift.estimate import UpliftEstimate, fraction_text
from metering.uplift.pairs import PairedRuns


@dataclass(frozen=True)
class AaGate:
    """The A/A interval, as ratios minus one. ``claim`` is the effect it had to resolve."""

    lo: float
    hi: float
    claim: float
    passed: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "lo": fraction_text(self.lo, down=True),
            "hi": fraction_text(self.hi),
            "claim": fraction_text(self.claim, down=True),
            "passed": self.passed,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AaGate:
        return cls(
            lo=float(data["lo"]),
            hi=float(data["hi"]),
            claim=float(data["claim"]),
            passed=bool(data["passed"]),
            reason=str(data["reason"]),
        )


class Guard(Protocol):
    """A further condition, judged elsewhere: see ``guards`` and ``cache``."""

    @property
    def passed(self) -> bool: ...

    @property
    def reason(self) -> str: ...


@dataclass(frozen=True)
class Decision:
    """Whether the uplift is kept (may be billed), and every reason when it is not."""

    kept: bool
    reasons: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "reasons": list(self.reasons)}


def aa_gate(paired: PairedRuns, claim: float | None, minimum_effect: float) -> AaGate:
    """Gate on an A/A measurement.

    Passes when every run is VALID, both arms are the same system, the 95 % interval holds 0 and is
    narrower than half the claim. The claim is what is to be billed, the uplift's lower bound; None,
    or less than ``minimum_effect``, stands for ``minimum_effect``, the smallest claim there is.
    """
    effect = max(claim or 0.0, minimum_effect)
    if paired.base != paired.other:
        return AaGate(0.0, 0.0, effect, False, "the two arms of the A/A test are not the same")
    if not paired.complete:
        return AaGate(0.0, 0.0, effect, False, "; ".join(paired.faults))
    found = paired.estimate()
    width = found.hi - found.lo
    reason = ""
    if not found.lo <= 0.0 <= found.hi:
        reason = f"host not measurable: A/A interval {_span(found)} does not hold 0"
    elif not width < effect / 2:
        reason = (
            f"host not measurable: A/A interval {_span(found)} is {width:.2%} wide, wanted less "
            f"than half the claim of {effect:.2%}"
        )
    return AaGate(found.lo, found.hi, effect, not reason, reason)


def decide(
    gate: AaGate,
    paired: PairedRuns,
    accuracy: Verdict,
    minimum_effect: float,
    timed: Verdict | None = None,
    guards: Sequence[Guard] = (),
) -> Decision:
    """The keep rule: gate passed, all runs VALID, accuracy passed, bound above the minimum.

    ``timed`` is the accuracy of outputs sampled while the runs were timed, where there are any.
    Every guard given must have passed.
    """
    reasons = []
    if not gate.passed:
        reasons.append(gate.reason)
    if not accuracy.passed:
        reasons.append(f"accuracy: {accuracy.words}, wanted {accuracy.wanted}")
    if timed is not None and not timed.passed:
        reasons.append(
            f"outputs of timed runs: {timed.words} over {timed.samples} samples, wanted "
            f"{timed.wanted}: the system answers otherwise when timed"
        )
    reasons += [guard.reason for guard in guards if not guard.passed and paired.complete]
    if not paired.complete:
        reasons += paired.faults
    else:
        bound = paired.estimate().lower_95
        if not bound > minimum_effect:
            reasons.append(
                f"no claim: the lower bound {bound:.2%} is not above the minimum effect of "
                f"{minimum_effect:.2%}"
            )
    return Decision(not reasons, tuple(reasons))


def _span(found: UpliftEstimate) -> str:
    return f"[{found.lo:.2%}, {found.hi:.2%}]"
