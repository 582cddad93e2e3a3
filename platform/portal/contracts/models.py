"""Contract versions with their measurement plan, and the three signatures both need."""

from django.conf import settings
from django.db import models

from portal.accounts.models import Organisation
from portal.records import Issued, Record
from portal.registry.models import ModelMix, PriceBook, System


class Party(models.TextChoices):
    """Who must sign a plan before the first run."""

    PROVIDER = "provider", "provider"
    CUSTOMER = "customer", "customer"
    AUDITOR = "auditor", "auditor"


class PartyKey(Record):
    """A registered Ed25519 public key with which a party signs plans."""

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="party_keys"
    )
    party = models.CharField(max_length=16, choices=Party.choices)
    key_id = models.CharField(max_length=64, help_text="SHA-256 of the SubjectPublicKeyInfo")
    public_key_pem = models.TextField()
    registered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("party", "created_at")
        constraints = (
            models.UniqueConstraint(
                # One key is one party's: a key that signs for two roles proves nothing.
                fields=("organisation", "key_id"),
                name="one_party_per_key",
            ),
        )

    def __str__(self) -> str:
        return f"{self.party} {self.key_id[:12]}"


class ContractVersion(Record):
    """A contract and its measurement plan as canonical JSON; fixed once it is signed."""

    class Status(models.TextChoices):
        DRAFT = "draft", "draft"
        SIGNED = "signed", "signed"

    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="contract_versions"
    )
    contract_id = models.CharField(max_length=64)
    version = models.PositiveIntegerField()
    system = models.ForeignKey(System, on_delete=models.PROTECT, related_name="contract_versions")
    mix = models.ForeignKey(ModelMix, on_delete=models.PROTECT, related_name="contract_versions")
    price_book = models.ForeignKey(
        PriceBook, on_delete=models.PROTECT, related_name="contract_versions"
    )
    contract = models.JSONField(help_text="metering.contract.Contract as JSON")
    contract_sha256 = models.CharField(max_length=64)
    plan = models.JSONField(help_text="metering.plan.MeasurementPlan as JSON")
    plan_sha256 = models.CharField(max_length=64)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.DRAFT)
    signed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("contract_id", "-version")
        constraints = (
            models.UniqueConstraint(
                fields=("organisation", "contract_id", "version"), name="one_contract_per_version"
            ),
            models.CheckConstraint(
                condition=models.Q(status="draft", signed_at__isnull=True)
                | models.Q(status="signed", signed_at__isnull=False),
                name="contract_signed_has_time",
            ),
        )

    def __str__(self) -> str:
        return f"{self.contract_id} v{self.version}"


class PlanSignature(Issued):
    """One party's Ed25519 signature over the canonical bytes of contract and plan digests."""

    contract_version = models.ForeignKey(
        ContractVersion, on_delete=models.PROTECT, related_name="signatures"
    )
    party = models.CharField(max_length=16, choices=Party.choices)
    key_id = models.CharField(max_length=64)
    public_key_pem = models.TextField()
    signature_b64 = models.TextField()
    signer = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )

    class Meta:
        ordering = ("created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("contract_version", "party"), name="one_signature_per_party"
            ),
        )

    def __str__(self) -> str:
        return f"{self.party} signed {self.contract_version}"
