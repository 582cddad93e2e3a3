"""The transparency log: append, sign, prove; a log that was cut, edited, rewritten (T1-T6)."""

from __future__ import annotations

import base64
import multiprocessing
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reports import merkle
from reports.canonical import canonical_json
from reports.errors import ReportError
from reports.keys import LOG_ORIGIN, public_pem
from reports.log import TransparencyLog
from reports.note import (
    Checkpoint,
    LogProof,
    Verifier,
    cosign_note,
    sign_note,
    split_note,
    verify_note,
)
from tests.reports.parties import Sides

ENTRIES = [b"entry %d" % number for number in range(7)]


@pytest.fixture
def log(tmp_path: Path) -> TransparencyLog:
    made = TransparencyLog(tmp_path / "log", LOG_ORIGIN)
    for entry in ENTRIES:
        made.append(entry)
    return made


def line(number: int, entry: bytes) -> bytes:
    return canonical_json(
        {
            "data": base64.b64encode(entry).decode(),
            "hash": merkle.leaf_hash(entry).hex(),
            "index": number,
        }
    )


def test_append_gives_places_in_order_and_the_same_place_again(log: TransparencyLog) -> None:
    assert log.append(b"next") == 7
    assert log.append(ENTRIES[2]) == 2
    assert log.entries() == (*ENTRIES, b"next")


def test_every_entry_is_proved_under_the_signed_checkpoint(
    log: TransparencyLog, sides: Sides
) -> None:
    note = log.checkpoint(sides.platform.note)
    for index, entry in enumerate(ENTRIES):
        proof = LogProof.parse(log.prove(entry, note).text().encode())
        text, signers = verify_note(proof.checkpoint_note, [sides.trust.log])
        checkpoint = Checkpoint.parse(text)
        assert signers == {LOG_ORIGIN}
        assert (proof.index, checkpoint.size) == (index, 7)
        leaf = merkle.leaf_hash(entry)
        assert merkle.includes(leaf, proof.index, 7, proof.path, checkpoint.root)


def test_consistency_between_two_checkpoints(log: TransparencyLog, sides: Sides) -> None:
    old = Checkpoint.parse(split_note(log.checkpoint(sides.platform.note))[0])
    for number in range(5):
        log.append(b"later %d" % number)
    new = Checkpoint.parse(split_note(log.checkpoint(sides.platform.note))[0])
    proof = log.consistency(old.size)
    assert merkle.consistent(old.size, new.size, old.root, new.root, proof)


def test_an_unchanged_log_keeps_its_checkpoint(log: TransparencyLog, sides: Sides) -> None:
    assert log.checkpoint(sides.platform.note) == log.checkpoint(sides.platform.note)


def test_cut_tail_is_not_signed_over(log: TransparencyLog, sides: Sides) -> None:
    """T3: the last entries vanish; only the checkpoint someone holds shows it."""
    log.checkpoint(sides.platform.note)
    path = log.directory / "entries.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:5]))
    with pytest.raises(ReportError, match="lost or cut"):
        log.checkpoint(sides.platform.note)


def test_rewritten_history_is_not_signed_over(log: TransparencyLog, sides: Sides) -> None:
    """T5: every line is consistent with itself, but not with what was signed."""
    log.checkpoint(sides.platform.note)
    path = log.directory / "entries.jsonl"
    lines = path.read_bytes().splitlines()
    lines[3] = line(3, b"another entry")
    path.write_bytes(b"\n".join([*lines, b""]))
    log.append(b"next")
    with pytest.raises(ReportError, match="rewritten"):
        log.checkpoint(sides.platform.note)


@pytest.mark.parametrize("flipped", range(0, 150, 7))
def test_one_flipped_bit_of_the_stored_log_is_named(
    log: TransparencyLog, sides: Sides, flipped: int
) -> None:
    """Yeti 2022: one bit in a stored leaf ended a log. Every leaf is hashed again first (T1)."""
    path = log.directory / "entries.jsonl"
    data = bytearray(path.read_bytes())
    data[flipped] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ReportError, match=r"entries\.jsonl line"):
        log.checkpoint(sides.platform.note)


def test_swapped_and_removed_lines_are_named(log: TransparencyLog, sides: Sides) -> None:
    """T2."""
    path = log.directory / "entries.jsonl"
    lines = path.read_bytes().splitlines()
    for changed in ([lines[1], lines[0], *lines[2:]], [*lines[:2], *lines[3:]], [lines[0], *lines]):
        path.write_bytes(b"\n".join([*changed, b""]))
        with pytest.raises(ReportError, match="says index"):
            log.checkpoint(sides.platform.note)


def test_a_line_torn_by_a_crash_is_dropped_and_written_again(
    log: TransparencyLog, sides: Sides
) -> None:
    path = log.directory / "entries.jsonl"
    path.write_bytes(path.read_bytes() + line(7, b"torn")[:20])
    assert log.append(b"torn") == 7
    assert log.entries() == (*ENTRIES, b"torn")


def test_split_view_is_seen_by_comparing_two_checkpoints(tmp_path: Path, sides: Sides) -> None:
    """T6: two logs of one name and size; a witness asks for consistency and gets none."""
    views = []
    for last in (b"for the customer", b"for the auditor"):
        log = TransparencyLog(tmp_path / last.decode().replace(" ", "-"), LOG_ORIGIN)
        log.append(b"shared")
        log.append(last)
        views.append(Checkpoint.parse(split_note(log.checkpoint(sides.platform.note))[0]))
    assert views[0].size == views[1].size
    assert not merkle.consistent(2, 2, views[0].root, views[1].root, ())


def test_a_checkpoint_of_another_key_stops_the_log(
    log: TransparencyLog, sides: Sides, strangers: Sides
) -> None:
    """T9: someone replaced the newest checkpoint by their own."""
    note = log.checkpoint(sides.platform.note)
    text = split_note(note)[0]
    (log.directory / "checkpoint").write_text(
        sign_note(text, LOG_ORIGIN, strangers.platform.note), "utf-8"
    )
    with pytest.raises(ReportError, match="not in the trust store"):
        log.checkpoint(sides.platform.note)


def _append_many(directory: Path, start: int) -> None:
    log = TransparencyLog(directory, LOG_ORIGIN)
    for number in range(start, start + 10):
        log.append(b"process %d" % number)


def test_writers_in_parallel_never_fork_the_log(tmp_path: Path) -> None:
    """Known failure 42: without one lock, eight writers made 355 forks."""
    context = multiprocessing.get_context("fork")
    workers = [
        context.Process(target=_append_many, args=(tmp_path, start)) for start in (0, 10, 20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    entries = TransparencyLog(tmp_path, LOG_ORIGIN).entries()
    assert sorted(entries) == sorted(b"process %d" % number for number in range(30))


def test_a_witness_cosigns_and_is_named(log: TransparencyLog, sides: Sides) -> None:
    note = log.checkpoint(sides.platform.note)
    both = cosign_note(note, sides.auditor.note_name, sides.auditor.note, 1_800_000_000)
    _, signers = verify_note(both, [sides.trust.log, *sides.trust.witnesses])
    assert signers == {LOG_ORIGIN, sides.auditor.note_name}
    later = both.replace(both.splitlines()[-1], both.splitlines()[-1][:-8] + "AAAAAAA=")
    with pytest.raises(ReportError):
        verify_note(later, [sides.trust.log, *sides.trust.witnesses])


def test_note_refuses_unknown_repeated_and_wrong_signatures(
    log: TransparencyLog, sides: Sides, strangers: Sides
) -> None:
    note = log.checkpoint(sides.platform.note)
    signature = note.splitlines(keepends=True)[-1]
    with pytest.raises(ReportError, match="signed twice"):
        verify_note(note + signature, [sides.trust.log])
    with pytest.raises(ReportError, match="not in the trust store"):
        verify_note(note, [strangers.trust.log])
    with pytest.raises(ReportError, match="is wrong"):
        verify_note(note.replace("\n7\n", "\n8\n"), [sides.trust.log])


def test_checkpoint_signature_with_openssl_alone(
    log: TransparencyLog, sides: Sides, tmp_path: Path
) -> None:
    """A stranger needs base64 and openssl: the note's text, and the signature less four bytes."""
    note = log.checkpoint(sides.platform.note)
    text, lines = split_note(note)
    (tmp_path / "text").write_text(text, "utf-8")
    (tmp_path / "signature").write_bytes(lines[0][1][4:])
    (tmp_path / "key.pem").write_bytes(public_pem(sides.platform.note.public_key()))

    def openssl() -> int:
        command = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", str(tmp_path / "key.pem")]
        command += ["-rawin", "-in", str(tmp_path / "text")]
        command += ["-sigfile", str(tmp_path / "signature")]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert openssl() == 0
    (tmp_path / "text").write_text(text.replace("7", "8"), "utf-8")
    assert openssl() != 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("c2sp.org/tlog-proof@v1", "c2sp.org/tlog-proof@v2"),
        lambda text: text.replace("index 3", "index 03"),
        lambda text: text.replace("index 3", "index -3"),
        lambda text: text.replace("index 3", "index 3 "),
        lambda text: text.replace("index 3", "index \u0663"),
        lambda text: text + "\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("=", "", 1),
        lambda text: text[:40],
        lambda text: "",
    ],
)
def test_a_proof_in_any_other_form_is_refused(
    log: TransparencyLog, sides: Sides, change: Callable[[str], str]
) -> None:
    """Known failures 4 and 7: malformed proofs are refused with a reason, never a crash."""
    text = log.prove(ENTRIES[3], log.checkpoint(sides.platform.note)).text()

    def read(data: bytes) -> None:
        verify_note(LogProof.parse(data).checkpoint_note, [sides.trust.log])

    read(text.encode())
    with pytest.raises(ReportError):
        read(change(text).encode())


def test_a_verifier_key_is_what_it_says(sides: Sides) -> None:
    vkey = (sides.platform_dir / "log.vkey").read_text()
    assert Verifier.parse(vkey).name == LOG_ORIGIN
    for wrong in (vkey.replace("ignition", "ignitiom"), "a+b", "", vkey[:-9]):
        with pytest.raises(ReportError):
            Verifier.parse(wrong)
    assert replace(Verifier.parse(vkey), name="other").key_hash != Verifier.parse(vkey).key_hash
