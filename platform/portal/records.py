"""The two kinds of row the portal keeps: records, and issued records that never change.

Every model of every app derives from one of these, so that ids are unguessable, times are aware
UTC, and "issued never changes" is refused in one place (the database refuses it again by trigger,
see `portal.triggers`).
"""

import uuid
from collections.abc import Iterable
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone


class IssuedError(Exception):
    """An issued record was about to be changed or deleted; write a correction that names it."""


class Record(models.Model):
    """A row with a random UUID and the time it was made."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True


class IssuedQuerySet(models.QuerySet[Any]):
    """A query set that refuses bulk changes of issued rows."""

    def update(self, **kwargs: Any) -> int:
        allowed = self.model.changeable
        frozen = sorted(set(kwargs) - allowed)
        if frozen:
            raise IssuedError(f"{self.model.__name__}: {', '.join(frozen)} cannot change")
        return super().update(**kwargs)

    def delete(self) -> tuple[int, dict[str, int]]:
        raise IssuedError(f"{self.model.__name__}: issued rows are never deleted")


class Issued(Record):
    """A record that is written once; only the fields in `changeable` may change later."""

    changeable: ClassVar[frozenset[str]] = frozenset()
    objects = IssuedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(
        self,
        *args: Any,
        force_insert: Any = False,
        update_fields: Iterable[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Insert the row; a later call must name changeable fields only, or IssuedError."""
        if not self._state.adding and (
            update_fields is None or not set(update_fields) <= self.changeable
        ):
            raise IssuedError(
                f"{type(self).__name__} {self.pk} is issued and cannot change;"
                " write a correction that names it"
            )
        super().save(*args, force_insert=force_insert, update_fields=update_fields, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        raise IssuedError(f"{type(self).__name__} {self.pk} is issued and is never deleted")
