"""Who asks: gives every view its actor (a Membership) and refuses the wrong role with a way out.

In: a request. Out: `request.actor`, or the sign-in page, or a 403 page that says what to do. What an
actor may *see* is decided by selectors, which filter by organisation: a foreign object is a 404 there,
never a 403 here.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from csp.decorators import csp_update
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

from portal.accounts.models import Membership, Role

SESSION_KEY = "membership"

View = Callable[..., HttpResponseBase]


class ActorRequest(HttpRequest):
    """A request that passed `for_roles`: its actor is known."""

    actor: Membership
    memberships: list[Membership]


def memberships_of(request: HttpRequest) -> list[Membership]:
    """The signed-in person's active memberships, in a stable order."""
    if not request.user.is_authenticated:
        return []
    rows = Membership.objects.filter(user=request.user).select_related("organisation", "user")
    return [row for row in rows if row.is_active()]


def for_roles(*roles: str) -> Callable[[View], View]:
    """Let only members with one of `roles` in; no roles means any member.

    The allowed roles stay readable on the view (`view.roles`), so a test can hold every URL against
    its table and find a view that forgot to ask. The chosen membership comes from the session; a
    choice that is no longer active falls back to the first active one.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                return redirect_to_login(request.get_full_path())
            memberships = memberships_of(request)
            if not memberships:
                raise PermissionDenied(
                    "Your account is not an active member of any organisation, or its access has "
                    "expired. Ask the person who invited you to renew it."
                )
            chosen = request.session.get(SESSION_KEY)
            actor = next((m for m in memberships if str(m.pk) == chosen), memberships[0])
            asked = cast(ActorRequest, request)
            asked.memberships = memberships
            asked.actor = actor
            if roles and actor.role not in roles:
                raise PermissionDenied(
                    f"This page is for {' or '.join(sorted(roles))}; you are signed in as "
                    f"{actor.role} of {actor.organisation}. Switch role at the top of any page "
                    "if you have another, or ask a colleague who has it."
                )
            return view(request, *args, **kwargs)

        cast(Any, wrapped).roles = frozenset(roles or Role.values)
        return wrapped

    return decorate


def chart_page(view: View) -> View:
    """Allow what Plotly needs on this page alone: inline styles and blob images."""
    allow: dict[str, Any] = {"style-src": ["'unsafe-inline'"], "img-src": ["blob:"]}
    return cast(View, csp_update(allow)(cast(Any, view)))
