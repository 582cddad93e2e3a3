"""Django's entry for this app."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "portal.runs"
