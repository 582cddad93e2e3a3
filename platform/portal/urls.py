"""The root of all routes: pages from `portal.web`, the API from `portal.api`."""

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path

from portal.api.root import api

urlpatterns: list[URLPattern | URLResolver] = [path("api/", api.urls)]
if find_spec("portal.web.urls"):
    urlpatterns.append(path("", include("portal.web.urls")))
