"""The good bundle, and the tools that make it.

Two parties make it and a stranger checks it: with `reports verify` and with the printed commands of
VERIFY.txt. The platform's tool and the auditor's refuse to sign or seal what does not recompute,
what a stranger signed or what was changed on the way, and the command line says so.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from reports import envelope, manifest, pdfsign
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
from reports.canonical import sha256_bytes
from reports.errors import ReportError
from reports.facts import MeasurementFacts, ReportFacts
from reports.keys import LOG_ORIGIN
from reports.log import TransparencyLog
from reports.pdf import render
from reports.statement import measurement_statement
from reports.verify import verify
from tests.reports.bundles import Made, edited, flip, more_money, unpacked
from tests.reports.parties import Sides
from tests.reports.story import EXPORTS, ISSUED, Story

ALL_CHECKS = {
    *("trust", "archive", "listing", "digests", "manifest-platform", "manifest-auditor"),
    *("measurement-statement", "billing-statement", "pdf-signatures", "facts"),
    *("measurement-statement-content", "billing-statement-content", "subjects"),
    *("statements-agree", "exports", "uplift-recomputed", "fee-recomputed"),
    *("pdf-rendered", "log-proof"),
}


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
