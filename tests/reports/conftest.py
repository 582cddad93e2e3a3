"""Keys, facts and trust shared by the report tests: real keys, made once per run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.facts import ReportFacts
from tests.reports.parties import Sides, make_sides

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
