"""Systems by fingerprint, models by digest, model mixes with their traffic, price books."""

from django.db import models

from portal.accounts.models import Organisation
from portal.records import Issued, Record


class System(Record):
    """One revision of a machine. The fingerprint covers stable facts, never the host name."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="systems")
    name = models.CharField(max_length=200)
    revision = models.PositiveIntegerField(default=1)
    fingerprint = models.CharField(max_length=64)
    machine = models.JSONField(help_text="kernelgen.machine.Machine.to_dict()")

    class Meta:
        ordering = ("name", "-revision")
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "name", "revision"), name="one_system_per_revision"
            ),
            models.UniqueConstraint(
                fields=("organisation", "name", "fingerprint"), name="one_revision_per_fingerprint"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} r{self.revision}"


class Model(Record):
    """A model file, known by the SHA-256 of its bytes."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="models")
    name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)
    size_bytes = models.BigIntegerField()
    licence = models.CharField(max_length=100)
    source = models.CharField(max_length=300, blank=True)
    path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(fields=("organisation", "sha256"), name="one_model_per_digest"),
        )

    def __str__(self) -> str:
        return self.name


class ModelMix(Record):
    """A model with the traffic it serves: token-length histogram, samples, held-out samples."""

    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="mixes")
    name = models.CharField(max_length=200)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="mixes")
    unit = models.CharField(max_length=32, default="sentence")
    traffic_source = models.CharField(max_length=300, blank=True)
    length_histogram = models.JSONField(help_text="token length -> number of samples")
    sample_count = models.PositiveIntegerField()
    samples_path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    samples_sha256 = models.CharField(max_length=64)
    held_out_count = models.PositiveIntegerField()
    held_out_path = models.CharField(max_length=500, help_text="relative to IGNITION_HOME")
    held_out_sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ("name", "-created_at")
        verbose_name_plural = "model mixes"
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "name", "samples_sha256", "held_out_sha256"),
                name="one_mix_per_samples",
            ),
        )

    def __str__(self) -> str:
        return self.name


class PriceBook(Issued):
    """The pinned price of one core for one hour; a new price is a new version."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="price_books"
    )
    version = models.PositiveIntegerField()
    currency = models.CharField(max_length=3, help_text="ISO 4217")
    price_per_core_hour = models.DecimalField(max_digits=20, decimal_places=6)
    valid_from = models.DateTimeField()
    source = models.CharField(max_length=300)
    document = models.JSONField(help_text="metering.plan.PriceBook as JSON")
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ("-version",)
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "version"), name="one_price_book_per_version"
            ),
        )

    def __str__(self) -> str:
        return f"{self.currency} {self.price_per_core_hour} per core-hour (v{self.version})"
