"""Django's entry for this app."""

from django.apps import AppConfig


class DocumentsConfig(AppConfig):
    name = "portal.documents"
