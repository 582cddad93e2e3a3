"""The trust store: public keys and roots that a reader got by another way than the bundle.

In: the public halves of both sides' keys. Out: a directory to publish (`export_trust`) and its
loaded form (`TrustStore`). Nothing private is ever read here, and nothing here is ever taken from
a bundle: a key that travels with what it signs proves nothing.

Files: `keys.json` (role, purpose, id and PEM of each DSSE key), `allowed_signers` (ssh-keygen),
`platform-root.pem` and `auditor-root.pem`, `log.vkey`, `witness.vkey`, optional `revoked_keys`
(ssh-keygen -Q list of public keys), and `README.txt` with the fingerprints to compare by phone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from reports.canonical import canonical_json, strict_json
from reports.errors import ReportError
from reports.keys import (
    PublicKey,
    key_id,
    load_certificate,
    load_public_pem,
    public_pem,
    write_private_file,
)
from reports.note import Verifier
from reports.sshsig import NAMESPACE

FORMAT = "ignition-trust/v1"
ROLES = ("platform", "auditor")


@dataclass(frozen=True)
class TrustedKey:
    """A DSSE key: who holds it, and since when it no longer counts (None = it counts)."""

    role: str
    key: PublicKey
    revoked_at: str | None


@dataclass(frozen=True)
class TrustStore:
    directory: Path
    statement_keys: Mapping[str, TrustedKey]
    roots: Mapping[str, x509.Certificate]
    log: Verifier
    witnesses: tuple[Verifier, ...]

    @property
    def allowed_signers(self) -> Path:
        return self.directory / "allowed_signers"

    @property
    def revoked_keys(self) -> Path | None:
        path = self.directory / "revoked_keys"
        return path if path.exists() else None


def export_trust(platform_dir: Path, auditor_dir: Path, trust_dir: Path) -> TrustStore:
    """Write the public material of both sides to `trust_dir` and load it back.

    Raises ReportError when a public file is missing or one key serves two purposes.
    """
    trust_dir.mkdir(parents=True, exist_ok=True)
    sides = {"platform": platform_dir, "auditor": auditor_dir}
    keys: list[dict[str, Any]] = []
    signers, fingerprints = [], []
    for role, directory in sides.items():
        statement = load_public_pem(_public(directory / "statement.pub.pem"))
        keys.append(
            {
                "key_id": key_id(statement),
                "public_key": public_pem(statement).decode("ascii"),
                "purpose": "statement",
                "revoked_at": None,
                "role": role,
            }
        )
        line = " ".join(_public(directory / "manifest.pub").decode("ascii").split()[:2])
        signers.append(f'{role} namespaces="{NAMESPACE}" {line}\n')
        root = load_certificate(directory / "root.pem")
        pem = _public(directory / "root.pem")
        write_private_file(trust_dir / f"{role}-root.pem", pem, 0o644)
        fingerprints.append(f"{role} statement key   {key_id(statement)}")
        fingerprints.append(f"{role} document root   {root.fingerprint(hashes.SHA256()).hex()}")
        fingerprints.append(f"{role} manifest key    {line}")
    log, witness = _public(platform_dir / "log.vkey"), _public(auditor_dir / "witness.vkey")
    fingerprints.append(f"log                  {log.decode().strip()}")
    fingerprints.append(f"witness              {witness.decode().strip()}")
    write_private_file(trust_dir / "log.vkey", log, 0o644)
    write_private_file(trust_dir / "witness.vkey", witness, 0o644)
    write_private_file(
        trust_dir / "keys.json", canonical_json({"format": FORMAT, "keys": keys}), 0o644
    )
    write_private_file(trust_dir / "allowed_signers", "".join(signers).encode(), 0o644)
    write_private_file(trust_dir / "README.txt", _readme(fingerprints).encode(), 0o644)
    return load_trust(trust_dir)


def load_trust(directory: Path) -> TrustStore:
    """Load and cross-check a trust store. Raises ReportError naming the file that is wrong."""
    document = strict_json(_public(directory / "keys.json"))
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ReportError(f"{directory / 'keys.json'}: wanted format {FORMAT}")
    statement_keys: dict[str, TrustedKey] = {}
    for entry in document.get("keys", []):
        try:
            key = load_public_pem(entry["public_key"].encode("ascii"))
            role, stated, revoked_at = entry["role"], entry["key_id"], entry["revoked_at"]
        except (KeyError, AttributeError, TypeError, UnicodeEncodeError) as error:
            raise ReportError(
                f"{directory / 'keys.json'}: an entry is incomplete: {error}"
            ) from error
        if role not in ROLES or entry.get("purpose") != "statement":
            raise ReportError(
                f"{directory / 'keys.json'}: role {role!r} with purpose {entry.get('purpose')!r}; "
                "wanted platform or auditor, and statement"
            )
        if key_id(key) != stated:
            raise ReportError(f"{directory / 'keys.json'}: key id {stated} is not that of its key")
        if stated in statement_keys:
            raise ReportError(
                f"{directory / 'keys.json'}: key {stated} is listed twice; one key, one purpose"
            )
        statement_keys[stated] = TrustedKey(role, key, revoked_at)
    roots = {role: load_certificate(directory / f"{role}-root.pem") for role in ROLES}
    witnesses = (
        (Verifier.parse(_public(directory / "witness.vkey").decode()),)
        if (directory / "witness.vkey").exists()
        else ()
    )
    store = TrustStore(
        directory=directory,
        statement_keys=statement_keys,
        roots=roots,
        log=Verifier.parse(_public(directory / "log.vkey").decode()),
        witnesses=witnesses,
    )
    _require_one_purpose(store)
    return store


def _require_one_purpose(store: TrustStore) -> None:
    purposes: dict[str, str] = {
        identity: f"{trusted.role} statement" for identity, trusted in store.statement_keys.items()
    }
    others = [(key_id(store.log.key), "log")]
    others += [(key_id(witness.key), "witness") for witness in store.witnesses]
    for number, line in enumerate(_public(store.allowed_signers).decode("utf-8").splitlines()):
        words = line.split()
        if words and not words[0].startswith("#"):
            key = load_ssh_public_key(" ".join(words[-2:]).encode("ascii"))
            if not isinstance(key, ed25519.Ed25519PublicKey):
                raise ReportError(f"{store.allowed_signers} line {number + 1}: wanted ssh-ed25519")
            others.append((key_id(key), f"{words[0]} manifest"))
    for role, root in store.roots.items():
        others.append((key_id(cast(PublicKey, root.public_key())), f"{role} root"))
    for identity, purpose in others:
        if identity in purposes:
            raise ReportError(
                f"key {identity} serves two purposes ({purposes[identity]} and {purpose}); "
                "one key, one purpose"
            )
        purposes[identity] = purpose


def _public(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReportError(
            f"{path} cannot be read ({error.strerror}); wanted public keys"
        ) from error


def _readme(fingerprints: list[str]) -> str:
    return (
        "Ignition trust store: public keys only. Get it from the contract annex, never from a\n"
        "bundle, and compare these fingerprints with the other side by phone or on paper:\n\n"
        + "".join(f"  {line}\n" for line in fingerprints)
        + "\nWith Ignition installed:\n"
        "  python -m reports verify BUNDLE --trust THIS_FOLDER\n"
        "\nTo let pdfsig judge the certificates too (needs certutil from libnss3-tools):\n"
        "  mkdir nss && certutil -N -d sql:nss --empty-password\n"
        '  certutil -A -d sql:nss -n platform -t "CT,C,C" -i platform-root.pem\n'
        '  certutil -A -d sql:nss -n auditor -t "CT,C,C" -i auditor-root.pem\n'
        "  pdfsig -nssdir sql:nss report.pdf\n"
    )
