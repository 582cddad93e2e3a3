"""Sign in and out, choosing the organisation to act for, the dashboard, and error pages."""

from typing import Any

from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.web.access import SESSION_KEY, ActorRequest, for_members, refusal
from portal.web.dashboard import overview


class SignIn(LoginView):
    """User name and password; django-axes locks out after repeated failures."""

    template_name = "portal/sign_in.html"
    redirect_authenticated_user = False

    def get_form(self, form_class: Any = None) -> Any:
        """The form, with what browsers and screen readers need to fill it."""
        form = super().get_form(form_class)
        form.fields["username"].label = "User name"
        return form


class SignOut(LogoutView):
    """POST only, so that no link on another site can sign a person out."""


@require_safe
@for_members
def dashboard(request: ActorRequest) -> HttpResponse:
    """What is going on and what this role should do next."""
    return render(request, "portal/dashboard.html", overview(request.actor))


@require_POST
@for_members
def switch(request: ActorRequest) -> HttpResponse:
    """Act for another of the person's own memberships; anybody else's is not there."""
    wanted = request.POST.get("membership", "")
    if wanted not in {str(membership.pk) for membership in request.memberships}:
        raise Http404("no such membership")
    request.session[SESSION_KEY] = wanted
    return redirect("home")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """403: the wrong role, with what to do."""
    return refusal(request, str(exception or ""))


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """404: not there, or not yours to see; the two look the same on purpose."""
    context = {
        "title": "Not found",
        "what": "There is no such page, or it belongs to an organisation you are not acting for.",
        "next": "Check the address, or switch organisation if you belong to several.",
    }
    return render(request, "portal/error.html", context, status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """500: our fault; nothing was half done, each write is one transaction."""
    context = {
        "title": "Something broke on our side",
        "what": "The page could not be made. Nothing was half done: a write is one transaction.",
        "next": "Try again; if it happens again, tell the operator the time and the address.",
    }
    return render(request, "portal/error.html", context, status=500)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form came without its token, mostly after a long pause."""
    context = {
        "title": "The form has expired",
        "what": "The form was sent without a valid token, so nothing was changed.",
        "next": "Open the page again and send the form once more. Cookies must be allowed.",
    }
    return render(request, "portal/error.html", context, status=403)
