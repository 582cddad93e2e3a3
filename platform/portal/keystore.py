"""The platform's own keys and log: where they lie and how they are opened.

In: IGNITION_HOME and a passphrase (IGNITION_KEY_PASSPHRASE, or a random one kept beside the keys
in embedded mode, which a report states as `software keys`). Out: the platform's `KeySet`, its
transparency log, and a trust store built from registered public keys. An auditor's private key
has no place here, and nothing here reads one.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from portal.settings.base import secret_from_file
from portal.workspace import home, write
from reports.keys import LOG_ORIGIN, KeySet, create_platform_keys
from reports.log import TransparencyLog
from reports.trust import TrustStore, export_trust


def platform_keys_dir() -> Path:
    """The folder of the platform's keys."""
    return home() / "keys" / "platform"


def platform_keys() -> KeySet:
    """Load the platform's keys, making them on the first call; safe to call at any time."""
    return _load(platform_keys_dir(), _passphrase())


@lru_cache(maxsize=4)
def _load(directory: Path, passphrase: str) -> KeySet:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return create_platform_keys(directory, passphrase)


def _passphrase() -> str:
    stated: str = settings.KEY_PASSPHRASE
    return stated or secret_from_file(home() / "keys" / "passphrase")


def transparency_log() -> TransparencyLog:
    """The append-only log that every baseline and every bundle goes into."""
    return TransparencyLog(home() / "documents" / "log", LOG_ORIGIN)


def trust_store(auditor_key_id: str, public_files: Mapping[str, str]) -> TrustStore:
    """Build the trust folder of the platform and one registered auditor; returns it loaded.

    `public_files` are the auditor's registered public halves by file name.
    """
    auditor = home() / "keys" / "auditors" / auditor_key_id
    for name, text in sorted(public_files.items()):
        write(auditor / name, text.encode("ascii"))
    platform_keys()
    return export_trust(platform_keys_dir(), auditor, auditor / "trust")
