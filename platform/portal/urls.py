"""The root of all routes: pages from `portal.web`, the API from `portal.api`."""

from django.urls import URLPattern, URLResolver, include, path

from portal.api.root import api

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.urls),
    path("", include("portal.web.urls")),
]

handler403 = "portal.web.views.forbidden"
handler404 = "portal.web.views.not_found"
handler500 = "portal.web.views.server_error"
