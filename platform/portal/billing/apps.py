"""Django's entry for this app."""

from django.apps import AppConfig


class BillingConfig(AppConfig):
    name = "portal.billing"
