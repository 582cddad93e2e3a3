"""Asking for long work: one function per kind of job, for pages, API, commands and the demo.

In: an actor and what the work is about. Out: the job's row, the same one however often it is asked
for. Workers are woken; whoever asks never does the work in a request.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from django.db import transaction

from portal.accounts.access import Actor, require
from portal.billing.models import BillingPeriod, Invoice
from portal.contracts.models import ContractVersion
from portal.events.services import event_record
from portal.runs.jobs import job_request, wake
from portal.runs.models import Baseline, Job, Measurement
from portal.runs.services import require_signed

if TYPE_CHECKING:  # Pages ask for work; they do not load what does it.
    from metering.loadgen.spec import SutSpec

MEASURE, REMEASURE, BILL, SEAL = "measure", "remeasure", "bill", "seal"


@transaction.atomic
def measure_request(
    *,
    actor: Actor,
    contract_version: ContractVersion,
    as_found: "SutSpec | None" = None,
    seen: Mapping[str, object] | None = None,
) -> Job:
    """Ask for baseline, search, measurement and review of a signed contract version.

    `as_found` is the configuration the customer runs today, None where it is not stated: measured
    and recorded beside the baseline, never the one that savings count from unless it is the
    fastest. What the first request states stays; asking again changes nothing about it.
    `seen` is the break-even that the customer confirms having seen; it is kept with the job.
    """
    require(actor, "measurement.request", contract_version.organisation)
    require_signed(contract_version)
    arguments: dict[str, object] = {"contract_version": str(contract_version.pk)}
    if as_found is not None:
        arguments["as_found"] = as_found.to_dict()
    if seen is not None:
        arguments["break_even"] = dict(seen)
        event_record(
            action="break_even.confirm",
            actor=actor,
            subject=contract_version,
            organisation=contract_version.organisation,
            data=dict(seen),
        )
    job = job_request(
        actor=actor,
        organisation=contract_version.organisation,
        kind=MEASURE,
        key=str(contract_version.pk),
        arguments=arguments,
    )
    wake(job)
    return job


def bill_key(period: BillingPeriod) -> str:
    """The key of the one job that bills a period."""
    return f"{period.contract_id} {period.label}"


def remeasure_request(*, actor: Actor, baseline: Baseline) -> Job:
    """Ask for the next entry of a baseline's registry: the sweep again, with what is installed.

    One job for each entry: asked for while one waits or runs, it is that one.
    """
    version = baseline.contract_version
    number = max(1, version.baseline_entries.count())
    job = job_request(
        actor=actor,
        organisation=version.organisation,
        kind=REMEASURE,
        key=f"{version.pk} {number}",
        arguments={"contract_version": str(version.pk), "number": number},
    )
    wake(job)
    return job


def bill_request(
    *, actor: Actor, period: BillingPeriod, measurement: Measurement, notes: Sequence[str] = ()
) -> Job:
    """Ask for a period's savings, invoice and the report that the auditor countersigns."""
    job = job_request(
        actor=actor,
        organisation=period.organisation,
        kind=BILL,
        key=bill_key(period),
        arguments={
            "period": str(period.pk),
            "measurement": str(measurement.pk),
            "notes": list(notes),
        },
        action="bill.request",
    )
    wake(job)
    return job


def seal_request(*, actor: Actor, invoice: Invoice) -> Job:
    """Ask for the bundle of a countersigned report to be sealed, verified and exported."""
    job = job_request(
        actor=actor,
        organisation=invoice.organisation,
        kind=SEAL,
        key=invoice.number,
        arguments={"invoice": str(invoice.pk)},
    )
    wake(job)
    return job
