"""Sign in and out, choosing the organisation to act for, the dashboard, the expired form.

The pages for 403, 404 and 500 are `templates/*.html` beside this file; Django draws them itself.
"""

from typing import Any

from django.contrib.auth.views import LoginView, LogoutView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.web.access import SESSION_KEY, ActorRequest, for_members
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


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """403: the form came without its token, mostly after a long pause."""
    context = {
        "title": "The form has expired",
        "what": "The form was sent without a valid token, so nothing was changed.",
        "next": "Open the page again and send the form once more. Cookies must be allowed.",
    }
    return render(request, "portal/error.html", context, status=403)
