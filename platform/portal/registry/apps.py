"""Django's entry for this app."""

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "portal.registry"
