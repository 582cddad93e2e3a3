"""All routes of the portal's pages; each app keeps its own under its own path."""

from django.urls import URLPattern, URLResolver, include, path

from portal.web import views

urlpatterns: list[URLPattern | URLResolver] = [
    path("", views.dashboard, name="home"),
    path("sign-in/", views.SignIn.as_view(), name="login"),
    path("sign-out/", views.SignOut.as_view(), name="logout"),
    path("switch/", views.switch, name="switch"),
    path("", include("portal.registry.urls")),
    path("contracts/", include("portal.contracts.urls")),
    path("", include("portal.runs.urls")),
    path("audits/", include("portal.audits.urls")),
    path("billing/", include("portal.billing.urls")),
    path("downloads/", include("portal.documents.urls")),
    path("events/", include("portal.events.urls")),
]
