"""Settings for pytest: an own home per test run, quick password hashing, no lock-out."""

import tempfile
from pathlib import Path

from portal.settings.base import *  # noqa: F403
from portal.settings.base import database

# Not through the environment: other rooms' tests read the real home's model cache from there.
IGNITION_HOME = Path(tempfile.mkdtemp(prefix="ignition-test-"))
STATIC_ROOT = IGNITION_HOME / "static"
STATIC_ROOT.mkdir()
MEDIA_ROOT = IGNITION_HOME / "documents"

SECRET_KEY = "only-for-tests-and-never-deployed"  # noqa: S105
(IGNITION_HOME / "portal").mkdir(parents=True, exist_ok=True)
DATABASES = {"default": database(f"sqlite:///{IGNITION_HOME / 'portal' / 'db.sqlite3'}")}
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A file, not memory: tests with threads need two real connections.
    # No test pulls the plug of the machine, so none waits for the disk.
    DATABASES["default"]["OPTIONS"]["init_command"] += " PRAGMA synchronous=OFF;"
    DATABASES["default"]["TEST"] = {"NAME": str(IGNITION_HOME / "portal" / "test.sqlite3")}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
AXES_ENABLED = False
CELERY_TASK_ALWAYS_EAGER = True
CELERY_BROKER_URL = "memory://"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
