"""The door for a WSGI server (gunicorn in production)."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings.embedded")

application = get_wsgi_application()
