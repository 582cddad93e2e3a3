"""The transparency log: an append-only file of entries and the checkpoints signed over it.

In: a directory and entry bytes. Out: an index, a signed checkpoint (C2SP), a proof. Before a
checkpoint is signed every stored entry is read back and hashed again, and the new tree must
extend the last checkpoint that was signed here. Entries hold digests, no personal data.
Nothing here ever rewrites or removes a line.

Files: `entries.jsonl` (one RFC 8785 object a line: `data` in base64, `hash` in hex, `index`),
`checkpoints.txt` (every signed note, one after the other), `checkpoint` (the newest).
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from reports import merkle
from reports.canonical import canonical_document, canonical_json
from reports.errors import ReportError
from reports.keys import NOTE_ED25519, write_private_file
from reports.note import Checkpoint, LogProof, Verifier, sign_note, verify_note


@dataclass(frozen=True)
class TransparencyLog:
    """A log in `directory`. `origin` names it in every checkpoint and never changes."""

    directory: Path
    origin: str

    def append(self, entry: bytes) -> int:
        """Store `entry` durably and return its index; an entry already there keeps its index."""
        with self._locked():
            entries = self._read()
            if entry in entries:
                return entries.index(entry)
            line = canonical_json(
                {
                    "data": base64.b64encode(entry).decode("ascii"),
                    "hash": merkle.leaf_hash(entry).hex(),
                    "index": len(entries),
                }
            )
            with self._entries.open("ab") as stream:
                stream.write(line + b"\n")
                stream.flush()
                os.fsync(stream.fileno())
            return len(entries)

    def entries(self) -> tuple[bytes, ...]:
        """All entries, each hashed again. Raises ReportError naming the first line that differs."""
        with self._locked():
            return tuple(self._read())

    def checkpoint(self, key: ed25519.Ed25519PrivateKey) -> str:
        """Sign the present tree. Raises ReportError if it does not extend the last checkpoint."""
        with self._locked():
            leaves = [merkle.leaf_hash(entry) for entry in self._read()]
            verifier = Verifier(self.origin, NOTE_ED25519, key.public_key())
            last = self._last(verifier)
            now = Checkpoint(self.origin, len(leaves), merkle.root(leaves))
            if last is not None:
                self._require_extension(last, leaves)
                if last.size == now.size:
                    return self._newest.read_text("utf-8")
            note = sign_note(now.text(), self.origin, key)
            with (self.directory / "checkpoints.txt").open("ab") as stream:
                stream.write(note.encode())
                stream.flush()
                os.fsync(stream.fileno())
            write_private_file(self._newest, note.encode(), 0o644)
            return note

    def prove(self, entry: bytes, note: str) -> LogProof:
        """The proof that `entry` is under the signed checkpoint `note` of this log."""
        with self._locked():
            entries = self._read()
        size = Checkpoint.parse(note.rpartition("\n\n")[0] + "\n").size
        if entry not in entries[:size]:
            raise ReportError("the entry is not in the log under this checkpoint; append it first")
        index = entries.index(entry)
        leaves = [merkle.leaf_hash(item) for item in entries[:size]]
        return LogProof(index, merkle.inclusion_proof(index, leaves), note)

    def consistency(self, old_size: int) -> tuple[bytes, ...]:
        """Proof that the first `old_size` entries are still the beginning of the log."""
        with self._locked():
            leaves = [merkle.leaf_hash(entry) for entry in self._read()]
        if not 0 < old_size <= len(leaves):
            raise ReportError(f"old size {old_size} is outside 1..{len(leaves)}")
        return merkle.consistency_proof(old_size, leaves)

    @property
    def _entries(self) -> Path:
        return self.directory / "entries.jsonl"

    @property
    def _newest(self) -> Path:
        return self.directory / "checkpoint"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> list[bytes]:
        if not self._entries.exists():
            return []
        data = self._entries.read_bytes()
        if data and not data.endswith(b"\n"):
            # A crash in the middle of a write: the line was never acknowledged, so it goes.
            data = data[: data.rfind(b"\n") + 1]
            with self._entries.open("r+b") as stream:
                stream.truncate(len(data))
                os.fsync(stream.fileno())
        entries = []
        for number, line in enumerate(data.split(b"\n")[:-1]):
            where = f"{self._entries} line {number + 1}"
            try:
                record = canonical_document(line)
                entry = base64.b64decode(record["data"], validate=True)
                index, stored = record["index"], record["hash"]
            except (ReportError, KeyError, TypeError, binascii.Error) as error:
                raise ReportError(f"{where} is damaged: {error}") from error
            if index != number:
                raise ReportError(f"{where} says index {index}, wanted {number}")
            if stored != merkle.leaf_hash(entry).hex():
                raise ReportError(f"{where}: the stored hash is not the hash of the stored entry")
            entries.append(entry)
        return entries

    def _last(self, verifier: Verifier) -> Checkpoint | None:
        if not self._newest.exists():
            return None
        text, _ = verify_note(self._newest.read_text("utf-8"), [verifier])
        return Checkpoint.parse(text)

    def _require_extension(self, last: Checkpoint, leaves: list[bytes]) -> None:
        if last.size > len(leaves):
            raise ReportError(
                f"the log holds {len(leaves)} entries but a checkpoint over {last.size} was "
                "signed; entries were lost or cut. Restore entries.jsonl; nothing was signed."
            )
        if merkle.root(leaves[: last.size]) != last.root:
            raise ReportError(
                f"the first {last.size} entries no longer give the root that was signed over them; "
                "the log was rewritten. Nothing was signed."
            )
