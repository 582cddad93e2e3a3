"""The portal: the only room that knows Django, Celery and the database.

In: the three engines (kernelgen, metering, reports) and what people send. Out: pages, an API,
records and documents. No measuring, pricing or signing is written here: the engines do that.
"""

from portal.celery import app as celery_app

__all__ = ["celery_app"]
