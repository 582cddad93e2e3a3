"""Reads of jobs, baselines, tunings, packages, measurements; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership
from portal.runs.models import (
    Baseline,
    BaselineDue,
    BaselineEntry,
    Job,
    JobStep,
    KernelPackage,
    Measurement,
    Tuning,
    TuningEvent,
)


def job_list(*, actor: Membership) -> QuerySet[Job]:
    """Jobs; an operator of the operating organisation sees those of all organisations."""
    return scope(actor, Job.objects.select_related("organisation", "requested_by"), "jobs")


def job_get(*, actor: Membership, job_id: object) -> Job:
    """One of `job_list`, or Http404."""
    return get_or_404(job_list(actor=actor), job_id)


def job_of(*, actor: Membership, kind: str, key: str) -> Job | None:
    """The actor's organisation's job of this kind and key, if it was asked for."""
    rows = job_list(actor=actor).filter(organisation=actor.organisation)
    return rows.filter(kind=kind, key=key).first()


def job_steps(*, actor: Membership, job_id: object) -> QuerySet[JobStep]:
    """The steps of one visible job, in order; Http404 when the job is not visible."""
    return JobStep.objects.filter(job=job_get(actor=actor, job_id=job_id))


def baseline_list(*, actor: Membership) -> QuerySet[Baseline]:
    """Frozen baselines with system, mix and contract version."""
    rows = Baseline.objects.select_related("system", "mix__model", "contract_version")
    return scope(actor, rows, "baselines")


def baseline_get(*, actor: Membership, baseline_id: object) -> Baseline:
    """One of `baseline_list`, or Http404."""
    return get_or_404(baseline_list(actor=actor), baseline_id)


def baseline_entry_list(*, actor: Membership) -> QuerySet[BaselineEntry]:
    """Entries of every registry the actor may see, oldest first in each."""
    return scope(actor, BaselineEntry.objects.select_related("due"), "baselines")


def baseline_entry_get(*, actor: Membership, entry_id: object) -> BaselineEntry:
    """One of `baseline_entry_list`, or Http404."""
    return get_or_404(baseline_entry_list(actor=actor), entry_id)


def baseline_entries(*, actor: Membership, baseline_id: object) -> QuerySet[BaselineEntry]:
    """The registry of one visible baseline's contract version, oldest first; or Http404."""
    baseline = baseline_get(actor=actor, baseline_id=baseline_id)
    rows = baseline_entry_list(actor=actor).filter(contract_version=baseline.contract_version)
    return rows.order_by("number")


def baseline_due(*, actor: Membership, baseline_id: object) -> BaselineDue | None:
    """The mark on the newest entry of a visible baseline's registry, if a worker set one."""
    newest = baseline_entries(actor=actor, baseline_id=baseline_id).last()
    return None if newest is None else getattr(newest, "due", None)


def other_first_entries(*, actor: Membership, baseline_id: object) -> QuerySet[BaselineEntry]:
    """First entries of the same organisation's other registries, oldest first; or Http404."""
    baseline = baseline_get(actor=actor, baseline_id=baseline_id)
    rows = BaselineEntry.objects.filter(organisation=baseline.organisation, number=0)
    rows = rows.exclude(contract_version=baseline.contract_version)
    return rows.select_related("contract_version__baseline").order_by("frozen_at")


def tuning_list(*, actor: Membership) -> QuerySet[Tuning]:
    """Searches for kernels."""
    return scope(actor, Tuning.objects.select_related("system", "mix", "baseline"), "tunings")


def tuning_get(*, actor: Membership, tuning_id: object) -> Tuning:
    """One of `tuning_list`, or Http404."""
    return get_or_404(tuning_list(actor=actor), tuning_id)


def tuning_events(*, actor: Membership, tuning_id: object) -> QuerySet[TuningEvent]:
    """The trials of one visible search, in order; Http404 when it is not visible."""
    return TuningEvent.objects.filter(tuning=tuning_get(actor=actor, tuning_id=tuning_id))


def package_list(*, actor: Membership) -> QuerySet[KernelPackage]:
    """Kernel packages with their model, system and search."""
    rows = KernelPackage.objects.select_related("model", "system", "tuning")
    return scope(actor, rows, "packages")


def package_get(*, actor: Membership, package_id: object) -> KernelPackage:
    """One of `package_list`, or Http404."""
    return get_or_404(package_list(actor=actor), package_id)


def measurement_list(*, actor: Membership) -> QuerySet[Measurement]:
    """Measurements with baseline, package and contract version."""
    rows = Measurement.objects.select_related(
        "baseline__contract_version",
        "package",
        "contract_version__system",
        "contract_version__mix__model",
    )
    return scope(actor, rows, "measurements")


def measurement_get(*, actor: Membership, measurement_id: object) -> Measurement:
    """One of `measurement_list`, or Http404."""
    return get_or_404(measurement_list(actor=actor), measurement_id)
