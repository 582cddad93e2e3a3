"""Django's entry for this app."""

from django.apps import AppConfig


class ContractsConfig(AppConfig):
    name = "portal.contracts"
