"""Savings as frozen records: stated by the auditor, and what every document is computed from again.

In: verified savings of a period, an approved measurement. Out: one record per period that never
changes, and the fee of a record worked out anew from its frozen inputs. Nothing here computes an
amount: `metering.contract.fee` does. Savings metered by usage are `services.savings_compute`.
"""

import json
from dataclasses import replace
from decimal import Decimal

from django.db import transaction
from django.utils import timezone

from metering.contract import Contract, FeeBreakdown, LedgerState, VerifiedSavings, fee
from metering.decimals import exact, to_text
from metering.savings import SavingsLine, Sufficiency, option_gate, verified_savings
from portal.accounts.access import Actor, require
from portal.audits.models import Review
from portal.billing.models import BillingPeriod, Correction, SavingsRecord, SearchCost
from portal.contracts.models import ContractVersion
from portal.events.services import event_record
from portal.runs.models import BaselineEntry, Measurement
from portal.runs.registry import entries_of, standing
from reports.canonical import canonical_json, sha256_bytes

VERIFIED_SCHEMA = "ignition.savings-stated.v1"


class BillingError(ValueError):
    """Something that cannot be billed; names what was got and wanted."""


def require_approved(measurement: Measurement) -> None:
    """BillingError unless an auditor's verified signature stands behind the measurement."""
    review = Review.objects.filter(measurement=measurement, state=Review.State.APPROVED).first()
    if measurement.state != Measurement.State.APPROVED or review is None:
        raise BillingError(
            f"{measurement}: not approved by the auditor; without that signature nothing bills"
        )


def contract_lock(period: BillingPeriod) -> None:
    """Until the transaction ends, nobody else changes what periods of the contract leave behind."""
    ContractVersion.objects.select_for_update(no_key=True).filter(
        organisation=period.organisation, contract_id=period.contract_id
    ).order_by("version").first()


def state_before(period: BillingPeriod) -> LedgerState:
    """What the latest earlier period left behind, with every correction made since.

    BillingError when a later period is computed already. Under the contract's lock, so that two
    periods never start from the same state and no correction is missed.
    """
    contract_lock(period)
    others = SavingsRecord.objects.filter(
        organisation=period.organisation, period__contract_id=period.contract_id
    ).select_related("period")
    later = others.filter(period__label__gt=period.label).first()
    if later:
        raise BillingError(
            f"{period}: {later.period.label} is computed already; periods go in order, and a"
            " correction names the document it corrects"
        )
    previous = others.filter(period__label__lt=period.label).order_by("-period__label").first()
    if previous is None:
        return _with_searches(period, LedgerState())
    state = LedgerState.from_json(previous.document["breakdown"]["state"])
    for correction in Correction.objects.filter(
        organisation=period.organisation,
        invoice__period__contract_id=period.contract_id,
        created_at__gte=previous.created_at,
    ).order_by("created_at", "id"):
        state = state.replaced(
            taken=LedgerState.from_json(correction.taken),
            instead=LedgerState.from_json(correction.instead),
        )
    return _with_searches(period, state)


def _with_searches(period: BillingPeriod, state: LedgerState) -> LedgerState:
    """The state with what searches have cost so far, where the contract recoups any of it."""
    if period.contract_version.contract["recoupment"] is None:
        return state
    booked = SearchCost.objects.filter(
        organisation=period.organisation, contract_id=period.contract_id
    )
    with exact():
        # Summed here: SQLite adds decimals as floats.
        recorded = sum(booked.values_list("cost", flat=True), Decimal(0))
    return replace(state, recorded=recorded)


@transaction.atomic
def savings_verify(
    *,
    actor: Actor,
    period: BillingPeriod,
    measurement: Measurement,
    verified: VerifiedSavings,
    standard_error: Decimal | None = None,
) -> SavingsRecord:
    """Freeze a period's savings as the auditor states them: several models, or stated amounts.

    `standard_error` is that of their sum, kept beside them where it is known. Only the auditor
    may, on evidence of an approved measurement of the contract; once a period. They are the
    auditor's own word on what was saved, so no rule of sufficiency is put before it.
    """
    require(actor, "savings.verify", period.organisation)
    BillingPeriod.objects.select_for_update(no_key=True).get(pk=period.pk)
    found = SavingsRecord.objects.filter(period=period).first()
    if found:
        return SavingsRecord.objects.get(pk=found.pk)
    check_verified(period, measurement, verified)
    before = state_before(period)
    breakdown = fee(Contract.from_json(period.contract_version.contract), before, verified)
    document: dict[str, object] = {
        "schema": VERIFIED_SCHEMA,
        "lines": [],
        "verified": verified.to_json(),
        "standard_error": None if standard_error is None else to_text(standard_error),
        "state_before": before.to_json(),
        "breakdown": breakdown.to_json(),
    }
    data = canonical_json(document)
    record = SavingsRecord(
        organisation=period.organisation,
        period=period,
        measurement=measurement,
        currency=verified.currency,
        volume_samples=sum(line.volume or 0 for line in verified.lines),
        counterfactual=breakdown.counterfactual or Decimal(0),
        point=sum((line.point for line in verified.lines), Decimal(0)),
        billable=breakdown.chargeable,
        fee=breakdown.fee,
        kept=measurement.kept,
        reason="; ".join(breakdown.reasons)[:300],
        usage={},
        document=json.loads(data),
        sha256=sha256_bytes(data),
    )
    record.save(force_insert=True)
    event_record(
        action="savings.verify",
        actor=actor,
        subject=record,
        organisation=record.organisation,
        data={
            "period": period.label,
            "sha256": record.sha256,
            "fee": str(breakdown.fee),
            "currency": record.currency,
        },
    )
    return record


def require_billable(version: ContractVersion) -> None:
    """BillingError for a plan whose option does not bill (A, C and D of IPMVP)."""
    why = option_gate(str(version.plan["option"]))
    if why is not None:
        raise BillingError(f"{version}: {why}")


def require_baseline_in_force(period: BillingPeriod, measurement: Measurement) -> None:
    """BillingError where the policy lets another baseline count before the period ends.

    The uplift was measured against the measurement's own baseline. Set against another one it
    would be a figure that no run stands behind, so it waits for a measurement against that one.
    """
    version = measurement.contract_version
    policy = Contract.from_json(version.contract).baseline_policy
    rows = list(BaselineEntry.objects.filter(contract_version=version).order_by("number"))
    if policy.kind == "fixed" or len(rows) < 2:
        return
    entries = entries_of(rows)
    own = entries[0].core_seconds_per_million
    for one in standing(entries, policy, max(period.ends_at, entries[0].frozen_at)).effective:
        if one.counts_from < period.ends_at and one.effective_cost != own:
            raise BillingError(
                f"{period}: under the policy {policy.kind} baseline {one.entry.number} counts from"
                f" {one.counts_from.isoformat()} with {one.samples_per_second} samples/s, and the"
                f" uplift was measured against {entries[0].samples_per_second}; measure against it"
                " as the contract's next version, then bill this period on that measurement"
            )


def check_verified(
    period: BillingPeriod, measurement: Measurement, verified: VerifiedSavings
) -> None:
    """BillingError unless stated savings are of this period and rest on approved evidence."""
    version = measurement.contract_version
    if measurement.organisation_id != period.organisation_id or (
        version.contract_id != period.contract_id
    ):
        raise BillingError(f"{measurement}: belongs to another contract than {period}")
    require_approved(measurement)
    require_billable(version)
    if verified.evidence_digest != measurement.evidence_sha256:
        raise BillingError(
            f"verified.evidence_digest: got {verified.evidence_digest}; wanted"
            f" {measurement.evidence_sha256}, the evidence of {measurement}"
        )
    if timezone.now() < period.ends_at:
        raise BillingError(
            f"{period}: ends at {period.ends_at.isoformat()}; savings are stated afterwards"
        )
    stated = verified.period
    if (stated.label, stated.start, stated.end) != (period.label, period.starts_at, period.ends_at):
        raise BillingError(f"verified.period: got {stated.label}; wanted {period.label}")


def frozen_sufficiency(savings: SavingsRecord) -> tuple[Sufficiency, ...]:
    """What was examined when savings were computed; nothing for stated ones and older methods."""
    return tuple(Sufficiency.from_json(item) for item in savings.document.get("sufficiency", ()))


def frozen_savings(savings: SavingsRecord) -> VerifiedSavings:
    """The verified savings a record was computed from."""
    document = savings.document
    if document["schema"] == VERIFIED_SCHEMA:
        return VerifiedSavings.from_json(document["verified"])
    return verified_savings(
        [SavingsLine.from_json(line) for line in document["lines"]],
        evidence_digest=document["breakdown"]["evidence_digest"],
    )


def frozen_breakdown(savings: SavingsRecord, contract: Contract) -> FeeBreakdown:
    """The fee of a record computed again; BillingError unless it is the frozen one."""
    breakdown = fee(
        contract,
        LedgerState.from_json(savings.document["state_before"]),
        frozen_savings(savings),
    )
    if breakdown.to_json() != savings.document["breakdown"]:
        raise BillingError(
            f"{savings}: the fee recomputed from its frozen inputs differs from the frozen one;"
            " the record or the method was changed, so no invoice is issued"
        )
    return breakdown


def contract_version_of(savings: SavingsRecord) -> ContractVersion:
    """The version a record bills under: its measurement's, for stated savings its period's."""
    stated = savings.document["schema"] == VERIFIED_SCHEMA
    return savings.period.contract_version if stated else savings.measurement.contract_version
