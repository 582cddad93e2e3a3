"""Django's entry for this app; also hangs the triggers behind every migration."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class EventsConfig(AppConfig):
    name = "portal.events"

    def ready(self) -> None:
        from portal.triggers import install_after_migrate

        # Sent for this app after all migrations ran; the receiver still looks for every table.
        post_migrate.connect(install_after_migrate, sender=self)
