"""Settings for pytest: an own home per test run, quick password hashing, no lock-out."""

import os
import tempfile

os.environ.setdefault("IGNITION_HOME", tempfile.mkdtemp(prefix="ignition-test-"))

from portal.settings.base import *  # noqa: F403
from portal.settings.base import IGNITION_HOME, database

SECRET_KEY = "only-for-tests-and-never-deployed"  # noqa: S105
DATABASES = {"default": database(f"sqlite:///{IGNITION_HOME / 'portal' / 'db.sqlite3'}")}
(IGNITION_HOME / "portal").mkdir(parents=True, exist_ok=True)
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AXES_ENABLED = False
CELERY_TASK_ALWAYS_EAGER = True
CELERY_BROKER_URL = "memory://"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
