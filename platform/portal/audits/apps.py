"""Django's entry for this app."""

from django.apps import AppConfig


class AuditsConfig(AppConfig):
    name = "portal.audits"
