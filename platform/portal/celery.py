"""The Celery application: it wakes workers, and that is all it does.

The database is the queue of record (`portal.runs.jobs`). A lost message is a delay until the next
sweep, never lost work, so no result back end, no chords and no long ETAs are used here.
"""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.embedded")

app = Celery("portal")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
