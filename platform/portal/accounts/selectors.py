"""Reads of organisations, members and tokens; every one takes the actor."""

from django.db.models import QuerySet
from django.utils import timezone

from portal.accounts.access import SEES, get_or_404, scope
from portal.accounts.models import ApiToken, Membership, Organisation, Role


def memberships_of(*, user_id: int) -> QuerySet[Membership]:
    """Return the memberships a signed-in person can act with now, soonest made first."""
    now = timezone.now()
    rows = Membership.objects.select_related("organisation", "user").filter(
        user_id=user_id, user__is_active=True
    )
    return (rows.filter(expires_at__isnull=True) | rows.filter(expires_at__gt=now)).order_by(
        "created_at"
    )


def organisation_list(*, actor: Membership) -> QuerySet[Organisation]:
    """The actor's own organisation; all of them for an operator of the operating one."""
    if not actor.is_active() or actor.role not in SEES["organisation"]:
        return Organisation.objects.none()
    if actor.role == Role.OPERATOR and actor.organisation.is_operating:
        return Organisation.objects.all()
    return Organisation.objects.filter(pk=actor.organisation_id)


def member_list(*, actor: Membership) -> QuerySet[Membership]:
    """Members of the actor's organisation."""
    return scope(actor, Membership.objects.select_related("user", "organisation"), "members")


def token_list(*, actor: Membership) -> QuerySet[ApiToken]:
    """The actor's own tokens; a customer sees all tokens of the organisation."""
    rows = ApiToken.objects.select_related("membership__user")
    if not actor.is_active():
        return rows.none()
    if actor.role == Role.CUSTOMER:
        return rows.filter(membership__organisation=actor.organisation)
    return rows.filter(membership=actor)


def token_get(*, actor: Membership, token_id: object) -> ApiToken:
    """One of `token_list`, or Http404."""
    return get_or_404(token_list(actor=actor), token_id)
