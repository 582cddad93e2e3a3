"""Who calls: a bearer token names a member, and its scopes say what it is for."""

from typing import cast

from django.http import HttpRequest
from ninja.security import HttpBearer

from portal.accounts.access import NotAllowed
from portal.accounts.models import ApiToken, Membership
from portal.accounts.services import token_verify


class TokenAuth(HttpBearer):
    """Accept a live token that has `scope`; `request.auth` is then its row."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken | None:
        """The token's row, None for one that is not live; NotAllowed when the scope is missing."""
        found = token_verify(text=token)
        if found is not None and self.scope not in found.scopes:
            raise NotAllowed(f"token {found.prefix}: has no scope {self.scope}; make one that has")
        return found


def actor_of(request: HttpRequest) -> Membership:
    """The member behind an authenticated request."""
    return cast(ApiToken, request.auth).membership  # type: ignore[attr-defined]
