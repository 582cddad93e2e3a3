"""The default: one machine, SQLite under IGNITION_HOME, tasks run in the calling process."""

from portal.settings.base import *  # noqa: F403
from portal.settings.base import IGNITION_HOME, database, env, secret_from_file

SECRET_KEY = env.str("SECRET_KEY", default="") or secret_from_file(
    IGNITION_HOME / "portal" / "secret_key"
)
DATABASES = {"default": database(f"sqlite:///{IGNITION_HOME / 'portal' / 'db.sqlite3'}")}
