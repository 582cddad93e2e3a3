"""Registers the shell with Django: static files, template tags, the static file finder."""

from django.apps import AppConfig


class WebConfig(AppConfig):
    """The app that owns base pages; it has no models."""

    name = "portal.web"
    label = "web"
    verbose_name = "Portal pages"
