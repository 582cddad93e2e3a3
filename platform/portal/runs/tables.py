"""Lists of baselines, searches, trials, measurements and jobs."""

from typing import Any

import django_tables2 as tables

from portal.runs.models import Job, Measurement
from portal.web import formats
from portal.web.columns import (
    NUMERIC,
    DigestColumn,
    InstantColumn,
    ListTable,
    MarkColumn,
    MoneyColumn,
    NumberColumn,
    PercentColumn,
)
from portal.web.templatetags.portal_tags import mark


class BaselineTable(ListTable):
    """Frozen baselines."""

    caption = "Frozen baselines: the fastest correct stock configuration of each sweep"
    csv_columns = (
        ("id", "id"), ("stack", "stack"), ("stack_version", "stack_version"),
        ("threads", "threads"), ("arrangement", "arrangement"), ("batch", "batch"),
        ("samples_per_second", "samples_per_second"), ("system", "system__name"),
        ("mix", "mix__name"), ("sha256", "sha256"), ("frozen_at", "frozen_at"),
    )  # fmt: skip

    stack = tables.Column(linkify=("runs:baseline", {"baseline_id": tables.A("pk")}))
    stack_version = tables.Column(verbose_name="Version")
    system = tables.Column(accessor="system", verbose_name="System")
    mix = tables.Column(accessor="mix__name", verbose_name="Mix")
    samples_per_second = NumberColumn(verbose_name="Samples per second")
    frozen_at = InstantColumn(verbose_name="Frozen")
    sha256 = DigestColumn(verbose_name="SHA-256")


class TuningTable(ListTable):
    """Searches for kernels."""

    caption = "Searches for kernels and what they cost"
    csv_columns = (
        ("id", "id"), ("state", "state"), ("trials", "trials"), ("accepted", "accepted"),
        ("seconds", "seconds"), ("budget_s", "budget_s"), ("cost", "cost"),
        ("currency", "currency"), ("seed", "seed"), ("started_at", "created_at"),
    )  # fmt: skip

    created_at = InstantColumn(
        verbose_name="Started", linkify=("runs:tuning", {"tuning_id": tables.A("pk")})
    )
    state = MarkColumn()
    mix = tables.Column(accessor="mix__name", verbose_name="Mix")
    system = tables.Column(accessor="system", verbose_name="System")
    trials = NumberColumn()
    accepted = NumberColumn()
    seconds = tables.Column(verbose_name="Time", attrs=NUMERIC)
    cost = MoneyColumn()

    def render_seconds(self, value: Any) -> str:
        """The time the search took."""
        return formats.duration(value)


class TrialTable(ListTable):
    """Progress lines of one search."""

    caption = "Every line of the search, in order; a ratio above 1 is faster than the incumbent"
    csv_columns = (
        ("seq", "seq"), ("elapsed_s", "elapsed_s"), ("kind", "kind"), ("operator", "operator"),
        ("trial", "trial"), ("ratio_incumbent_over_candidate", "ratio"), ("text", "text"),
    )  # fmt: skip

    seq = tables.Column(verbose_name="No.")
    elapsed_s = tables.Column(verbose_name="At, seconds", attrs=NUMERIC)
    kind = MarkColumn(verbose_name="What")
    operator = tables.Column()
    trial = tables.Column(attrs=NUMERIC)
    ratio = NumberColumn(verbose_name="Ratio")
    text = tables.Column(verbose_name="In words", orderable=False)

    def render_elapsed_s(self, value: float) -> str:
        """Seconds since the search began."""
        return formats.fixed(value, 1)


class MeasurementTable(ListTable):
    """Measurements of uplift."""

    caption = "Measured uplift; only an approved and kept one may be billed"
    csv_columns = (
        ("id", "id"), ("state", "state"), ("kept", "kept"), ("reason", "reason"),
        ("uplift_point", "uplift_point"), ("uplift_lower_95", "uplift_lower_95"),
        ("system", "contract_version__system__name"), ("mix", "contract_version__mix__name"),
        ("evidence_sha256", "evidence_sha256"), ("measured_at", "measured_at"),
    )  # fmt: skip

    created_at = InstantColumn(
        accessor="created_at",
        verbose_name="Begun",
        linkify=("runs:measurement", {"measurement_id": tables.A("pk")}),
    )
    mix = tables.Column(accessor="contract_version__mix__name", verbose_name="Mix")
    system = tables.Column(accessor="contract_version__system", verbose_name="System")
    uplift_point = PercentColumn(verbose_name="Uplift")
    uplift_lower_95 = PercentColumn(verbose_name="Lower bound, 95 %")
    kept = tables.Column(verbose_name="Billable")
    state = MarkColumn()

    def render_kept(self, value: bool, record: Measurement) -> str:
        """Whether the uplift may be billed."""
        if record.state == Measurement.State.DRAFT:
            return "—"
        return mark("kept" if value else "not kept")


class JobTable(ListTable):
    """Jobs with their leases."""

    caption = "Long work, newest first"
    csv_columns = (
        ("id", "id"), ("organisation", "organisation__name"), ("kind", "kind"), ("key", "key"),
        ("state", "state"), ("step", "step"), ("attempts", "attempts"),
        ("lease_owner", "lease_owner"), ("lease_until", "lease_until"),
        ("started_at", "started_at"), ("finished_at", "finished_at"), ("error", "error"),
    )  # fmt: skip

    kind = tables.Column(linkify=("runs:job", {"job_id": tables.A("pk")}))
    organisation = tables.Column(accessor="organisation__name", verbose_name="Organisation")
    state = MarkColumn()
    step = tables.Column()
    attempts = tables.Column(attrs=NUMERIC)
    lease_until = tables.Column(verbose_name="Lease", orderable=False, empty_values=())
    progress = tables.Column(verbose_name="Last line", orderable=False)
    created_at = InstantColumn(verbose_name="Asked for")

    def render_attempts(self, value: int, record: Job) -> str:
        """Attempts made of those allowed."""
        return f"{value} of {record.max_attempts}"

    def render_lease_until(self, record: Job) -> str:
        """Who holds the job and until when."""
        if record.state != Job.State.RUNNING:
            return "—"
        return f"{record.lease_owner} until {formats.instant(record.lease_until)}"
