"""Who asks: gives every view its actor (a Membership) and refuses the wrong role with a way out.

In: a request. Out: `request.actor`, or the sign-in page, or a 403 page that says what to do. Which
role sees what is one table, `portal.accounts.access`; this module only asks it. What an actor may
*see* is cut by selectors: a foreign object is a 404 there, never a 403 here.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from csp.decorators import csp_update
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render

from portal.accounts.access import EVERYONE, MAY, SEES, NotAllowed
from portal.accounts.models import Membership
from portal.accounts.selectors import memberships_of

SESSION_KEY = "membership"

View = Callable[..., HttpResponseBase]


class ActorRequest(HttpRequest):
    """A request that passed one of the decorators below: its actor is known."""

    actor: Membership
    memberships: list[Membership]


def refusal(request: HttpRequest, what: str) -> HttpResponse:
    """The 403 page: what was refused and what to do about it."""
    context = {
        "title": "Not for this role",
        "what": what or "Your role does not open this page.",
        "next": "Switch role at the top of your dashboard if you have another, or ask a colleague "
        "who has it.",
    }
    return render(request, "portal/error.html", context, status=403)


def for_members(view: View) -> View:
    """Let any active member in."""
    return _guard(view, EVERYONE)


def for_readers_of(subject: str) -> Callable[[View], View]:
    """Let in the roles that see `subject` (a key of `portal.accounts.access.SEES`)."""
    return lambda view: _guard(view, SEES[subject])


def for_doers_of(action: str) -> Callable[[View], View]:
    """Let in the roles that may do `action` (a key of `portal.accounts.access.MAY`)."""
    return lambda view: _guard(view, MAY[action])


def _guard(view: View, roles: frozenset[str]) -> View:
    """Set `request.actor`, or answer with sign-in or 403.

    The allowed roles stay readable on the view (`view.roles`), so a test can hold every URL against
    its table and find a view that forgot to ask. The chosen membership comes from the session; a
    choice that is no longer active falls back to the first active one.
    """

    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        memberships = list(memberships_of(user_id=request.user.pk))
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
        if actor.role not in roles:
            raise PermissionDenied(
                f"This page is for {' or '.join(sorted(map(str, roles)))}; you are signed in as "
                f"{actor.role} of {actor.organisation}."
            )
        try:
            return view(request, *args, **kwargs)
        except NotAllowed as error:
            raise PermissionDenied(str(error)) from error

    cast(Any, wrapped).roles = frozenset(map(str, roles))
    return wrapped


def chart_page(view: View) -> View:
    """Allow what Plotly needs on this page alone: inline styles and blob images."""
    allow: dict[str, Any] = {"style-src": ["'unsafe-inline'"], "img-src": ["blob:"]}
    return cast(View, csp_update(allow)(cast(Any, view)))
