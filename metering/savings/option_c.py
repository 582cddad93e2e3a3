"""Option C: the whole bill regressed on work volume, as an alarm beside option B. It never bills.

In: bills and volumes of equal spans, before and after (a baseline and a reporting series).
Out: savings by regression, their fractional savings uncertainty under a pinned method id, and
whether they agree with what option B says.
Never here: an amount that reaches an invoice: regression is floating point, and its figures leave
as decimal text of twelve significant digits.

    U = a + b V                               least squares over the P baseline spans, c = 2
    S = sum(a + b V_q - U_q), F = S / sum(a + b V_q)          over the Q reporting spans
    CV = sqrt(SSE / (P - c)) / mean(U)                         CalTRACK 4.3.2.2
    P' = P (1 - rho) / (1 + rho)                               rho: lag-1 autocorrelation
    FSU = t (a M^2 + b M + d) CV sqrt(P / P' (1 + 2 / P') / Q) / F        CalTRACK 4.3.2.4
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from metering.refusal import Refusal
from metering.savings.line import measured_text

__all__ = ["FSU_METHODS", "OptionC", "compare", "fractional_savings_uncertainty", "option_gate"]

PARAMETERS = 2
COEFFICIENTS = {
    "daily": (-0.00024, 0.03535, 1.00286),
    "billing": (-0.00022, 0.03306, 0.94054),
}
FSU_METHODS = ("caltrack-2-cvrmse", "caltrack-2-cvrmse-autocorrelated")
"""Same formula, two published readings of CV(RMSE): over P - c, or over P' - c. The results differ
by a percent or two, so the contract pins one and every report prints it."""


@dataclass(frozen=True)
class OptionC:
    """Savings by regression in the bills' currency; decimal text, None where not defined.

    `uncertainty` is the two-sided half width of `savings` at `confidence`; `fsu` the same as a
    fraction of the savings. `agrees` is False when option B lies outside both intervals.
    """

    method: str
    confidence: str
    savings: str
    uncertainty: str
    fsu: str | None
    option_b: str
    agrees: bool
    reasons: tuple[str, ...]


def option_gate(option: str) -> str | None:
    """Why savings of an IPMVP option never bill; None for option B, the only one that does."""
    reasons = {
        "A": "option A stipulates what option B measures: printed, never billed",
        "C": "option C is the alarm beside option B: never billed",
        "D": "option D simulates what was never run: billed only after a measured A/B",
    }
    if option != "B" and option not in reasons:
        raise Refusal("option", repr(option), "A, B, C or D")
    return reasons.get(option)


def fractional_savings_uncertainty(
    *,
    spans: int,
    reporting_spans: int,
    months: int,
    cv: float,
    autocorrelation: float,
    fraction: float,
    confidence: float = 0.90,
    interval: str = "daily",
) -> float | None:
    """FSU of CalTRACK 4.3.2.4, two-sided; None when the savings fraction is not above zero.

    `months` are those of the reporting period (taking the baseline's makes six months look 15 %
    worse than they are). Hand value: P 365, Q 365, M 12, CV 0.10, rho 0.3, F 0.20, 90 %: 0.0823146.
    """
    if fraction <= 0:
        return None
    effective = _effective(spans, autocorrelation)
    half = _half_width(
        spans, reporting_spans, months, cv, effective, confidence=confidence, interval=interval
    )
    return half / fraction


def _effective(spans: int, autocorrelation: float) -> float:
    if spans <= PARAMETERS:
        raise Refusal("spans", spans, f"more than {PARAMETERS} baseline spans")
    if not -1 < autocorrelation < 1:
        raise Refusal("autocorrelation", autocorrelation, "a number between -1 and 1")
    return spans * (1 - autocorrelation) / (1 + autocorrelation)


def _half_width(
    spans: int,
    reporting_spans: int,
    months: int,
    cv: float,
    effective: float,
    *,
    confidence: float,
    interval: str,
) -> float:
    """The numerator of the FSU: half width as a fraction of the modelled use."""
    from scipy.special import stdtrit  # slow to import, needed by the alarm only

    if interval not in COEFFICIENTS:
        raise Refusal("interval", repr(interval), "one of " + ", ".join(COEFFICIENTS))
    if not 0 < confidence < 1 or months < 1 or reporting_spans < 1:
        raise Refusal("confidence", confidence, "a fraction, at least one month and one span")
    a, b, d = COEFFICIENTS[interval]
    quantile = float(stdtrit(spans - PARAMETERS, (1 + confidence) / 2))
    polynomial = a * months**2 + b * months + d
    noise = math.sqrt(spans / effective * (1 + 2 / effective) / reporting_spans)
    return quantile * polynomial * cv * noise


def compare(
    *,
    bills: Sequence[Decimal],
    volumes: Sequence[Decimal],
    reporting_bills: Sequence[Decimal],
    reporting_volumes: Sequence[Decimal],
    months: int,
    option_b: Decimal,
    option_b_uncertainty: Decimal = Decimal(0),
    method: str,
    confidence: float = 0.90,
    interval: str = "daily",
) -> OptionC:
    """Savings by regression of the bill, and whether option B agrees with them.

    All series are in one currency and over spans of one length; a span without data is left out
    of both its series, never filled with zero.
    """
    if method not in FSU_METHODS:
        raise Refusal("method", repr(method), "one of " + ", ".join(FSU_METHODS))
    use, work = _series("bills", bills, volumes)
    used, worked = _series("reporting_bills", reporting_bills, reporting_volumes)
    if len(use) <= PARAMETERS or float(np.ptp(work)) == 0:
        raise Refusal("volumes", len(use), "at least three spans of different volume")
    design = np.column_stack([np.ones_like(work), work])
    solution = np.linalg.lstsq(design, use, rcond=None)[0]
    residuals = use - design @ solution
    rho = _lag_one(residuals)
    effective = _effective(len(use), rho)
    freedom = (len(use) if method == FSU_METHODS[0] else effective) - PARAMETERS
    if freedom <= 0:
        raise Refusal("bills", len(use), "more spans: their errors follow each other too closely")
    cv = math.sqrt(float(residuals @ residuals) / freedom) / float(np.mean(use))
    modelled = float(np.sum(solution[0] + solution[1] * worked))
    savings = modelled - float(np.sum(used))
    half = modelled * _half_width(
        len(use), len(used), months, cv, effective, confidence=confidence, interval=interval
    )
    apart = abs(float(option_b) - savings)
    allowed = half + float(option_b_uncertainty)
    agrees = apart <= allowed
    reasons = (
        f"{'agrees' if agrees else 'ALARM'}: option B {option_b}, option C {savings:.2f}, apart"
        f" {apart:.2f}, both uncertainties {allowed:.2f}",
    )
    return OptionC(
        method=method,
        confidence=measured_text(confidence),
        savings=measured_text(savings),
        uncertainty=measured_text(half),
        fsu=measured_text(half / savings) if savings > 0 else None,
        option_b=str(option_b),
        agrees=agrees,
        reasons=reasons,
    )


def _series(
    name: str, bills: Sequence[Decimal], volumes: Sequence[Decimal]
) -> tuple[np.ndarray, np.ndarray]:
    if not bills or len(bills) != len(volumes):
        raise Refusal(name, f"{len(bills)} bills, {len(volumes)} volumes", "one volume a bill")
    if min(bills) < 0 or min(volumes) < 0:
        raise Refusal(name, min(*bills, *volumes), "zero or more", "a negative bill is an incident")
    return np.array([float(b) for b in bills]), np.array([float(v) for v in volumes])


def _lag_one(residuals: np.ndarray) -> float:
    """Lag-1 autocorrelation; 0 when the regression leaves nothing over."""
    before, after = residuals[:-1], residuals[1:]
    spread = math.sqrt(float(before @ before) * float(after @ after))
    return float(before @ after) / spread if spread > 1e-12 else 0.0
