"""C2SP signed notes, checkpoints and log proofs, in their text forms.

In and out: text and the records behind it. Reading is exact: a note or proof that is not byte
for byte what the writer would have made is refused, and so is a signature line by a key that the
reader was not given, since nobody would notice a change in a line that nobody checks.
Keys come from the reader's trust store, never from the text.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

from reports.errors import ReportError
from reports.keys import NOTE_COSIGNATURE, NOTE_ED25519, note_key_hash

PROOF_HEADER = "c2sp.org/tlog-proof@v1"
_DASH = "\u2014"
HASH_BYTES = 32
MAX_PROOF_HASHES = 63


@dataclass(frozen=True)
class Verifier:
    """A public key that may sign notes: its name, algorithm byte and key."""

    name: str
    algorithm: int
    key: ed25519.Ed25519PublicKey

    @classmethod
    def parse(cls, vkey: str) -> Verifier:
        """Read `name+hash+base64`. Raises ReportError when its parts disagree."""
        try:
            name, hashed, encoded = vkey.strip().split("+", 2)
            raw = base64.b64decode(encoded, validate=True)
            key = ed25519.Ed25519PublicKey.from_public_bytes(raw[1:])
        except (ValueError, binascii.Error) as error:
            raise ReportError(f"not a C2SP verifier key: {vkey!r:.80}") from error
        if raw[0] not in (NOTE_ED25519, NOTE_COSIGNATURE):
            raise ReportError(
                f"verifier key {name}: algorithm {raw[0]} is not known; wanted 1 or 4"
            )
        if note_key_hash(name, raw[0], key).hex() != hashed:
            raise ReportError(f"verifier key {name}: its hash {hashed} is not that of its key")
        return cls(name, raw[0], key)

    @property
    def key_hash(self) -> bytes:
        return note_key_hash(self.name, self.algorithm, self.key)


@dataclass(frozen=True)
class Checkpoint:
    """What a log says about itself: its origin, how many entries, and the root over them."""

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode('ascii')}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        parts = text.split("\n")
        if len(parts) != 4 or parts[3] or not parts[1].isascii() or not parts[1].isdigit():
            raise ReportError("checkpoint must be three lines: origin, size, root")
        checkpoint = cls(parts[0], int(parts[1]), _decode(parts[2], HASH_BYTES))
        if checkpoint.text() != text or not parts[0]:
            raise ReportError("checkpoint is not in its exact text form")
        return checkpoint


def sign_note(text: str, name: str, key: ed25519.Ed25519PrivateKey) -> str:
    """A signed note: the text, an empty line, one signature line."""
    return f"{text}\n{_line(name, NOTE_ED25519, key, key.sign(text.encode()))}"


def cosign_note(note: str, name: str, key: ed25519.Ed25519PrivateKey, unix_time: int) -> str:
    """Append a witness's timed cosignature (C2SP tlog-cosignature v1) to a signed checkpoint."""
    text, _ = split_note(note)
    message = f"cosignature/v1\ntime {unix_time}\n{text}".encode()
    signature = struct.pack(">Q", unix_time) + key.sign(message)
    return note + _line(name, NOTE_COSIGNATURE, key, signature)


def split_note(note: str) -> tuple[str, tuple[tuple[str, bytes], ...]]:
    """Text and (name, key hash + signature) lines. Raises ReportError for any other shape."""
    text, gap, tail = note.rpartition("\n\n")
    if not gap or not tail.endswith("\n"):
        raise ReportError("signed note must be text, an empty line, then signature lines")
    text += "\n"
    lines = []
    for line in tail[:-1].split("\n"):
        dash, _, rest = line.partition(" ")
        name, _, encoded = rest.partition(" ")
        if dash != _DASH or not name:
            raise ReportError(f"not a signature line of a note: {line!r:.80}")
        lines.append((name, _decode(encoded)))
    return text, tuple(lines)


def verify_note(note: str, verifiers: Sequence[Verifier]) -> tuple[str, frozenset[str]]:
    """Text and the names of those who signed it.

    Every line must be by one of `verifiers` and right; none may sign twice. Raises ReportError.
    """
    text, lines = split_note(note)
    signed: set[str] = set()
    for name, blob in lines:
        known = [v for v in verifiers if v.name == name and v.key_hash == blob[:4]]
        if not known:
            raise ReportError(
                f"note is signed by {name!r:.80}, a key that is not in the trust store"
            )
        if name in signed:
            raise ReportError(f"note is signed twice by {name}")
        verifier = known[0]
        message, signature = text.encode(), blob[4:]
        if verifier.algorithm == NOTE_COSIGNATURE:
            if len(signature) != 72:
                raise ReportError(f"cosignature of {name} must be 72 bytes, got {len(signature)}")
            unix_time = struct.unpack(">Q", signature[:8])[0]
            message = f"cosignature/v1\ntime {unix_time}\n{text}".encode()
            signature = signature[8:]
        try:
            verifier.key.verify(signature, message)
        except InvalidSignature as error:
            raise ReportError(f"note signature of {name} is wrong") from error
        signed.add(name)
    return text, frozenset(signed)


@dataclass(frozen=True)
class LogProof:
    """A C2SP tlog-proof: where an entry is in the log, the path to the root, the checkpoint."""

    index: int
    path: tuple[bytes, ...]
    checkpoint_note: str

    def text(self) -> str:
        hashes = "".join(f"{base64.b64encode(item).decode('ascii')}\n" for item in self.path)
        return f"{PROOF_HEADER}\nindex {self.index}\n{hashes}\n{self.checkpoint_note}"

    @classmethod
    def parse(cls, data: bytes) -> LogProof:
        try:
            head, gap, note = data.decode("utf-8").partition("\n\n")
        except UnicodeDecodeError as error:
            raise ReportError("log proof is not UTF-8 text") from error
        lines = head.split("\n")
        if not gap or len(lines) < 2 or lines[0] != PROOF_HEADER:
            raise ReportError(f"log proof must begin with {PROOF_HEADER}")
        word, _, number = lines[1].partition(" ")
        if word != "index" or not number.isascii() or not number.isdigit() or len(number) > 18:
            raise ReportError(f"log proof line 2 must be 'index N', got {lines[1]!r:.80}")
        if len(lines) - 2 > MAX_PROOF_HASHES:
            raise ReportError(f"log proof has {len(lines) - 2} hashes, at most {MAX_PROOF_HASHES}")
        path = tuple(_decode(line, HASH_BYTES) for line in lines[2:])
        proof = cls(int(number), path, note)
        if proof.text().encode() != data:
            raise ReportError("log proof is not in its exact text form; its bytes were changed")
        return proof


def _line(name: str, algorithm: int, key: ed25519.Ed25519PrivateKey, signature: bytes) -> str:
    blob = note_key_hash(name, algorithm, key.public_key()) + signature
    return f"{_DASH} {name} {base64.b64encode(blob).decode('ascii')}\n"


def _decode(encoded: str, wanted_bytes: int | None = None) -> bytes:
    """Base64 in its one canonical form (spare bits zero)."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error) as error:
        raise ReportError(f"not base64: {encoded!r:.80}") from error
    if base64.b64encode(data).decode("ascii") != encoded:
        raise ReportError(f"not canonical base64: {encoded!r:.80}")
    if wanted_bytes is not None and len(data) != wanted_bytes:
        raise ReportError(f"got {len(data)} bytes of base64, wanted {wanted_bytes}")
    return data
