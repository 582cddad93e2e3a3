"""Organisations, memberships with a role, API tokens. People are Django's own users."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils import timezone

from portal.records import Record


class Organisation(Record):
    """A customer, or the operating organisation that runs this installation."""

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=200)
    address = models.TextField(blank=True)
    country = models.CharField(max_length=2, default="DE", help_text="ISO 3166-1 alpha-2")
    vat_id = models.CharField(max_length=32, blank=True)
    is_operating = models.BooleanField(default=False)

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.UniqueConstraint(
                fields=("is_operating",),
                condition=models.Q(is_operating=True),
                name="one_operating_organisation",
            ),
        )

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member is for; see `portal.accounts.access` for what each sees and does."""

    CUSTOMER = "customer", "customer"
    AUDITOR = "auditor", "auditor"
    FINANCE = "finance", "finance"
    OPERATOR = "operator", "operator"


class Membership(Record):
    """A user's role in one organisation; the actor of every selector and service."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships"
    )
    organisation = models.ForeignKey(
        Organisation, on_delete=models.PROTECT, related_name="memberships"
    )
    role = models.CharField(max_length=16, choices=Role.choices)
    expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("organisation", "role", "created_at")
        constraints = (
            models.UniqueConstraint(
                fields=("user", "organisation", "role"), name="one_membership_per_role"
            ),
            models.CheckConstraint(
                condition=models.Q(role__in=Role.values), name="membership_role_known"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} ({self.role}, {self.organisation})"

    def is_active(self, now: datetime | None = None) -> bool:
        """Whether the person may act now: the account is active and access has not expired."""
        moment = now or timezone.now()
        return bool(self.user.is_active) and (self.expires_at is None or moment < self.expires_at)


class ApiToken(Record):
    """A key for the API: the prefix finds it, the SHA-256 proves it, the text is shown once."""

    membership = models.ForeignKey(Membership, on_delete=models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    scopes = models.JSONField(default=list, help_text='of "read", "usage:write"')
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
