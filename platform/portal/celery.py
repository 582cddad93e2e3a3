"""The Celery application: it wakes workers, and that is all it does.

The database is the queue of record (`portal.runs.jobs`). A lost message is a delay until the next
sweep, never lost work, so no result back end, no chords and no long ETAs are used here. Every
worker looks at the queue itself every few seconds: without Redis nobody else could wake it.
"""

import os
import threading
from typing import Any

from celery import Celery
from celery.signals import worker_ready

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.embedded")

LOOK_EVERY_S = 5.0

app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_ready.connect
def look_for_work(**kwargs: Any) -> None:
    """Start the thread that sends this worker a sweep every few seconds while it lives."""
    pause = threading.Event()

    def look() -> None:
        while not pause.wait(LOOK_EVERY_S):
            app.send_task("portal.runs.tasks.sweep")

    threading.Thread(target=look, name="look-for-work", daemon=True).start()
