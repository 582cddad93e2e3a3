"""OpenSSH signatures (`ssh-keygen -Y`): made here, checked by ssh-keygen itself.

In: bytes, an Ed25519 key, a namespace. Out: the armored text that `ssh-keygen -Y verify` reads.
The format is OpenSSH's PROTOCOL.sshsig. Signing is done in this process so that an encrypted key
never has to lie on disk in the clear; verifying is left to the foreign tool, because a reader
should not have to believe our code. Text that is not in the one exact form is refused first.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from reports.errors import ReportError
from reports.keys import raw_public

NAMESPACE = "ignition-report@v1"
_MAGIC = b"SSHSIG"
_HEAD, _TAIL = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_LINE_CHARACTERS = 70
SSH_KEYGEN_SECONDS = 20


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def sign(key: ed25519.Ed25519PrivateKey, data: bytes, namespace: str = NAMESPACE) -> bytes:
    """The armored signature of `data`; Ed25519 is deterministic, so are these bytes."""
    name = namespace.encode("ascii")
    digest = hashlib.sha512(data).digest()
    message = _MAGIC + _string(name) + _string(b"") + _string(b"sha512") + _string(digest)
    blob = (
        _MAGIC
        + struct.pack(">I", 1)
        + _string(_string(b"ssh-ed25519") + _string(raw_public(key.public_key())))
        + _string(name)
        + _string(b"")
        + _string(b"sha512")
        + _string(_string(b"ssh-ed25519") + _string(key.sign(message)))
    )
    return _armor(blob)


def _armor(blob: bytes) -> bytes:
    text = base64.b64encode(blob).decode("ascii")
    lines = [text[at : at + _LINE_CHARACTERS] for at in range(0, len(text), _LINE_CHARACTERS)]
    return "\n".join([_HEAD, *lines, _TAIL, ""]).encode("ascii")


def require_exact_form(signature: bytes) -> None:
    """Refuse armor that ssh-keygen would forgive: spaces, other line lengths, text around it."""
    lines = signature.decode("ascii", "replace").split("\n")
    try:
        blob = base64.b64decode("".join(lines[1:-2]), validate=True)
    except (ValueError, binascii.Error) as error:
        raise ReportError("SSH signature is not base64 in armor") from error
    if _armor(blob) != signature:
        raise ReportError("SSH signature is not in its exact text form; its bytes were changed")


def verify(
    signature: bytes,
    data: bytes,
    *,
    allowed_signers: Path,
    identity: str,
    namespace: str = NAMESPACE,
    revoked_keys: Path | None = None,
    at: str | None = None,
) -> str:
    """Check with ssh-keygen that `identity` signed `data`; returns its one-line answer.

    `at` is a UTC time YYYYMMDDHHMMSS to judge validity dates by. Raises ReportError when the
    signature does not hold, or when ssh-keygen is missing.
    """
    require_exact_form(signature)
    if shutil.which("ssh-keygen") is None:
        raise ReportError("ssh-keygen is not installed; install openssh-client and run again")
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "signature"
        stored.write_bytes(signature)
        command = ["ssh-keygen", "-Y", "verify", "-f", str(allowed_signers), "-I", identity]
        command += ["-n", namespace, "-s", str(stored)]
        if revoked_keys is not None:
            command += ["-r", str(revoked_keys)]
        if at is not None:
            command += ["-O", f"verify-time={at}"]
        try:
            done = subprocess.run(
                command,
                input=data,
                capture_output=True,
                timeout=SSH_KEYGEN_SECONDS,
                check=False,
                env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TZ": "UTC", "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as error:
            raise ReportError(f"ssh-keygen gave no answer in {SSH_KEYGEN_SECONDS} s") from error
    answer = (done.stdout + done.stderr).decode("utf-8", "replace").strip()
    if done.returncode != 0:
        raise ReportError(f"ssh-keygen refuses the signature of {identity}: {answer}")
    return answer
