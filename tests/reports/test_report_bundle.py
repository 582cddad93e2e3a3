"""The whole bundle: made by two parties, checked by a stranger, attacked in every file (T1-T16)."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from reports import archive, envelope, manifest, pdfsign, sshsig
from reports.__main__ import main
from reports.bundle import (
    BILLING,
    FACTS,
    REPORT,
    STATEMENT,
    assemble,
    auditor_sign,
    seal,
    sign_statement,
    verify_text,
)
from reports.canonical import canonical_json, sha256_bytes, sha256_file
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.keys import LOG_ORIGIN
from reports.log import TransparencyLog
from reports.pdf import render
from reports.statement import measurement_statement
from reports.verify import Verification, verify
from tests.reports.parties import Sides
from tests.reports.story import EXPORTS, ISSUED, Story, forge, seal_again, tell, unpack_recording

ALL_CHECKS = {
    *("trust", "archive", "listing", "digests", "manifest-platform", "manifest-auditor"),
    *("measurement-statement", "billing-statement", "pdf-signatures", "facts"),
    *("measurement-statement-content", "billing-statement-content", "subjects"),
    *("statements-agree", "exports", "uplift-recomputed", "fee-recomputed"),
    *("pdf-rendered", "log-proof"),
}


@dataclass(frozen=True)
class Made:
    """A sealed bundle, what it was packed from, and the log it is in."""

    bundle: Path
    folder: Path
    log: TransparencyLog


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    evidence = tmp_path_factory.mktemp("story") / "evidence"
    unpack_recording(evidence)
    return tell(evidence)


@pytest.fixture(scope="session")
def approved(story: Story, sides: Sides) -> bytes:
    """The measurement statement, signed by the platform and then with the auditor's own tool."""
    signed = envelope.sign(story.payload, sides.platform.statement)
    return sign_statement(signed, sides.auditor_dir, evidence=story.evidence)


@pytest.fixture(scope="session")
def staged(
    story: Story, approved: bytes, sides: Sides, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the platform hands to the auditor."""
    return assemble(
        tmp_path_factory.mktemp("staged") / "staging",
        evidence=story.evidence,
        facts=story.facts,
        measurement_envelope=approved,
        exports=EXPORTS,
        keys=sides.platform,
        now=ISSUED,
    )


@pytest.fixture(scope="session")
def made(staged: Path, sides: Sides, tmp_path_factory: pytest.TempPathFactory) -> Made:
    base = tmp_path_factory.mktemp("made")
    folder = base / "staging"
    shutil.copytree(staged, folder)
    auditor_sign(folder, sides.auditor_dir)
    log = TransparencyLog(base / "log", LOG_ORIGIN)
    for other in range(5):
        log.append(b"another report %d" % other)
    return Made(seal(folder, sides.platform, log, base / "bundle.zip"), folder, log)


def unpacked(made: Made, tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    shutil.copytree(made.folder, folder)
    return folder


def judged(folder: Path, sides: Sides) -> Verification:
    bundle = folder.with_suffix(".zip")
    archive.write(folder, bundle)
    return verify(bundle, sides.trust_dir)


# ---- the good bundle ---------------------------------------------------------------------------


def test_the_good_bundle_holds(made: Made, sides: Sides, story: Story) -> None:
    found = verify(made.bundle, sides.trust_dir)
    assert found.ok, [(check.name, check.detail) for check in found.checks if not check.ok]
    assert {check.name for check in found.checks} == ALL_CHECKS
    assert found.report_number == story.facts.document.number
    assert found.to_json()["failed"] == []
    assert story.facts.measurement.uplift.kept, "the recording must have a gain to bill"
    assert Decimal(story.facts.fee.total) > 1
    details = {check.name: check.detail for check in found.checks}
    assert "same bytes" in details["pdf-rendered"]
    assert f"payable {story.facts.fee.total}" in details["fee-recomputed"]
    assert "entry 5 of 6" in details["log-proof"]


def test_every_bundle_file_is_under_a_statement_or_the_list(made: Made) -> None:
    with zipfile.ZipFile(made.bundle) as opened:
        names = set(opened.namelist())
    listed = set(manifest.parse((made.folder / manifest.NAME).read_bytes()))
    assert names == listed | set(manifest.UNLISTED)
    assert {REPORT, FACTS, STATEMENT, BILLING, "VERIFY.txt", "exports/journal.csv"} <= listed
    assert not [name for name in names if "weights" in name or "trust" in name or "root" in name]


def test_sealing_and_signing_again_changes_nothing(
    made: Made, sides: Sides, tmp_path: Path
) -> None:
    folder = unpacked(made, tmp_path)
    auditor_sign(folder, sides.auditor_dir)
    seal(folder, sides.platform, made.log, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == made.bundle.read_bytes()
    assert len(made.log.entries()) == 6


def printed_commands() -> list[str]:
    lines = verify_text().splitlines()
    start = lines.index("TRUST=/path/to/trust") + 1
    return lines[start : lines.index("", start)]


def shell(command: str, folder: Path, trust: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"TRUST={trust}\n{command}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_printed_commands_work_in_a_shell(made: Made, sides: Sides, tmp_path: Path) -> None:
    """VERIFY.txt with foreign tools only: coreutils, openssh, poppler."""
    with zipfile.ZipFile(made.bundle) as opened:
        opened.extractall(tmp_path / "out")
    assert (tmp_path / "out" / "VERIFY.txt").read_text() == verify_text()
    done = [shell(command, tmp_path / "out", sides.trust_dir) for command in printed_commands()]
    assert [item.returncode for item in done] == [0, 0, 0, 0], [item.stderr for item in done]
    assert "report.pdf: OK" in done[0].stdout
    assert done[1].stdout.startswith('Good "ignition-report@v1" signature for platform')
    assert done[2].stdout.startswith('Good "ignition-report@v1" signature for auditor')
    assert done[3].stdout.count("Signature is Valid.") == 2
    assert "Total document signed" in done[3].stdout.split("Signature #2")[1]


def test_the_printed_commands_fail_on_damage(made: Made, sides: Sides, tmp_path: Path) -> None:
    with zipfile.ZipFile(made.bundle) as opened:
        opened.extractall(tmp_path / "out")
    sums, platform, auditor, pdf = printed_commands()
    report = tmp_path / "out" / REPORT
    data = bytearray(report.read_bytes())
    data[5000] ^= 1
    report.write_bytes(bytes(data))
    assert shell(sums, tmp_path / "out", sides.trust_dir).returncode == 1
    assert "Digest Mismatch" in shell(pdf, tmp_path / "out", sides.trust_dir).stdout
    listing = tmp_path / "out" / manifest.NAME
    listing.write_bytes(listing.read_bytes().replace(b"a", b"b", 1))
    assert shell(platform, tmp_path / "out", sides.trust_dir).returncode != 0
    assert shell(auditor, tmp_path / "out", sides.trust_dir).returncode != 0


# ---- every byte counts -------------------------------------------------------------------------

UNLISTED_CHECK = {
    manifest.NAME: "manifest-platform",
    manifest.PLATFORM_SIGNATURE: "manifest-platform",
    manifest.AUDITOR_SIGNATURE: "manifest-auditor",
    manifest.LOG_PROOF: "log-proof",
}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(bytes(data))


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
    for number, name in enumerate(archive.files_under(folder)):
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


# ---- both sides sign, and still: the evidence decides ------------------------------------------


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        document = document[parent]
    document[last] = value


def more_money(facts: dict[str, Any]) -> None:
    """One cent more, consistent on paper."""
    for name in ("net", "total"):
        cents = int(facts["fee"][name].replace(".", "")) + 1
        facts["fee"][name] = f"{cents // 100}.{cents % 100:02d}"
    cents = int(facts["fee"]["lines"][0]["amount"].replace(".", "")) + 1
    facts["fee"]["lines"][0]["amount"] = f"{cents // 100}.{cents % 100:02d}"


def stated(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda facts: set_path(facts, path, value)


LIES: list[tuple[str, Callable[[dict[str, Any]], None], str]] = [
    ("one cent more", more_money, "fee-recomputed"),
    ("a higher bound", stated("measurement.uplift.lower_95", "9.9"), "uplift-recomputed"),
    ("a higher estimate", stated("measurement.uplift.point", "9.9"), "uplift-recomputed"),
    ("a slower baseline", stated("measurement.baseline.samples_per_second", "1"),
     "uplift-recomputed"),
    ("another stack", stated("measurement.baseline.stack", "openvino"), "uplift-recomputed"),
    ("better accuracy", stated("measurement.accuracy.min_cosine", "1.5"), "uplift-recomputed"),
    ("another model", stated("measurement.mix.model_sha256", "0" * 64), "uplift-recomputed"),
    ("another plan", stated("measurement.plan.digest", "0" * 64), "uplift-recomputed"),
    ("a plan that is not short", stated("measurement.plan.short_run", False),
     "uplift-recomputed"),
    ("another kernel", stated("measurement.search.package_manifest_sha256", "0" * 64),
     "uplift-recomputed"),
    ("prettier dots", stated("measurement.uplift.ratios", ["9.9"] * 6), "uplift-recomputed"),
    ("a quieter machine", stated("measurement.aa.hi", "0.000001"), "uplift-recomputed"),
    ("more volume", stated("usage.samples", "9000000000"), "fee-recomputed"),
    ("fewer duplicates", stated("usage.duplicates", "0"), "fee-recomputed"),
    ("more savings", stated("savings.billable", "999.00"), "fee-recomputed"),
    ("savings without cents", stated("savings.bound", "0"), "fee-recomputed"),
    ("another price", stated("savings.price_per_core_hour", "0.48"), "fee-recomputed"),
    ("another number", stated("invoice.number", "INV-2026-0008"), "fee-recomputed"),
    ("another period", stated("period.start", "2026-10-01T00:00:00Z"), "fee-recomputed"),
    ("another zone", stated("period.zone", "UTC"), "fee-recomputed"),
    ("a later baseline", stated("measurement.baseline.frozen_at", "2026-01-01T00:00:00Z"),
     "uplift-recomputed"),
    ("another machine", stated("measurement.system.fingerprint", "0" * 64), "uplift-recomputed"),
    ("another traffic", stated("measurement.mix.traffic", []), "uplift-recomputed"),
    ("a dearer search", stated("measurement.search.cost", "99"), "uplift-recomputed"),
    ("a faster result", stated("measurement.uplift.optimised_samples_per_second", "99999"),
     "uplift-recomputed"),
    ("a draft", stated("document.status", "draft"), "facts"),
]  # fmt: skip


# One of each kind always; the long list where time is not short.
QUICK_LIES = {"one cent more", "a higher bound", "more volume", "a draft", "another machine"}


@pytest.mark.parametrize(
    ("name", "change", "check"),
    [
        pytest.param(*lie, id=lie[0], marks=() if lie[0] in QUICK_LIES else pytest.mark.slow)
        for lie in LIES
    ],
)
def test_a_lie_that_both_sides_signed_is_named(
    story: Story,
    sides: Sides,
    tmp_path: Path,
    name: str,
    change: Callable[[dict[str, Any]], None],
    check: str,
) -> None:
    """All signatures are right; the figures do not come from the evidence."""
    bundle = forge(story, sides, tmp_path / "folder", tmp_path / "b.zip", change=change)
    found = verify(bundle, sides.trust_dir)
    assert check in found.failed
    assert not {"digests", "manifest-platform", "measurement-statement"} & set(found.failed)


def edited(story: Story, tmp_path: Path) -> Story:
    evidence = tmp_path / "evidence"
    shutil.copytree(story.evidence, evidence)
    return Story(evidence, story.facts, story.payload)


def test_an_edited_log_that_both_sides_signed_is_named(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    """Failure 13: the evidence was edited before signing; the log no longer fits its own digest."""
    changed = edited(story, tmp_path)
    logs = sorted(changed.evidence.glob("uplift/runs/*other/mlperf_log_detail.txt"))
    text = logs[-1].read_text()
    logs[-1].write_text(text.replace('"result_samples_per_second", "value": ',
                                     '"result_samples_per_second", "value": 1'))  # fmt: skip
    assert logs[-1].read_text() != text
    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip")
    assert set(verify(bundle, sides.trust_dir).failed) == {"uplift-recomputed", "fee-recomputed"}


def test_a_candidate_timed_before_the_baseline_is_named(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T16: the baseline was chosen after the candidate's result was seen."""
    changed = edited(story, tmp_path)
    path = changed.evidence / "baseline" / "baseline.json"
    frozen_at = story.facts.measurement.baseline.frozen_at
    later = "2027-01-01T00:00:00Z"
    assert frozen_at in path.read_text()
    path.write_text(path.read_text().replace(frozen_at, later))

    def restate(facts: dict[str, Any]) -> None:
        facts["measurement"]["baseline"]["frozen_at"] = later
        facts["measurement"]["baseline"]["sha256"] = sha256_file(path)

    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip", change=restate)
    found = verify(bundle, sides.trust_dir)
    details = {check.name: check.detail for check in found.checks}
    assert "before the baseline was frozen" in details["uplift-recomputed"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("contract.json", '"rate":"0.20"', '"rate":"0.30"'),
        ("pricebook.json", "0.048", "0.049"),
        ("usage/2026-11/events.jsonl", '"samples":', '"samples":1'),
        ("savings/2026-11.json", '"losses":"0"', '"losses":"1"'),
        ("invoice/INV-2026-0007.json", '"number":"INV', '"number":"XNV'),
    ],
)
def test_edited_money_that_both_sides_signed_is_named(
    story: Story, sides: Sides, tmp_path: Path, name: str, old: str, new: str
) -> None:
    changed = edited(story, tmp_path)
    path = changed.evidence / name
    text = path.read_text("utf-8").replace('"samples": ', '"samples":')
    if old not in text and name == "contract.json":
        old, new = '"rate":"0.2"', '"rate":"0.3"'
    assert old in text, text[:400]
    path.write_text(text.replace(old, new, 1), "utf-8")
    bundle = forge(changed, sides, tmp_path / "folder", tmp_path / "b.zip")
    assert verify(bundle, sides.trust_dir).failed == ("fee-recomputed",)


def test_the_report_of_another_bundle_is_named(
    made: Made, story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T7: a right report, signed by both, in the wrong bundle, under a fresh list."""
    other = forge(
        story,
        sides,
        tmp_path / "other",
        tmp_path / "other.zip",
        change=stated("document.number", "R-2026-0099"),
    )
    assert verify(other, sides.trust_dir).ok
    folder = unpacked(made, tmp_path)
    shutil.copy(tmp_path / "other" / REPORT, folder / REPORT)
    log = TransparencyLog(tmp_path / "log2", LOG_ORIGIN)
    seal_again(folder, sides.platform, sides.auditor, log)
    assert judged(folder, sides).failed == ("pdf-rendered",)


def test_statements_of_another_bundle_are_named(
    made: Made, story: Story, sides: Sides, tmp_path: Path
) -> None:
    """T8: the same measurement billed under another number."""
    forge(
        story,
        sides,
        tmp_path / "other",
        tmp_path / "other.zip",
        change=stated("document.number", "R-2026-0099"),
    )
    folder = unpacked(made, tmp_path)
    shutil.copy(tmp_path / "other" / BILLING, folder / BILLING)
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "l", LOG_ORIGIN))
    assert "statements-agree" in judged(folder, sides).failed
    shutil.copy(made.folder / STATEMENT, folder / BILLING)
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "m", LOG_ORIGIN))
    assert "billing-statement-content" in judged(folder, sides).failed


def test_a_report_without_the_auditors_signature_is_named(
    made: Made, sides: Sides, tmp_path: Path
) -> None:
    """T15: cut back to the certified revision; no PDF tool can see it, the roles can."""
    folder = unpacked(made, tmp_path)
    data = (folder / REPORT).read_bytes()
    ends = [at for at in range(len(data)) if data.startswith(b"%%EOF", at)]
    (folder / REPORT).write_bytes(data[: ends[-2] + 6])
    seal_again(folder, sides.platform, sides.auditor, TransparencyLog(tmp_path / "l", LOG_ORIGIN))
    assert judged(folder, sides).failed == ("pdf-signatures",)


# ---- the parties' own tools refuse -------------------------------------------------------------


def test_the_platform_signs_nothing_that_does_not_recompute(
    story: Story, approved: bytes, sides: Sides, tmp_path: Path
) -> None:
    lying = story.facts.to_json()
    more_money(lying)
    with pytest.raises(ReportError, match="fee-recomputed"):
        assemble(
            tmp_path / "staging",
            evidence=story.evidence,
            facts=ReportFacts.from_json(lying),
            measurement_envelope=approved,
            exports=EXPORTS,
            keys=sides.platform,
            now=ISSUED,
        )
    assert not (tmp_path / "staging").exists()


def test_a_report_is_not_dated_ahead(
    story: Story, approved: bytes, sides: Sides, tmp_path: Path
) -> None:
    with pytest.raises(ReportError, match="not dated ahead"):
        assemble(
            tmp_path / "staging",
            evidence=story.evidence,
            facts=story.facts,
            measurement_envelope=approved,
            exports=EXPORTS,
            keys=sides.platform,
            now=ISSUED - timedelta(seconds=1),
        )
    assert not (tmp_path / "staging").exists()


def test_the_auditor_signs_no_statement_that_does_not_recompute(
    story: Story, sides: Sides, tmp_path: Path
) -> None:
    lying = story.facts.measurement.to_json()
    lying["uplift"]["lower_95"] = "9.9"
    from reports.facts import MeasurementFacts

    payload = measurement_statement(story.evidence, MeasurementFacts.from_json(lying))
    data = envelope.sign(payload, sides.platform.statement)
    with pytest.raises(ReportError, match="uplift lower_95"):
        sign_statement(data, sides.auditor_dir, evidence=story.evidence)
    other = edited(story, tmp_path)
    (other.evidence / "plan.json").write_bytes(b"{}")
    good = envelope.sign(story.payload, sides.platform.statement)
    with pytest.raises(ReportError, match="not about the measured files"):
        sign_statement(good, sides.auditor_dir, evidence=other.evidence)


def test_the_auditor_signs_nothing_of_a_stranger(
    story: Story, sides: Sides, strangers: Sides
) -> None:
    data = envelope.sign(story.payload, strangers.platform.statement)
    with pytest.raises(ReportError, match="not in the trust store"):
        sign_statement(data, sides.auditor_dir, evidence=story.evidence)


@pytest.mark.parametrize(
    "name", [REPORT, FACTS, STATEMENT, BILLING, "exports/journal.csv", "evidence/contract.json"]
)
def test_the_auditor_signs_no_staging_folder_that_was_changed(
    staged: Path, sides: Sides, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "staging"
    shutil.copytree(staged, folder)
    flip(folder / name, (folder / name).stat().st_size // 2)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ReportError):
        auditor_sign(folder, sides.auditor_dir)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_the_platform_seals_nothing_unsigned_or_changed(
    staged: Path, made: Made, sides: Sides, tmp_path: Path
) -> None:
    log = TransparencyLog(tmp_path / "log", LOG_ORIGIN)
    with pytest.raises(ReportError, match="auditor signs first"):
        seal(staged, sides.platform, log, tmp_path / "bundle.zip")
    folder = unpacked(made, tmp_path)
    flip(folder / "exports" / "journal.csv", 3)
    with pytest.raises(ReportError, match="was changed"):
        seal(folder, sides.platform, log, tmp_path / "bundle.zip")
    with pytest.raises(ReportError, match="may not seal"):
        seal(folder, sides.auditor, log, tmp_path / "bundle.zip")
    assert log.entries() == ()
    assert not (tmp_path / "bundle.zip").exists()


def test_a_killed_countersigning_goes_on(staged: Path, sides: Sides, tmp_path: Path) -> None:
    """A crash between the auditor's PDF signature and their list: run the tool again."""
    folder = tmp_path / "staging"
    shutil.copytree(staged, folder)
    auditor_sign(folder, sides.auditor_dir)
    signed = (folder / REPORT).read_bytes()
    (folder / manifest.NAME).unlink()
    (folder / manifest.AUDITOR_SIGNATURE).unlink()
    auditor_sign(folder, sides.auditor_dir)
    assert (folder / REPORT).read_bytes() == signed
    assert len(pdfsign.check(signed, sides.trust.roots)) == 2
    half = tmp_path / "half"
    shutil.copytree(staged, half)
    (half / REPORT).write_bytes(signed)
    auditor_sign(half, sides.auditor_dir)
    assert (half / REPORT).read_bytes() == signed


# ---- the command line --------------------------------------------------------------------------


def test_command_line_exit_codes(
    made: Made, sides: Sides, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, trust = str(made.bundle), str(sides.trust_dir)
    assert main(["verify", good, "--trust", trust]) == 0
    assert "The bundle holds: all 19 checks passed." in capsys.readouterr().out
    assert main(["verify", good, "--trust", trust, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    assert main(["verify", str(tmp_path / "bad.zip"), "--trust", trust, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["archive"]
    assert main(["verify", str(tmp_path / "none.zip"), "--trust", trust]) == 2
    assert main(["verify", good, "--trust", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all(line.startswith("reports verify: ") for line in said)
    with pytest.raises(SystemExit) as stopped:
        main(["verify", good])
    assert stopped.value.code == 2


def test_command_line_of_the_auditor(
    story: Story,
    staged: Path,
    sides: Sides,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger to the portal: keys, statement, report, all from the shell."""
    keys = tmp_path / "auditor"
    monkeypatch.delenv("IGNITION_AUDITOR_PASSPHRASE", raising=False)
    assert main(["auditor-keys", str(keys), "--organisation", "Someone"]) == 0
    trust = str(tmp_path / "trust")
    assert main(["export-trust", "--platform", str(sides.platform_dir),
                 "--auditor", str(keys), "--out", trust]) == 0  # fmt: skip
    statement = tmp_path / STATEMENT
    unsigned = envelope.sign(story.payload, sides.platform.statement)
    statement.write_bytes(unsigned)
    command = ["auditor-sign", str(statement), "--keys", str(keys)]
    assert main(command) == 2
    assert statement.read_bytes() == unsigned
    assert main([*command, "--evidence", str(story.evidence)]) == 0
    assert len(envelope.read(statement.read_bytes())[1]) == 2
    folder = tmp_path / "staging"
    shutil.copytree(staged, folder)
    shutil.copy(statement, folder / STATEMENT)
    assert main(["auditor-sign", str(folder), "--keys", str(keys)]) == 0
    log = TransparencyLog(tmp_path / "log", LOG_ORIGIN)
    seal(folder, sides.platform, log, tmp_path / "bundle.zip")
    assert main(["verify", str(tmp_path / "bundle.zip"), "--trust", trust]) == 0
    assert main(["auditor-sign", str(tmp_path / "none"), "--keys", str(keys)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_command_line_renders(
    made: Made, story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = str(made.folder / FACTS)
    assert main(["render", facts, "--out", str(tmp_path / "r.pdf")]) == 0
    assert (tmp_path / "r.pdf").read_bytes() == render(story.facts)
    (tmp_path / "bad.json").write_text("{}")
    assert main(["render", str(tmp_path / "bad.json"), "--out", str(tmp_path / "x.pdf")]) == 1
    assert "facts_version" in capsys.readouterr().err
    assert main(["render", str(tmp_path / "none.json"), "--out", str(tmp_path / "x.pdf")]) == 2


def test_the_same_facts_and_evidence_give_the_same_statements(story: Story, made: Made) -> None:
    """P11: statement bytes follow from the evidence and the facts alone."""
    again = measurement_statement(story.evidence, story.facts.measurement)
    assert again == story.payload
    assert sha256_bytes(again) == story.facts.measurement_statement_sha256
