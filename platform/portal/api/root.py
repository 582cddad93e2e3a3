"""The one NinjaAPI; every router hangs here, every error has one shape.

In: requests with a bearer token. Out: JSON; `{"error": ...}` for every refusal. What a token sees
is what its member sees: the same selectors, the same 404 for what belongs to somebody else.
"""

from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError

from portal.accounts.access import NotAllowed
from portal.api.auth import TokenAuth
from portal.api.billing import router as billing
from portal.api.periods import router as periods
from portal.api.registry import router as registry
from portal.api.runs import router as runs
from portal.api.usage import router as usage

api = NinjaAPI(
    title="Ignition",
    version="1",
    urls_namespace="api",
    description="Systems, baselines, measurements, usage and invoices of one organisation.",
    auth=TokenAuth("read"),
)
api.add_router("", registry)
api.add_router("", runs)
api.add_router("", usage)
api.add_router("", billing)
api.add_router("", periods)


@api.exception_handler(Http404)
def not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    """Not there, or not yours: the two look the same."""
    return api.create_response(request, {"error": "not found"}, status=404)


@api.exception_handler(NotAllowed)
def forbidden(request: HttpRequest, error: NotAllowed) -> HttpResponse:
    """The member's role or the token's scope does not permit this."""
    return api.create_response(request, {"error": str(error)}, status=403)


@api.exception_handler(AuthenticationError)
def unauthenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    """No token, a wrong one, a revoked or expired one."""
    return api.create_response(
        request, {"error": "send a live token: 'Authorization: Bearer ign_...'"}, status=401
    )
