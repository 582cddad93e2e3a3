"""The two sides of a report, with real keys, as the tests need them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reports.keys import KeySet, create_auditor_keys, create_platform_keys
from reports.trust import TrustStore, export_trust

PASSPHRASE = "correct horse battery staple"


@dataclass(frozen=True)
class Sides:
    """Both sides' key folders and keys, and the public trust folder between them."""

    platform_dir: Path
    auditor_dir: Path
    trust_dir: Path
    platform: KeySet
    auditor: KeySet
    trust: TrustStore


def make_sides(base: Path) -> Sides:
    platform = create_platform_keys(base / "platform", PASSPHRASE)
    auditor = create_auditor_keys(base / "auditor", organisation="Northlight Assurance")
    trust = export_trust(base / "platform", base / "auditor", base / "trust")
    return Sides(base / "platform", base / "auditor", base / "trust", platform, auditor, trust)
