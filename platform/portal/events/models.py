"""One row per change, chained by hash. Rows are only ever added."""

from typing import Any

from django.conf import settings
from django.db import models

from portal.records import IssuedError, IssuedQuerySet


class Event(models.Model):
    """What happened, who did it, to what; `sha256` covers the row and the one before it."""

    seq = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField()
    action = models.CharField(max_length=64, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    actor_label = models.CharField(max_length=200)
    organisation = models.ForeignKey(
        "accounts.Organisation", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    subject_type = models.CharField(max_length=64)
    subject_id = models.CharField(max_length=64, db_index=True)
    data = models.JSONField(default=dict)
    previous_sha256 = models.CharField(max_length=64)
    sha256 = models.CharField(max_length=64, unique=True)

    changeable: frozenset[str] = frozenset()
    objects = IssuedQuerySet.as_manager()

    class Meta:
        ordering = ("seq",)

    def __str__(self) -> str:
        return f"{self.seq} {self.action} {self.subject_type} {self.subject_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only; IssuedError on a second save."""
        if not self._state.adding:
            raise IssuedError(f"event {self.seq} is written and cannot change")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise IssuedError(f"event {self.seq} is written and is never deleted")
