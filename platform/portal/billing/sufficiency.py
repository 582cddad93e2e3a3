"""Whether there is enough evidence to bill a period on: read from what is stored.

In: a period and a measurement of its contract. Out: the engine's examination, with the auditor's
overrides of the rules that do not hold. No rule is here: `metering.savings.sufficiency` has them.
When savings are computed, the hours come from the lines themselves, which the totals are made of;
before that, for a page, from one GROUP BY in the database, which comes to the same.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, timedelta
from typing import Any

from django.db.models import Count, DateTimeField, ExpressionWrapper, F, QuerySet, Sum
from django.db.models.functions import TruncHour

from metering.contract import Contract
from metering.loadgen.days import run_days
from metering.loadgen.verify import EvidenceError
from metering.plan import Period
from metering.savings import Override, Sufficiency, demands_sufficiency, evidence_of
from metering.usage import Coverage, metered, read_events
from portal.audits.models import SufficiencyOverride
from portal.billing.models import BillingPeriod, UsageEvent
from portal.billing.savings import BillingError
from portal.billing.usage import period_of
from portal.billing.usage_keys import by_source, contested_in, parked_under, period_decisions
from portal.contracts.models import ContractVersion
from portal.runs.models import BaselineEntry, Measurement
from portal.workspace import absolute, sha256_file

RUNS = "baseline/runs"
_HOUR = timedelta(hours=1)


def is_examined(version: ContractVersion) -> bool:
    """Whether the method this contract version was signed under lets sufficiency decide."""
    return demands_sufficiency(str(version.plan["method_version"]))


def pair_of(version: ContractVersion) -> tuple[str, str]:
    """Model and system that a contract version is about."""
    return version.mix.model.name, version.system.name


def examine_coverage(measurement: Measurement, coverage: Coverage) -> Sufficiency:
    """The examination of a measurement in the period that `coverage` is of, without overrides."""
    version = measurement.contract_version
    contract = Contract.from_json(version.contract)
    again = remeasured(version)
    evidence = evidence_of(
        coverage,
        [
            *_days(measurement.evidence_path, _runs(measurement.baseline.document), contract.zone),
            *(
                day
                for entry in again
                for day in _days(entry.evidence_path, _runs(_document(entry)), contract.zone)
            ),
        ],
        contract=contract,
        meter_zone=str(version.plan["zone"]),
        remeasured=[entry.baseline_sha256 for entry in again],
    )
    return Sufficiency(coverage.model, coverage.system, evidence)


def remeasured(version: ContractVersion) -> list[BaselineEntry]:
    """The registry's re-measurements of a contract version's baseline, oldest first."""
    rows = BaselineEntry.objects.filter(contract_version=version, number__gte=1)
    return list(rows.order_by("number"))


def _runs(document: Mapping[str, Any]) -> Sequence[str]:
    """Ids of the runs that a frozen baseline's rate was made of."""
    runs: Sequence[str] = document.get("runs", ())
    return runs


def _document(entry: BaselineEntry) -> Mapping[str, Any]:
    """The frozen record of a re-measurement, as it was entered; BillingError when it is not."""
    path = absolute(entry.evidence_path) / "baseline" / "baseline.json"
    if not path.is_file() or sha256_file(path) != entry.baseline_sha256:
        raise BillingError(f"{entry}: {path.name} is not the one entered; restore its evidence")
    document: Mapping[str, Any] = json.loads(path.read_bytes())
    return document


def _days(evidence_path: str, run_ids: Sequence[str], zone: str) -> tuple[date, ...]:
    """Local days of the valid runs among `run_ids`, from their logs.

    BillingError when a log cannot be read: without it nobody could check the days.
    """
    try:
        return run_days(absolute(evidence_path) / RUNS, run_ids, zone)
    except EvidenceError as error:
        raise BillingError(f"baseline runs: {error}; restore its evidence") from error


def with_overrides(found: Sufficiency, stated: Iterable[Override]) -> Sufficiency:
    """The examination with those of the auditor's overrides that a rule still needs.

    Data that came late may have met a rule since: its override is then not printed as if needed.
    """
    needed = {item.name for item in found.disqualifications if item.blocks}
    return Sufficiency(
        found.model,
        found.system,
        found.evidence,
        tuple(override for override in stated if override.name in needed),
    )


def overrides_of(period: BillingPeriod, measurement: Measurement) -> tuple[Override, ...]:
    """The auditor's overrides, in the order of the rules' names."""
    rows = SufficiencyOverride.objects.filter(period=period, measurement=measurement)
    return tuple(Override(row.rule, row.stated_by, row.reason) for row in rows.order_by("rule"))


def preview(period: BillingPeriod, measurement: Measurement) -> Sufficiency:
    """The examination as it stands now, with the overrides stated so far, from the database."""
    found = examine_coverage(measurement, stored_coverage(period, measurement.contract_version))
    return with_overrides(found, overrides_of(period, measurement))


def stored_coverage(period: BillingPeriod, version: ContractVersion) -> Coverage:
    """How much of a period the stored events cover: one GROUP BY over the period's events.

    Linear in them, by the index on organisation and time. Events that a key or a clock speaks
    against are few: these alone are read and left to the engine, as it settles them in totals.
    """
    model, system = pair_of(version)
    month = period_of(period)
    not_before = Contract.from_json(period.contract_version.contract).valid_from
    inside = UsageEvent.objects.filter(
        organisation=period.organisation,
        time__gte=period.starts_at,
        time__lt=period.ends_at,
    )
    odd, lines = _odd_events(period, inside)
    decisions = period_decisions(period)
    _, (settled,) = metered(
        read_events(lines),
        month,
        month.zone,
        [(model, system)],
        known={pair_of(period.contract_version)},
        decisions={decision.key: decision for decision in decisions},
        not_before=not_before,
    )
    by_hour = Counter(settled.by_hour)
    events = Counter(dict.fromkeys(settled.by_hour, 1))
    own = inside.filter(model=model, system=system, time__gte=not_before)
    if (model, system) == pair_of(period.contract_version):
        for hour, count, samples in _hourly(own, month):
            by_hour[hour] += samples
            events[hour] += count
        for event in odd:
            if (event.model, event.system) == (model, system) and event.time >= not_before:
                hour = (event.time - month.start) // _HOUR
                by_hour[hour] -= event.samples
                events[hour] -= 1
    filled = {hour: by_hour[hour] for hour in sorted(events) if events[hour] > 0}
    return Coverage(model, system, month, filled, settled.conflicts)


def _hourly(events: QuerySet[UsageEvent], month: Period) -> list[tuple[int, int, int]]:
    """(number of the hour, events, samples), hours counted from the period's start."""
    # A period of a zone with half hours does not begin on a whole hour of UTC.
    shift = month.start - month.start.replace(minute=0, second=0, microsecond=0)
    moment = ExpressionWrapper(F("time") - shift, output_field=DateTimeField()) if shift else "time"
    rows = (
        events.annotate(hour=TruncHour(moment, tzinfo=UTC))
        .values("hour")
        .annotate(count=Count("pk"), samples_in_it=Sum("samples"))
        .order_by("hour")
        .values_list("hour", "count", "samples_in_it")
    )
    return [
        ((hour + shift - month.start) // _HOUR, count, int(samples))
        for hour, count, samples in rows
    ]


def _odd_events(
    period: BillingPeriod, inside: QuerySet[UsageEvent]
) -> tuple[list[UsageEvent], list[str]]:
    """Stored events under a disputed key or dated after they came, and every line about them."""
    organisation = period.organisation
    odd = {event.pk: event for event in inside.filter(received_at__lt=F("time"))}
    lines: list[str] = []
    for source, ids in by_source(contested_in(period)):
        keys = {"source": source, "event_id__in": ids}
        stored = UsageEvent.objects.filter(organisation=organisation, **keys)
        odd |= {event.pk: event for event in inside.filter(**keys)}
        # A rival outside of the period keeps its key from counting inside.
        outside = stored.exclude(time__gte=period.starts_at, time__lt=period.ends_at)
        for rows in (outside, parked_under(organisation).filter(**keys)):
            lines += rows.values_list("line", flat=True)
    return list(odd.values()), [*(event.line for event in odd.values()), *lines]
