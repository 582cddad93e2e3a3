"""Django's entry for this app."""

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "portal.accounts"
