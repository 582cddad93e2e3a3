"""Keys: private, idempotent, crash-safe; the trust folder holds public halves alone (T9, T10)."""

from __future__ import annotations

import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from asn1crypto import pem
from asn1crypto.keys import EncryptedPrivateKeyInfo

from reports import sshsig
from reports.errors import ReportError
from reports.keys import create_auditor_keys, create_platform_keys, key_id, load_keys, openssh_line
from reports.trust import load_trust
from tests.reports.parties import PASSPHRASE, Sides

PRIVATE = ("root.key", "document.key", "statement.key", "manifest.key", "log.key")
PUBLIC = ("root.pem", "document.pem", "statement.pub.pem", "manifest.pub", "log.vkey")


@pytest.fixture
def copy(sides: Sides, tmp_path: Path) -> Path:
    shutil.copytree(sides.platform_dir, tmp_path / "platform")
    return tmp_path / "platform"


def test_private_files_are_the_owners_alone_and_encrypted(sides: Sides) -> None:
    assert stat.S_IMODE(sides.platform_dir.stat().st_mode) == 0o700
    for name in PRIVATE:
        path = sides.platform_dir / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")


def test_a_passphrase_is_slow_to_guess(sides: Sides) -> None:
    """OWASP's password storage cheat sheet: 600,000 rounds or more of PBKDF2 with HMAC-SHA-256."""
    for name in PRIVATE:
        _, _, der = pem.unarmor((sides.platform_dir / name).read_bytes())
        sealed = EncryptedPrivateKeyInfo.load(der)["encryption_algorithm"]
        named = (sealed.kdf, sealed.kdf_hmac, sealed.encryption_cipher)
        assert named == ("pbkdf2", "sha256", "aes")
        assert sealed.kdf_iterations >= 600_000


def test_openssl_reads_the_keys_with_the_passphrase_and_not_without(sides: Sides) -> None:
    def opens(passphrase: str) -> bool:
        command = ["openssl", "pkey", "-in", str(sides.platform_dir / "statement.key"), "-noout"]
        command += ["-passin", f"pass:{passphrase}"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert opens(PASSPHRASE)
    assert not opens("guess")


def test_openssl_accepts_the_certificates(sides: Sides) -> None:
    for directory in (sides.platform_dir, sides.auditor_dir):
        command = ["openssl", "verify", "-x509_strict", "-purpose", "any"]
        command += ["-CAfile", str(directory / "root.pem"), str(directory / "document.pem")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_making_keys_again_changes_nothing(copy: Path) -> None:
    before = {name: (copy / name).read_bytes() for name in (*PRIVATE, *PUBLIC)}
    create_platform_keys(copy, PASSPHRASE)
    assert {name: (copy / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("kept", range(len(PRIVATE)))
def test_a_half_made_folder_is_completed(tmp_path: Path, kept: int) -> None:
    """A crash after any private key: the next call goes on from there."""
    create_auditor_keys(tmp_path / "whole")
    (tmp_path / "half").mkdir()
    names = [name.replace("log", "witness") for name in PRIVATE]
    for name in names[:kept]:
        shutil.copy(tmp_path / "whole" / name, tmp_path / "half" / name)
    made = create_auditor_keys(tmp_path / "half")
    for name in names[:kept]:
        assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert key_id(made.statement.public_key()) == key_id(
        load_keys(tmp_path / "half", "auditor").statement.public_key()
    )


@pytest.mark.parametrize("name", PUBLIC)
def test_a_lost_public_half_is_written_again(sides: Sides, tmp_path: Path, name: str) -> None:
    folder, public = tmp_path / "auditor", name.replace("log", "witness")
    shutil.copytree(sides.auditor_dir, folder)
    lost = (folder / public).read_bytes()
    (folder / public).unlink()
    create_auditor_keys(folder)
    # Certificates carry a serial number and dates, so a new one differs.
    certificate = public in {"root.pem", "document.pem"}
    assert ((folder / public).read_bytes() == lost) != certificate


@pytest.mark.parametrize("name", PRIVATE)
def test_a_lost_private_half_is_never_replaced(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(ReportError, match=name):
        create_platform_keys(copy, PASSPHRASE)


def test_wrong_passphrase_damage_and_open_files_are_refused(copy: Path) -> None:
    with pytest.raises(ReportError, match="passphrase"):
        load_keys(copy, "platform", "guess")
    with pytest.raises(ReportError, match="passphrase"):
        load_keys(copy, "platform")
    with pytest.raises(ReportError, match="passphrase"):
        create_platform_keys(copy, "")
    (copy / "statement.key").chmod(0o644)
    with pytest.raises(ReportError, match="chmod 600"):
        load_keys(copy, "platform", PASSPHRASE)
    (copy / "statement.key").chmod(0o600)
    (copy / "statement.key").write_bytes((copy / "log.key").read_bytes()[:100])
    with pytest.raises(ReportError, match=r"statement\.key"):
        load_keys(copy, "platform", PASSPHRASE)


def test_callers_in_parallel_get_the_same_keys(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: create_auditor_keys(tmp_path / "auditor"), range(4)))
    assert len({key_id(keys.statement.public_key()) for keys in made}) == 1


def test_the_auditors_key_signs_with_ssh_keygen_itself(sides: Sides, tmp_path: Path) -> None:
    """Ed25519 is deterministic: the auditor's own OpenSSH makes the very bytes we make."""
    listed = tmp_path / "SHA256SUMS"
    listed.write_bytes(b"list\n")
    key = sides.auditor_dir / "manifest.key"
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key), "-n", sshsig.NAMESPACE, str(listed)]
    subprocess.run(command, capture_output=True, check=True)
    made = listed.with_suffix(".sig").read_bytes()
    assert made == sshsig.sign(sides.auditor.manifest, b"list\n")


def test_the_trust_folder_holds_nothing_private(sides: Sides) -> None:
    names = {path.name for path in sides.trust_dir.iterdir()}
    assert names == {
        *("README.txt", "allowed_signers", "keys.json", "log.vkey", "witness.vkey"),
        *("platform-root.pem", "auditor-root.pem"),
    }
    for path in sides.trust_dir.iterdir():
        assert b"PRIVATE" not in path.read_bytes()
    readme = (sides.trust_dir / "README.txt").read_text()
    for keys in (sides.platform, sides.auditor):
        assert key_id(keys.statement.public_key()) in readme


def test_one_key_for_two_purposes_is_refused(sides: Sides, tmp_path: Path) -> None:
    shutil.copytree(sides.trust_dir, tmp_path / "trust")
    line = openssh_line(sides.platform.statement.public_key())
    with (tmp_path / "trust" / "allowed_signers").open("a") as stream:
        stream.write(f'auditor namespaces="{sshsig.NAMESPACE}" {line}\n')
    with pytest.raises(ReportError, match="two purposes"):
        load_trust(tmp_path / "trust")


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("keys.json", "ignition-trust/v1", "ignition-trust/v2"),
        ("keys.json", '"role":"auditor"', '"role":"platform-too"'),
        ("keys.json", '"purpose":"statement"', '"purpose":"anything"'),
        ("keys.json", '"key_id":"', '"key_id":"0'),
        ("log.vkey", "+", "-"),
        ("platform-root.pem", "BEGIN CERTIFICATE", "BEGIN NOTHING"),
    ],
)
def test_a_damaged_trust_folder_is_named(
    sides: Sides, tmp_path: Path, name: str, old: str, new: str
) -> None:
    shutil.copytree(sides.trust_dir, tmp_path / "trust")
    path = tmp_path / "trust" / name
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ReportError):
        load_trust(tmp_path / "trust")


def test_ssh_signature_rejections(sides: Sides, strangers: Sides, tmp_path: Path) -> None:
    """Wrong data, namespace, signer, trust, form; expired and revoked keys (T9, T10)."""
    data, signers = b"list\n", sides.trust.allowed_signers
    good = sshsig.sign(sides.platform.manifest, data)

    def refused(signature: bytes, message: bytes = data, **options: object) -> None:
        chosen = {"allowed_signers": signers, "identity": "platform", **options}
        with pytest.raises(ReportError):
            sshsig.verify(signature, message, **chosen)  # type: ignore[arg-type]

    answer = sshsig.verify(good, data, allowed_signers=signers, identity="platform")
    assert answer.startswith('Good "ignition-report@v1" signature for platform')
    refused(good, b"other\n")
    refused(good, identity="auditor")
    refused(good, allowed_signers=strangers.trust.allowed_signers)
    refused(sshsig.sign(sides.platform.manifest, data, "file"))
    refused(good, namespace="file")
    refused(sshsig.sign(strangers.platform.manifest, data))
    refused(good.replace(b"\n", b"\r\n"))
    refused(good + b"\n")
    refused(b"\n" + good)
    dated = tmp_path / "dated"
    until = ' valid-before="20260101",namespaces'
    dated.write_text(signers.read_text().replace(" namespaces", until))
    refused(good, allowed_signers=dated, at="20261201000000")
    assert sshsig.verify(
        good, data, allowed_signers=dated, identity="platform", at="20251201000000"
    )
    revoked = tmp_path / "revoked"
    revoked.write_text(openssh_line(sides.platform.manifest.public_key()) + "\n")
    refused(good, revoked_keys=revoked)


def test_every_flipped_byte_of_an_ssh_signature_is_refused(sides: Sides) -> None:
    good = sshsig.sign(sides.platform.manifest, b"list\n")
    for place in range(0, len(good), 3):
        data = bytearray(good)
        data[place] ^= 1
        with pytest.raises(ReportError):
            sshsig.verify(
                bytes(data),
                b"list\n",
                allowed_signers=sides.trust.allowed_signers,
                identity="platform",
            )
