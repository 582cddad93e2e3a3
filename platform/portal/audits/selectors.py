"""Reads of reviews, findings and auditors' keys; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership
from portal.audits.models import AuditorKey, Review, SufficiencyOverride


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


def override_list(*, actor: Membership) -> QuerySet[SufficiencyOverride]:
    """Auditors' overrides of sufficiency; they are about money, so who sees bills sees them."""
    rows = SufficiencyOverride.objects.select_related("period", "auditor")
    return scope(actor, rows, "billing")


def override_get(*, actor: Membership, override_id: object) -> SufficiencyOverride:
    """One of `override_list`, or Http404."""
    return get_or_404(override_list(actor=actor), override_id)
