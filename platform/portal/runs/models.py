"""Jobs with leases (the queue of record) and what they make: baselines, packages, measurements."""

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.contracts.models import ContractVersion
from portal.records import Issued, Record
from portal.registry.models import Model, ModelMix, System


class Job(Record):
    """One piece of long work. Who holds the lease may work on it; nobody else."""

    class State(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="jobs")
    kind = models.CharField(max_length=32)
    key = models.CharField(max_length=128, help_text="the same key is the same job, for ever")
    arguments = models.JSONField(default=dict)
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    state = models.CharField(max_length=16, choices=State.choices, default=State.QUEUED)
    step = models.CharField(max_length=32, blank=True)
    progress = models.TextField(blank=True)
    error = models.TextField(blank=True)
    attempts = models.PositiveIntegerField(default=0)
    max_attempts = models.PositiveIntegerField(default=3)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        indexes = (models.Index(fields=("state", "lease_until"), name="job_state_lease"),)
        constraints = (
            models.UniqueConstraint(fields=("organisation", "kind", "key"), name="one_job_per_key"),
            models.CheckConstraint(
                condition=~models.Q(state="running")
                | (models.Q(lease_until__isnull=False) & ~models.Q(lease_owner="")),
                name="running_job_has_lease",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.key} ({self.state})"


class JobStep(Record):
    """One named step of a job: when it ran and what it said, for the progress page."""

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="steps")
    position = models.PositiveIntegerField()
    name = models.CharField(max_length=32)
    title = models.CharField(max_length=100)
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    detail = models.TextField(blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("job", "position")
        constraints = (models.UniqueConstraint(fields=("job", "name"), name="one_step_per_name"),)

    def __str__(self) -> str:
        return f"{self.position} {self.name} ({self.state})"


class Baseline(Issued):
    """The fastest correct stock stack, frozen before any candidate exists."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="baselines"
    )
    contract_version = models.OneToOneField(
        ContractVersion, on_delete=models.PROTECT, related_name="baseline"
    )
    system = models.ForeignKey(System, on_delete=models.PROTECT, related_name="baselines")
    mix = models.ForeignKey(ModelMix, on_delete=models.PROTECT, related_name="baselines")
    stack = models.CharField(max_length=64)
    stack_version = models.CharField(max_length=64)
    threads = models.PositiveIntegerField()
    arrangement = models.CharField(max_length=32)
    batch = models.PositiveIntegerField()
    samples_per_second = models.DecimalField(max_digits=20, decimal_places=6)
    document = models.JSONField(help_text="metering.baseline.Baseline as JSON")
    sha256 = models.CharField(max_length=64)
    evidence_path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    frozen_at = models.DateTimeField()

    class Meta:
        ordering = ("-frozen_at",)

    def __str__(self) -> str:
        return f"{self.stack} {self.stack_version}: {self.samples_per_second} samples/s"


class BaselineEntry(Issued):
    """One signed line of the registry of a contract version's baselines, its figures beside it.

    Number 0 is the frozen baseline itself; later ones are re-measurements. Each line names the
    digest of the one before it.
    """

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="baseline_entries"
    )
    contract_version = models.ForeignKey(
        ContractVersion, on_delete=models.PROTECT, related_name="baseline_entries"
    )
    number = models.PositiveIntegerField()
    line = models.TextField(help_text="metering.baseline.registry's signed line, exactly")
    line_sha256 = models.CharField(max_length=64)
    baseline_sha256 = models.CharField(max_length=64)
    stack = models.CharField(max_length=64)
    stack_version = models.CharField(max_length=64)
    samples_per_second = models.DecimalField(max_digits=20, decimal_places=6)
    evidence_path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    frozen_at = models.DateTimeField()

    class Meta:
        ordering = ("contract_version", "number")
        constraints = (
            models.UniqueConstraint(
                fields=("contract_version", "number"), name="one_baseline_entry_per_number"
            ),
            models.UniqueConstraint(
                fields=("contract_version", "baseline_sha256"), name="one_entry_per_baseline"
            ),
        )

    def __str__(self) -> str:
        return f"entry {self.number}: {self.stack} {self.samples_per_second} samples/s"


class BaselineDue(Issued):
    """When a worker found that a registered baseline has to be measured again, and why."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="baselines_due"
    )
    entry = models.OneToOneField(BaselineEntry, on_delete=models.PROTECT, related_name="due")
    by = models.DateTimeField(help_text="the date of the calendar")
    reasons = models.JSONField(help_text="sentences of metering.baseline.schedule")

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.entry} is due"


class Tuning(Record):
    """One search for kernels: its budget, its trials and what it cost."""

    class State(models.TextChoices):
        RUNNING = "running", "running"
        DONE = "done", "done"

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="tunings")
    baseline = models.OneToOneField(Baseline, on_delete=models.PROTECT, related_name="tuning")
    system = models.ForeignKey(System, on_delete=models.PROTECT, related_name="tunings")
    mix = models.ForeignKey(ModelMix, on_delete=models.PROTECT, related_name="tunings")
    state = models.CharField(max_length=16, choices=State.choices, default=State.RUNNING)
    seed = models.BigIntegerField()
    budget_s = models.DecimalField(max_digits=10, decimal_places=2)
    trials = models.PositiveIntegerField(default=0)
    accepted = models.PositiveIntegerField(default=0)
    rejected = models.JSONField(default=dict, help_text="reason -> number of trials")
    seconds = models.DecimalField(max_digits=12, decimal_places=3, default=0)
    cost = models.DecimalField(max_digits=20, decimal_places=6, default=0)
    currency = models.CharField(max_length=3)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.trials} trials in {self.seconds} s ({self.state})"


class TuningEvent(models.Model):
    """One line of a search's progress (kernelgen's TrialEvent): the progress chart's material."""

    tuning = models.ForeignKey(Tuning, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    kind = models.CharField(max_length=16, help_text="kernelgen's EventKind")
    operator = models.CharField(max_length=64, blank=True)
    trial = models.PositiveIntegerField()
    text = models.TextField()
    ratio = models.FloatField(
        null=True, blank=True, help_text="incumbent time over candidate time, above 1 is faster"
    )
    elapsed_s = models.FloatField()

    class Meta:
        ordering = ("tuning", "seq")
        constraints = (
            models.UniqueConstraint(fields=("tuning", "seq"), name="one_tuning_event_per_seq"),
        )

    def __str__(self) -> str:
        return f"{self.seq} {self.kind} {self.operator}"


class KernelPackage(Issued):
    """A judged, packaged set of kernels on disk; known by its manifest's digest."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="kernel_packages"
    )
    tuning = models.OneToOneField(Tuning, on_delete=models.PROTECT, related_name="package")
    system = models.ForeignKey(System, on_delete=models.PROTECT, related_name="kernel_packages")
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="kernel_packages")
    manifest = models.JSONField()
    manifest_sha256 = models.CharField(max_length=64)
    model_gate = models.JSONField(default=dict)
    operators = models.JSONField(default=list)
    path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"package {self.manifest_sha256[:12]}"


class Measurement(Record):
    """A/A gate, uplift and accuracy of one package against one baseline, with its evidence."""

    class State(models.TextChoices):
        DRAFT = "draft", "draft"
        MEASURED = "measured", "measured"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="measurements"
    )
    contract_version = models.ForeignKey(
        ContractVersion, on_delete=models.PROTECT, related_name="measurements"
    )
    baseline = models.ForeignKey(Baseline, on_delete=models.PROTECT, related_name="measurements")
    package = models.ForeignKey(
        KernelPackage, on_delete=models.PROTECT, related_name="measurements"
    )
    run_number = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, choices=State.choices, default=State.DRAFT)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    aa = models.JSONField(default=dict, help_text="lo, hi, passed, reason, pairs")
    uplift = models.JSONField(default=dict, help_text="point, lo, hi, lower_95, n, flagged")
    pairs = models.JSONField(default=list, help_text="per pair: base, other, log_ratio")
    accuracy = models.JSONField(default=dict)
    uplift_point = models.DecimalField(max_digits=18, decimal_places=9, null=True, blank=True)
    uplift_lower_95 = models.DecimalField(max_digits=18, decimal_places=9, null=True, blank=True)
    kept = models.BooleanField(default=False, help_text="whether the uplift may be billed")
    reason = models.CharField(max_length=300, blank=True)
    evidence_path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    evidence_sha256 = models.CharField(max_length=64, blank=True)
    measured_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("contract_version", "baseline", "package", "run_number"),
                name="one_measurement_per_run_number",
            ),
            models.CheckConstraint(
                condition=models.Q(state="draft") | ~models.Q(evidence_sha256=""),
                name="measured_has_evidence_digest",
            ),
        )

    def __str__(self) -> str:
        return f"measurement {str(self.id)[:8]} ({self.state})"
