"""Keys, facts, trust and the good bundle shared by the report tests: made once per run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reports import envelope
from reports.bundle import assemble, auditor_sign, seal, sign_statement
from reports.facts import ReportFacts
from reports.keys import LOG_ORIGIN
from reports.log import TransparencyLog
from tests.reports.bundles import Made
from tests.reports.parties import Sides, make_sides
from tests.reports.story import EXPORTS, ISSUED, Story, tell, unpack_recording

EXAMPLE = Path(__file__).parent / "example_facts.json"


@pytest.fixture(scope="session")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    return make_sides(tmp_path_factory.mktemp("sides"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Sides:
    """Another platform and another auditor, honest about themselves, trusted by nobody here."""
    return make_sides(tmp_path_factory.mktemp("strangers"))


@pytest.fixture
def facts_json() -> dict[str, Any]:
    return json.loads(EXAMPLE.read_text("utf-8"))


@pytest.fixture(scope="session")
def facts() -> ReportFacts:
    return ReportFacts.from_json(EXAMPLE.read_bytes())


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
