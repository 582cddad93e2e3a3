"""A bundle changed by someone who lacks a key: every change is named (of T1-T16).

Flipped bytes, in every file and in the container; files removed, added or swapped; proofs of
another entry or another log; signatures by keys that the trust folder does not hold or revokes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from reports import archive, manifest, sshsig
from reports.bundle import BILLING, FACTS, REPORT, STATEMENT
from reports.canonical import canonical_json
from reports.keys import LOG_ORIGIN
from reports.log import TransparencyLog
from reports.verify import verify
from tests.quick import some
from tests.reports.bundles import Made, flip, judged, unpacked
from tests.reports.parties import Sides
from tests.reports.story import Story, forge

UNLISTED_CHECK = {
    manifest.NAME: "manifest-platform",
    manifest.PLATFORM_SIGNATURE: "manifest-platform",
    manifest.AUDITOR_SIGNATURE: "manifest-auditor",
    manifest.LOG_PROOF: "log-proof",
}


# ---- every byte counts -------------------------------------------------------------------------

TOP_FILES = (
    *(REPORT, FACTS, STATEMENT, BILLING, "VERIFY.txt", "exports/journal.csv"),
    *("evidence/plan.json", "evidence/contract.json", "evidence/usage/2026-11/events.jsonl"),
    *("evidence/baseline/baseline.json", "evidence/uplift/pairs.json"),
    *("evidence/kernel/manifest.json", "evidence/invoice/INV-2026-0007.json"),
    *UNLISTED_CHECK,
)


QUICK_FILES = {REPORT, STATEMENT, "evidence/uplift/pairs.json", *UNLISTED_CHECK}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK_FILES else pytest.mark.slow)
        for name in TOP_FILES
    ],
)
def test_a_flipped_byte_in_a_file_is_named(
    made: Made, sides: Sides, tmp_path: Path, name: str
) -> None:
    """The zip is made anew around the changed file, so nothing but the checks can catch it."""
    folder = unpacked(made, tmp_path)
    flip(folder / name, (folder / name).stat().st_size // 2)
    found = judged(folder, sides)
    assert not found.ok
    assert UNLISTED_CHECK.get(name, "digests") in found.failed


@pytest.mark.slow
def test_a_flipped_byte_in_any_file_at_all_is_named(
    made: Made, sides: Sides, tmp_path: Path
) -> None:
    folder = unpacked(made, tmp_path)
    for number, name in enumerate(some(archive.files_under(folder), 12)):
        good = (folder / name).read_bytes()
        if not good:
            continue
        flip(folder / name, number * 7919)
        found = judged(folder, sides)
        assert UNLISTED_CHECK.get(name, "digests") in found.failed, name
        (folder / name).write_bytes(good)


def test_a_flipped_byte_anywhere_in_the_container_is_named(
    made: Made, sides: Sides, tmp_path: Path
) -> None:
    good = made.bundle.read_bytes()
    changed = tmp_path / "changed.zip"
    tail = good.index(b"PK\x01\x02")
    places = [*range(0, tail, tail // 12), *range(tail, len(good), (len(good) - tail) // 24)]
    for place in [*places, len(good) - 1]:
        data = bytearray(good)
        data[place] ^= 1 << (place % 8)
        changed.write_bytes(bytes(data))
        assert verify(changed, sides.trust_dir).failed == ("archive",), place


@pytest.mark.parametrize("cut", [0, 1, 22, 1000, -1])
def test_a_cut_or_lengthened_container_is_named(
    made: Made, sides: Sides, tmp_path: Path, cut: int
) -> None:
    good = made.bundle.read_bytes()
    data = good + b"\0" if cut < 0 else good[: len(good) - max(cut, 1)]
    (tmp_path / "changed.zip").write_bytes(data)
    assert verify(tmp_path / "changed.zip", sides.trust_dir).failed == ("archive",)


# ---- files added, removed, swapped -------------------------------------------------------------


@pytest.mark.parametrize("name", [REPORT, STATEMENT, FACTS, "evidence/uplift/pairs.json"])
def test_a_removed_file_is_named(made: Made, sides: Sides, tmp_path: Path, name: str) -> None:
    folder = unpacked(made, tmp_path)
    (folder / name).unlink()
    assert "listing" in judged(folder, sides).failed


@pytest.mark.parametrize("name", list(UNLISTED_CHECK))
def test_a_removed_signature_or_proof_is_named(
    made: Made, sides: Sides, tmp_path: Path, name: str
) -> None:
    folder = unpacked(made, tmp_path)
    (folder / name).unlink()
    found = judged(folder, sides)
    assert {"listing", UNLISTED_CHECK[name]} <= set(found.failed)


@pytest.mark.parametrize("name", ["extra.txt", "evidence/uplift/runs/extra/result.json"])
def test_an_added_file_is_named(made: Made, sides: Sides, tmp_path: Path, name: str) -> None:
    folder = unpacked(made, tmp_path)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"{}")
    assert "listing" in judged(folder, sides).failed


def test_a_new_list_without_the_keys_is_named(made: Made, sides: Sides, tmp_path: Path) -> None:
    """An attacker who updates every digest still lacks two signatures and a log entry."""
    folder = unpacked(made, tmp_path)
    (folder / "exports" / "journal.csv").write_bytes(b"other\n")
    (folder / manifest.NAME).write_bytes(manifest.build(folder))
    failed = set(judged(folder, sides).failed)
    assert {"manifest-platform", "manifest-auditor", "log-proof", "exports"} <= failed
    assert "digests" not in failed


def test_swapped_signatures_are_named(made: Made, sides: Sides, tmp_path: Path) -> None:
    folder = unpacked(made, tmp_path)
    platform, auditor = folder / manifest.PLATFORM_SIGNATURE, folder / manifest.AUDITOR_SIGNATURE
    first, second = platform.read_bytes(), auditor.read_bytes()
    platform.write_bytes(second)
    auditor.write_bytes(first)
    assert set(judged(folder, sides).failed) == {"manifest-platform", "manifest-auditor"}


def test_a_signature_for_another_purpose_is_named(made: Made, sides: Sides, tmp_path: Path) -> None:
    folder = unpacked(made, tmp_path)
    listing = (folder / manifest.NAME).read_bytes()
    (folder / manifest.AUDITOR_SIGNATURE).write_bytes(
        sshsig.sign(sides.auditor.manifest, listing, "git")
    )
    assert judged(folder, sides).failed == ("manifest-auditor",)


def test_a_proof_for_another_entry_is_named(made: Made, sides: Sides, tmp_path: Path) -> None:
    """Failures 2 and 3: a right proof, of the right log, for something else."""
    folder = unpacked(made, tmp_path)
    note = made.log.checkpoint(sides.platform.note)
    other = made.log.prove(b"another report 2", note)
    (folder / manifest.LOG_PROOF).write_bytes(other.text().encode())
    assert judged(folder, sides).failed == ("log-proof",)


def test_a_log_of_another_key_is_named(
    made: Made, sides: Sides, strangers: Sides, tmp_path: Path
) -> None:
    """Failure 6 and 12: an attacker's own log proves what it likes."""
    folder = unpacked(made, tmp_path)
    log = TransparencyLog(tmp_path / "log", LOG_ORIGIN)
    entry = manifest.log_entry((folder / manifest.NAME).read_bytes(), "R-2026-0007")
    log.append(entry)
    proof = log.prove(entry, log.checkpoint(strangers.platform.note))
    (folder / manifest.LOG_PROOF).write_bytes(proof.text().encode())
    assert judged(folder, sides).failed == ("log-proof",)


# ---- wrong keys --------------------------------------------------------------------------------


def test_strangers_keys_are_not_believed(made: Made, strangers: Sides) -> None:
    failed = set(verify(made.bundle, strangers.trust_dir).failed)
    assert {"manifest-platform", "manifest-auditor", "measurement-statement",
            "billing-statement", "pdf-signatures"} <= failed  # fmt: skip


def test_a_bundle_that_brings_its_own_trust_is_not_believed(
    story: Story, sides: Sides, strangers: Sides, tmp_path: Path
) -> None:
    """Failure 11: consistent in itself, signed by an attacker on both sides."""
    bundle = forge(
        story,
        sides,
        tmp_path / "folder",
        tmp_path / "bundle.zip",
        platform=strangers.platform,
        auditor=strangers.auditor,
    )
    assert verify(bundle, strangers.trust_dir).ok
    assert not verify(bundle, sides.trust_dir).ok


def test_the_platform_alone_is_not_both(story: Story, sides: Sides, tmp_path: Path) -> None:
    """Failure of four eyes: the platform signs in the auditor's place with its own keys."""
    alone = type(sides.auditor)(**{**vars(sides.platform), "role": "auditor"})
    bundle = forge(story, sides, tmp_path / "folder", tmp_path / "bundle.zip", auditor=alone)
    assert {"manifest-auditor", "measurement-statement", "billing-statement",
            "pdf-signatures"} <= set(verify(bundle, sides.trust_dir).failed)  # fmt: skip


def test_a_revoked_key_is_named(made: Made, sides: Sides, tmp_path: Path) -> None:
    """T10."""
    shutil.copytree(sides.trust_dir, tmp_path / "trust")
    keys = json.loads((tmp_path / "trust" / "keys.json").read_bytes())
    for key in keys["keys"]:
        if key["role"] == "auditor":
            key["revoked_at"] = "2026-11-20T00:00:00Z"
    (tmp_path / "trust" / "keys.json").write_bytes(canonical_json(keys))
    failed = verify(made.bundle, tmp_path / "trust").failed
    assert {"measurement-statement", "billing-statement"} <= set(failed)
    line = (sides.auditor_dir / "manifest.pub").read_text()
    (tmp_path / "trust" / "revoked_keys").write_text(line)
    assert "manifest-auditor" in verify(made.bundle, tmp_path / "trust").failed


@pytest.mark.parametrize("name", ["keys.json", "allowed_signers", "platform-root.pem", "log.vkey"])
def test_an_incomplete_trust_folder_is_named(
    made: Made, sides: Sides, tmp_path: Path, name: str
) -> None:
    shutil.copytree(sides.trust_dir, tmp_path / "trust")
    (tmp_path / "trust" / name).unlink()
    assert verify(made.bundle, tmp_path / "trust").failed == ("trust",)
