"""The auditor's overrides of sufficiency: stated by name and reason, before savings are computed.

In: an auditor, a period that has ended, a rule that does not hold in it. Out: one row that never
changes, which the savings and every document made from them then print. An override of a rule that
holds is refused: it would hide nothing, but it would be printed as if it had been needed.
"""

from django.db import transaction
from django.utils import timezone

from metering.contract import Contract
from metering.savings import Override
from portal.accounts.access import Actor, NotAllowed, Platform, require
from portal.audits.models import SufficiencyOverride
from portal.audits.services import ReviewError
from portal.billing.models import BillingPeriod, SavingsRecord
from portal.billing.sufficiency import is_examined, preview
from portal.events.services import event_record
from portal.runs.models import Measurement

LONGEST_REASON = 500


@transaction.atomic
def override_state(
    *, actor: Actor, period: BillingPeriod, measurement: Measurement, rule: str, reason: str
) -> SufficiencyOverride:
    """State that a period bills on `measurement` although `rule` does not hold, and why.

    Stated once: the same reason again gives the same row. ReviewError when the rule holds, does
    not block or is not part of the signed method, the period has not ended, its savings are
    computed already, or the reason is missing. Only a person may, never the platform.
    """
    require(actor, "sufficiency.override", period.organisation)
    if isinstance(actor, Platform) or actor.user is None:
        raise NotAllowed("sufficiency.override: only an auditor does this, by name")
    why = " ".join(reason.split())
    if not 0 < len(why) <= LONGEST_REASON:
        raise ReviewError(
            f"reason: got {len(why)} characters; wanted 1 to {LONGEST_REASON}: it is printed on"
            " the invoice and the report"
        )
    BillingPeriod.objects.select_for_update(no_key=True).get(pk=period.pk)
    stated = SufficiencyOverride.objects.filter(period=period, measurement=measurement, rule=rule)
    if found := stated.first():
        if found.reason != why:
            raise ReviewError(f"{rule}: overridden already, by {found.stated_by}: {found.reason}")
        return SufficiencyOverride.objects.get(pk=found.pk)
    _require_open(period, measurement)
    item = {each.name: each for each in preview(period, measurement).disqualifications}.get(rule)
    if item is None or not item.blocks:
        raise ReviewError(
            f"rule: got {rule!r}; wanted one that blocks this period: "
            + ("it holds, so there is nothing to override" if item is None else "it only flags")
        )
    contract = Contract.from_json(measurement.contract_version.contract)
    person = actor.user.get_full_name() or actor.user.get_username()
    override = Override.by(person, contract, name=item.name, reason=why)
    row = SufficiencyOverride(
        organisation=period.organisation,
        period=period,
        measurement=measurement,
        rule=override.name,
        found=item.description[:300],
        auditor=actor.user,
        stated_by=override.auditor,
        reason=override.reason,
    )
    row.save(force_insert=True)
    event_record(
        action="sufficiency.override",
        actor=actor,
        subject=row,
        organisation=row.organisation,
        data={
            "period": period.label,
            "measurement": str(measurement.pk),
            "rule": row.rule,
            "found": row.found,
            "reason": row.reason,
        },
    )
    return row


def _require_open(period: BillingPeriod, measurement: Measurement) -> None:
    """ReviewError unless the period may still be decided on this measurement."""
    version = measurement.contract_version
    if (measurement.organisation_id, version.contract_id) != (
        period.organisation_id, period.contract_id,
    ):  # fmt: skip
        raise ReviewError(f"{measurement}: belongs to another contract than {period}")
    if not is_examined(version):
        raise ReviewError(
            f"{version}: signed under {version.plan['method_version']}, which has no rules of"
            " sufficiency"
        )
    if timezone.now() < period.ends_at:
        raise ReviewError(
            f"{period}: ends at {period.ends_at.isoformat()}; what is missing shows afterwards"
        )
    if SavingsRecord.objects.filter(period=period).exists():
        raise ReviewError(
            f"{period}: its savings are computed and frozen; an audit of its invoice corrects them"
        )
