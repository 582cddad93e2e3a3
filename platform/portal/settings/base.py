"""Every setting of the portal, read once from the environment by strict readers.

In: environment variables (named beside each setting). Out: Django's settings. A wrong value stops
the start with a message; nothing here opens a connection. PostgreSQL and Redis are reached by
DATABASE_URL and REDIS_URL alone: no code changes.
"""

import os
import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from portal.web import assets

env = environ.Env()

PROJECT_ROOT = Path(__file__).resolve().parents[3]
# Everything the product writes lies under this one folder.
IGNITION_HOME = Path(env.str("IGNITION_HOME", default=str(PROJECT_ROOT / "var"))).resolve()
IGNITION_VERSION = "0.1.0"


def secret_from_file(path: Path) -> str:
    """Return the secret in `path`, making a random one (mode 0600) on the first call."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return path.read_text(encoding="ascii").strip()
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(secrets.token_urlsafe(48))
    return path.read_text(encoding="ascii").strip()


DEBUG = env.bool("IGNITION_DEBUG", default=False)
ALLOWED_HOSTS: list[str] = env.list(
    "IGNITION_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"]
)
CSRF_TRUSTED_ORIGINS: list[str] = env.list("IGNITION_TRUSTED_ORIGINS", default=[])

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "axes",
    "csp",
    "django_filters",
    "django_htmx",
    "django_tables2",
    "portal.events",
    "portal.accounts",
    "portal.registry",
    "portal.contracts",
    "portal.runs",
    "portal.audits",
    "portal.billing",
    "portal.documents",
    "portal.web",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [PROJECT_ROOT / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_VERBOSE = False
AXES_LOCKOUT_TEMPLATE = assets.AXES_LOCKOUT_TEMPLATE

LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "static/"
STATIC_ROOT = IGNITION_HOME / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
MEDIA_ROOT = IGNITION_HOME / "documents"

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = env.bool("IGNITION_HTTPS", default=False)
CSRF_COOKIE_SECURE = SESSION_COOKIE_SECURE
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# The pages' own needs are named beside the pages.
CONTENT_SECURITY_POLICY = assets.CONTENT_SECURITY_POLICY
STATICFILES_FINDERS = assets.STATICFILES_FINDERS
CSRF_FAILURE_VIEW = assets.CSRF_FAILURE_VIEW
DJANGO_TABLES2_TEMPLATE = assets.DJANGO_TABLES2_TEMPLATE
DATA_UPLOAD_MAX_MEMORY_SIZE = 32 * 1024 * 1024

# Celery only wakes: JSON only, no result back end, one message at a time, redelivered when lost.
REDIS_URL = env.str("REDIS_URL", default="")
CELERY_BROKER_URL = REDIS_URL or "memory://localhost/"
# Only tests run tasks in the caller: a page must never wait for a measurement.
CELERY_TASK_ALWAYS_EAGER = False
CELERY_TASK_EAGER_PROPAGATES = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = "UTC"
CELERY_BROKER_TRANSPORT_OPTIONS = (
    {"visibility_timeout": 7200, "unacked_restore_interval": 10} if REDIS_URL else {}
)
# Empty: a random passphrase is kept beside the keys (and reports say "software keys").
KEY_PASSPHRASE = env.str("IGNITION_KEY_PASSPHRASE", default="")

# How long one worker may hold a job without a heartbeat before the sweeper takes it back.
JOB_LEASE_SECONDS = env.int("IGNITION_JOB_LEASE_SECONDS", default=90)
JOB_MAX_ATTEMPTS = env.int("IGNITION_JOB_MAX_ATTEMPTS", default=3)
# How often a baseline is measured again although no stack changed, in days.
BASELINE_EVERY_DAYS = env.int("IGNITION_BASELINE_EVERY_DAYS", default=90)
if BASELINE_EVERY_DAYS < 1:
    raise ImproperlyConfigured(
        f"IGNITION_BASELINE_EVERY_DAYS: got {BASELINE_EVERY_DAYS}; wanted a whole number from 1"
    )

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": env.str("IGNITION_LOG_LEVEL", default="WARNING")},
}


def database(default: str) -> dict[str, Any]:
    """Return Django's database entry for DATABASE_URL or `default`.

    SQLite gets write-ahead logging and BEGIN IMMEDIATE, so that two writers queue at the start of
    a transaction instead of failing in its middle.
    """
    entry: dict[str, Any] = env.db_url("DATABASE_URL", default=default)
    if entry["ENGINE"].endswith("sqlite3"):
        entry["OPTIONS"] = {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            " PRAGMA foreign_keys=ON;",
        }
    return entry
