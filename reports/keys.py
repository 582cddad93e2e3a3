"""Keys: one purpose each, made on the side that uses them, kept in files only the owner reads.

In: a directory and a passphrase. Out: key files (0600, PKCS#8 encrypted when a passphrase is
given), their public halves, and the loaded `KeySet`. The platform's tool makes the platform's
keys, the auditor's own tool makes the auditor's; no code here ever reads both private halves.
A key's id is the SHA-256 of its SubjectPublicKeyInfo, so that no document can choose its own key.

Files: `statement.key` (Ed25519, DSSE), `manifest.key` (Ed25519, `ssh-keygen -Y`), `document.key`
and `document.pem` (P-256, PDF) under `root.key`/`root.pem`, and `log.key` (platform) or
`witness.key` (auditor). Making them is idempotent: what exists stays, what a crash left out is
added, and a public half without its private half is refused.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import NameOID

from reports.errors import ReportError
from reports.pkcs8 import encrypted_pem

Role = Literal["platform", "auditor"]
PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey

# C2SP signed-note: the byte that names the algorithm of a verifier key.
NOTE_ED25519 = 1
NOTE_COSIGNATURE = 4
LOG_ORIGIN = "ignition.example/log"
WITNESS_NAME = "auditor.example/witness"

ROOT_YEARS = 10
DOCUMENT_YEARS = 2
_NOTE_KEY: dict[str, tuple[str, int]] = {
    "platform": (LOG_ORIGIN, NOTE_ED25519),
    "auditor": (WITNESS_NAME, NOTE_COSIGNATURE),
}


@dataclass(frozen=True)
class KeySet:
    """One side's loaded keys. `note` signs checkpoints: the log's key or the witness's."""

    role: Role
    statement: ed25519.Ed25519PrivateKey
    manifest: ed25519.Ed25519PrivateKey
    document: ec.EllipticCurvePrivateKey
    document_certificate: x509.Certificate
    root_certificate: x509.Certificate
    note: ed25519.Ed25519PrivateKey
    note_name: str


def spki(key: PublicKey) -> bytes:
    return key.public_bytes(ser.Encoding.DER, ser.PublicFormat.SubjectPublicKeyInfo)


def key_id(key: PublicKey) -> str:
    """SHA-256 of the SubjectPublicKeyInfo, in hex."""
    return hashlib.sha256(spki(key)).hexdigest()


def public_pem(key: PublicKey) -> bytes:
    return key.public_bytes(ser.Encoding.PEM, ser.PublicFormat.SubjectPublicKeyInfo)


def openssh_line(key: ed25519.Ed25519PublicKey) -> str:
    """`ssh-ed25519 AAAA...`, without a comment."""
    return key.public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode("ascii")


def raw_public(key: ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(ser.Encoding.Raw, ser.PublicFormat.Raw)


def note_key_hash(name: str, algorithm: int, key: ed25519.Ed25519PublicKey) -> bytes:
    """The four bytes that point a note signature at its key (C2SP signed-note)."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([algorithm]) + raw_public(key)).digest()[:4]


def note_vkey(name: str, algorithm: int, key: ed25519.Ed25519PublicKey) -> str:
    """`name+hash+base64`, the C2SP text form of a verifier key."""
    encoded = base64.b64encode(bytes([algorithm]) + raw_public(key)).decode("ascii")
    return f"{name}+{note_key_hash(name, algorithm, key).hex()}+{encoded}"


def create_platform_keys(
    directory: Path,
    passphrase: str,
    *,
    organisation: str = "Ignition",
    now: datetime | None = None,
) -> KeySet:
    """Make what is missing of the platform's keys in `directory` and load them all.

    Raises ReportError for an empty passphrase, a wrong one, or a public half that has lost its
    private half.
    """
    if not passphrase:
        raise ReportError("the platform's keys need a passphrase; got none. Set one and try again.")
    return _create(directory, "platform", passphrase, organisation, now or datetime.now(UTC))


def create_auditor_keys(
    directory: Path,
    passphrase: str | None = None,
    *,
    organisation: str = "Independent auditor",
    now: datetime | None = None,
) -> KeySet:
    """The auditor's own tool: make what is missing of their keys in `directory` and load them.

    Without a passphrase the files are protected by their mode (0600) alone and `manifest.key` is
    an OpenSSH key that `ssh-keygen -Y sign` can use directly.
    """
    return _create(directory, "auditor", passphrase, organisation, now or datetime.now(UTC))


def load_keys(directory: Path, role: Role, passphrase: str | None = None) -> KeySet:
    """Load a complete key directory. Raises ReportError naming the missing or locked file."""
    names = ("document", "statement", "manifest", _note_file(role))
    loaded = {name: _load_private(directory / f"{name}.key", passphrase) for name in names}
    return _key_set(directory, role, loaded)


def _key_set(directory: Path, role: Role, keys: dict[str, PrivateKey]) -> KeySet:
    document, note = keys["document"], _note_file(role)
    if not isinstance(document, ec.EllipticCurvePrivateKey):
        raise ReportError(f"{directory / 'document.key'}: got another kind of key, wanted P-256")
    certificate = load_certificate(directory / "document.pem")
    if key_id(_cert_key(certificate)) != key_id(document.public_key()):
        raise ReportError(f"{directory / 'document.pem'} does not belong to document.key")
    return KeySet(
        role=role,
        statement=_ed25519(keys["statement"], directory / "statement.key"),
        manifest=_ed25519(keys["manifest"], directory / "manifest.key"),
        document=document,
        document_certificate=certificate,
        root_certificate=load_certificate(directory / "root.pem"),
        note=_ed25519(keys[note], directory / f"{note}.key"),
        note_name=_NOTE_KEY[role][0],
    )


def load_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError as error:
        raise ReportError(f"{path} is missing; wanted a certificate in PEM") from error
    except ValueError as error:
        raise ReportError(f"{path} is not a certificate in PEM: {error}") from error


def load_public_pem(data: bytes) -> PublicKey:
    try:
        key = ser.load_pem_public_key(data)
    except ValueError as error:
        raise ReportError(f"not a public key in PEM: {error}") from error
    if not isinstance(key, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey):
        raise ReportError("public key is neither Ed25519 nor P-256")
    return key


def write_private_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write the whole file or none of it: temporary file, fsync, rename, fsync of the folder."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _note_file(role: Role) -> str:
    return "log" if role == "platform" else "witness"


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _create(
    directory: Path, role: Role, passphrase: str | None, organisation: str, now: datetime
) -> KeySet:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    note = _note_file(role)
    public_of = {
        "root": "root.pem",
        "document": "document.pem",
        "statement": "statement.pub.pem",
        "manifest": "manifest.pub",
        note: f"{note}.vkey",
    }
    with _locked(directory):
        for name, public in public_of.items():
            if (directory / public).exists() and not (directory / f"{name}.key").exists():
                raise ReportError(
                    f"{directory / public} exists but its private half {name}.key does not. "
                    f"Restore {name}.key from the backup, or use a new directory."
                )
        keys: dict[str, PrivateKey] = {}
        for name in public_of:
            path = directory / f"{name}.key"
            if path.exists():
                keys[name] = _load_private(path, passphrase)
                continue
            made: PrivateKey = (
                ec.generate_private_key(ec.SECP256R1())
                if name in {"root", "document"}
                else ed25519.Ed25519PrivateKey.generate()
            )
            write_private_file(path, _private_bytes(made, passphrase, name))
            keys[name] = made
        _write_public(directory, role, keys, organisation, now)
    return _key_set(directory, role, keys)


def _write_public(
    directory: Path, role: Role, keys: dict[str, PrivateKey], organisation: str, now: datetime
) -> None:
    def missing(name: str) -> bool:
        return not (directory / name).exists()

    root, document = keys["root"], keys["document"]
    if not isinstance(root, ec.EllipticCurvePrivateKey):
        raise ReportError(f"{directory / 'root.key'}: got another kind of key, wanted P-256")
    if missing("root.pem"):
        made = _certificate(organisation, f"{organisation} root", root, None, root, now)
        write_private_file(directory / "root.pem", made, 0o644)
    if missing("document.pem"):
        issuer = load_certificate(directory / "root.pem")
        name = f"{organisation} documents"
        made = _certificate(organisation, name, document, issuer, root, now)
        write_private_file(directory / "document.pem", made, 0o644)
    if missing("statement.pub.pem"):
        pem = public_pem(keys["statement"].public_key())
        write_private_file(directory / "statement.pub.pem", pem, 0o644)
    if missing("manifest.pub"):
        line = openssh_line(_ed25519(keys["manifest"], directory).public_key())
        write_private_file(directory / "manifest.pub", f"{line} {role}\n".encode(), 0o644)
    note = _note_file(role)
    if missing(f"{note}.vkey"):
        key = _ed25519(keys[note], directory).public_key()
        vkey = note_vkey(*_NOTE_KEY[role], key)
        write_private_file(directory / f"{note}.vkey", f"{vkey}\n".encode(), 0o644)


def _certificate(
    organisation: str,
    common_name: str,
    key: PrivateKey,
    issuer: x509.Certificate | None,
    signer: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> bytes:
    """A certificate in PEM: self-signed root when `issuer` is None, else a PDF signer's."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    years = ROOT_YEARS if issuer is None else DOCUMENT_YEARS
    is_root = issuer is None
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # An hour back: the reader's clock may run behind ours.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * years))
        .add_extension(x509.BasicConstraints(is_root, 0 if is_root else None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_root,
                content_commitment=not is_root,
                key_cert_sign=is_root,
                crl_sign=is_root,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(ser.Encoding.PEM)


def _private_bytes(key: PrivateKey, passphrase: str | None, name: str) -> bytes:
    if passphrase:
        der = key.private_bytes(ser.Encoding.DER, ser.PrivateFormat.PKCS8, ser.NoEncryption())
        return encrypted_pem(der, passphrase)
    # ssh-keygen 9.2 signs with an OpenSSH key file and refuses Ed25519 in PKCS#8.
    form = ser.PrivateFormat.OpenSSH if name == "manifest" else ser.PrivateFormat.PKCS8
    return key.private_bytes(ser.Encoding.PEM, form, ser.NoEncryption())


def _load_private(path: Path, passphrase: str | None) -> PrivateKey:
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ReportError(f"{path} is missing; make the keys first") from error
    if path.stat().st_mode & 0o077:
        raise ReportError(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        if b"BEGIN OPENSSH PRIVATE KEY" in data:
            key: object = ser.load_ssh_private_key(data, None)
        else:
            secret = passphrase.encode() if passphrase else None
            key = ser.load_pem_private_key(data, secret)
    except (ValueError, TypeError) as error:
        raise ReportError(
            f"{path} does not open with this passphrase, or is damaged: {error}. "
            "Give the passphrase it was made with, or restore it from the backup."
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey):
        raise ReportError(f"{path}: got another kind of key, wanted Ed25519 or P-256")
    return key


def _ed25519(key: PrivateKey, path: Path) -> ed25519.Ed25519PrivateKey:
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ReportError(f"{path}: got another kind of key, wanted Ed25519")
    return key


def _cert_key(certificate: x509.Certificate) -> PublicKey:
    key = certificate.public_key()
    if not isinstance(key, ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey):
        raise ReportError("certificate holds neither an Ed25519 nor a P-256 key")
    return key
