"""What a page shows of an examination: its figures, each open to how it is made, and its rules.

In: the engine's examination, frozen or as it stands now. Out: figures and rows in words. No rule
is applied here; the engine's own findings are only laid out.
"""

from dataclasses import dataclass
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from metering.savings import Sufficiency
from portal.billing.models import BillingPeriod, SavingsRecord
from portal.billing.savings import frozen_sufficiency
from portal.billing.usage import period_of
from portal.runs.models import Measurement
from portal.web.figures import Figure
from portal.web.formats import instant, number


@dataclass(frozen=True)
class RuleRow:
    """One rule that does not hold. `state`: blocks, overridden, or flagged (a person looks)."""

    name: str
    found: str
    state: str
    auditor: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Shown:
    """One examined line. `gate`: why it bills nothing, or empty."""

    title: str
    figures: tuple[Figure, ...]
    rules: tuple[RuleRow, ...]
    gate: str


def shown_of(record: SavingsRecord) -> tuple[Shown, ...]:
    """What was frozen when savings were computed; nothing under a method without the rules."""
    api = f"/api/v1/savings/{record.pk}"
    return tuple(
        shown(item, record.period, record.measurement, api=api)
        for item in frozen_sufficiency(record)
    )


def shown(
    item: Sufficiency, period: BillingPeriod, measurement: Measurement, *, api: str = ""
) -> Shown:
    """An examination for a page; `api` is where it is stored, empty while nothing is frozen."""
    return Shown(
        title=f"{item.model} on {item.system}",
        figures=_figures(item, period, measurement, api),
        rules=rule_rows(item),
        gate=item.verdict.gate or "",
    )


def rule_rows(item: Sufficiency) -> tuple[RuleRow, ...]:
    """The rules that do not hold, blocking ones first."""
    by_name = {override.name: override for override in item.overrides}
    rows = []
    for rule in item.disqualifications:
        override = by_name.get(rule.name)
        state = "blocks" if rule.blocks else "flagged"
        rows.append(
            RuleRow(
                name=rule.name,
                found=rule.description,
                state="overridden" if override else state,
                auditor=override.auditor if override else "",
                reason=override.reason if override else "",
            )
        )
    return tuple(rows)


def _figures(
    item: Sufficiency, period: BillingPeriod, measurement: Measurement, api: str
) -> tuple[Figure, ...]:
    evidence = item.evidence
    method = str(measurement.contract_version.plan["method_version"])
    runs = tuple(str(run) for run in measurement.baseline.document.get("runs", ()))
    days = sorted(set(evidence.run_days))
    first = period_of(period).local_start.date()
    after = period.ends_at.astimezone(ZoneInfo(period.zone)).date()
    of_baseline = api or f"/api/v1/baselines/{measurement.baseline_id}"
    asked = {"start": first, "end": after, "zone": period.zone}
    of_usage = api or f"/api/v1/usage/volumes?{urlencode(asked)}"
    zone = ("Zone of the contract", evidence.zones[0])
    return (
        Figure("Baseline runs", number(len(evidence.run_days)), "valid",
               formula="Runs the frozen baseline's rate was made of that LoadGen calls VALID, and "
               "those of its re-measurements in the registry; at least 5 are needed.",
               inputs=(("Re-measurements", ", ".join(d[:12] for d in evidence.remeasured) or
                        "none"),),
               runs=runs, method_version=method, api=of_baseline),
        Figure("Days of these runs", number(len(days)),
               formula="Different local days of these runs, by the time in LoadGen's own logs; at "
               "least 3 are needed.",
               inputs=(zone, ("Days", ", ".join(day.isoformat() for day in days) or "none")),
               runs=runs, method_version=method, api=of_baseline),
        Figure("Metered hours", number(evidence.metered_hours),
               f"of {number(evidence.period_hours)}",
               formula="Hours of the period with an accepted event, a reported zero included, "
               "counted from its start; missing hours are not zero and are not filled in. At "
               "least 90 % are needed.",
               inputs=(zone, ("Period", f"{instant(period.starts_at)} to "
                                  f"{instant(period.ends_at)}, end not included")),
               method_version=method, api=of_usage),
        Figure("Undecided conflicts", number(evidence.conflicts),
               formula="Keys (source and id) that came with several contents and count for nobody "
               "until a person decides; none may be left.",
               method_version=method, api=of_usage),
    )  # fmt: skip
