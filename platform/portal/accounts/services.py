"""Writes of organisations, members, tokens: one transaction and one event each."""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from portal.accounts.access import Actor, Platform, require
from portal.accounts.models import ApiToken, Membership, Organisation, Role
from portal.events.services import event_record

SCOPES = ("read", "usage:write")
TOKEN_LIFE = timedelta(days=365)


class AccountsError(ValueError):
    """A value that cannot be used: names the field, the value got and the value wanted."""


@transaction.atomic
def organisation_create(
    *,
    slug: str,
    name: str,
    address: str = "",
    country: str = "DE",
    vat_id: str = "",
    is_operating: bool = False,
) -> Organisation:
    """Create an organisation, or return the one with this slug unchanged."""
    found = Organisation.objects.filter(slug=slug).first()
    if found:
        return found
    organisation = Organisation(
        slug=slug,
        name=name,
        address=address,
        country=country,
        vat_id=vat_id,
        is_operating=is_operating,
    )
    organisation.full_clean()
    organisation.save(force_insert=True)
    event_record(
        action="organisation.create",
        actor=Platform(organisation),
        subject=organisation,
        organisation=organisation,
        data={"slug": slug, "name": name},
    )
    return organisation


@transaction.atomic
def member_add(
    *,
    actor: Actor,
    organisation: Organisation,
    username: str,
    role: str,
    password: str | None = None,
    expires_at: datetime | None = None,
) -> Membership:
    """Give a person a role; makes the account when it is new. Same call again: no change.

    AccountsError for an unknown role, or an expiry on a role that is not the auditor's.
    """
    require(actor, "member.add", organisation)
    if role not in Role.values:
        raise AccountsError(f"role: got {role!r}; wanted one of {', '.join(Role.values)}")
    if expires_at is not None and role != Role.AUDITOR:
        raise AccountsError(f"expires_at: only an auditor's access expires, role is {role}")
    user = User.objects.filter(username=username).first()
    if user is None:
        user = User.objects.create_user(username=username, password=password)
    member, made = Membership.objects.get_or_create(
        user=user, organisation=organisation, role=role, defaults={"expires_at": expires_at}
    )
    if made:
        event_record(
            action="member.add",
            actor=actor,
            subject=member,
            organisation=organisation,
            data={"username": username, "role": role},
        )
    return member


@transaction.atomic
def token_create(
    *, actor: Membership, name: str, scopes: list[str], expires_at: datetime | None = None
) -> tuple[ApiToken, str]:
    """Make a token for the actor; the second value is its text, which is shown only now."""
    require(actor, "token.create", actor.organisation)
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise AccountsError(f"scopes: got {scopes}; wanted some of {', '.join(SCOPES)}")
    if "usage:write" in scopes and actor.role != Role.CUSTOMER:
        raise AccountsError(f"scopes: usage:write is for customers, role is {actor.role}")
    prefix, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    token = ApiToken(
        membership=actor,
        name=name,
        prefix=prefix,
        secret_sha256=hashlib.sha256(secret.encode()).hexdigest(),
        scopes=sorted(set(scopes)),
        expires_at=expires_at or timezone.now() + TOKEN_LIFE,
    )
    token.save(force_insert=True)
    event_record(
        action="token.create",
        actor=actor,
        subject=token,
        organisation=actor.organisation,
        data={"name": name, "prefix": prefix, "scopes": token.scopes},
    )
    return token, f"ign_{prefix}_{secret}"


@transaction.atomic
def token_revoke(*, actor: Membership, token: ApiToken) -> ApiToken:
    """Make a token useless from now on; revoking twice keeps the first time."""
    require(actor, "token.revoke", token.membership.organisation)
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
        event_record(
            action="token.revoke",
            actor=actor,
            subject=token,
            organisation=token.membership.organisation,
            data={"prefix": token.prefix},
        )
    return token


def token_verify(*, text: str) -> ApiToken | None:
    """Return the live token this text belongs to, or None; compares in constant time."""
    parts = text.split("_", 2)
    if len(parts) != 3 or parts[0] != "ign":
        return None
    token = (
        ApiToken.objects.select_related("membership__organisation", "membership__user")
        .filter(prefix=parts[1])
        .first()
    )
    given = hashlib.sha256(parts[2].encode()).hexdigest()
    if token is None or not constant_time_compare(given, token.secret_sha256):
        return None
    now = timezone.now()
    if (
        token.revoked_at is not None
        or (token.expires_at is not None and token.expires_at <= now)
        or not token.membership.is_active(now)
    ):
        return None
    # Once a minute is enough to say "last used", and keeps reads from becoming writes.
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token
