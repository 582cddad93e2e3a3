"""Reads of reviews, findings and auditors' keys; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership
from portal.audits.models import AuditorKey, Review


def review_list(*, actor: Membership) -> QuerySet[Review]:
    """Reviews with their measurement and findings, newest first."""
    rows = Review.objects.select_related(
        "measurement__baseline", "measurement__contract_version", "decided_by", "auditor_key"
    )
    return scope(actor, rows.prefetch_related("findings"), "reviews")


def review_queue(*, actor: Membership) -> QuerySet[Review]:
    """The open reviews, oldest first: what waits for an auditor."""
    return review_list(actor=actor).filter(state=Review.State.OPEN).order_by("created_at")


def review_get(*, actor: Membership, review_id: object) -> Review:
    """One of `review_list`, or Http404."""
    return get_or_404(review_list(actor=actor), review_id)


def auditor_key_list(*, actor: Membership) -> QuerySet[AuditorKey]:
    """Registered public keys of auditors."""
    return scope(actor, AuditorKey.objects.select_related("auditor"), "reviews")
