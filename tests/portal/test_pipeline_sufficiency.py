"""Sufficiency from recorded runs to the signed report: gated, overridden, measured again.

The recording is of the method that examines sufficiency: three runs of the baseline, of one day.
"""

# ruff: noqa: F811 - pytest finds the imported fixture by the name of an argument.

import json

import pytest

from portal.billing.services import period_open
from portal.demo.scenario import PILOT_LACKS, PILOT_REASON, override_pilot
from portal.runs.pipeline import report as report_steps
from portal.runs.pipeline.baseline import register
from portal.runs.pipeline.evidence import remeasured_folder
from portal.workspace import absolute
from reports.bundle import auditor_sign
from tests.portal.money_stage import (  # noqa: F401
    Stage,
    approve,
    bill,
    deliver,
    packed,
    seal,
    stage,
)
from tests.reports.bundles import remeasured_on
from tests.reports.story import EXAMINED_RECORDING


@pytest.mark.parametrize("packed", [EXAMINED_RECORDING])
def test_a_pilot_bills_on_the_auditors_overrides_alone(stage: Stage):
    """Three runs of one day: as the demonstration's auditor has it, with nobody's word, and last
    with the runs of two re-measurements on other days."""
    measured = approve(stage)
    for label in ("2026-08", "2026-09", "2026-10"):
        deliver(stage, label)
    period = period_open(actor=stage.cast.finance, contract_version=stage.version, label="2026-08")
    stated = override_pilot(stage.cast, period, measured)
    assert [row.rule for row in stated] == sorted(PILOT_LACKS)
    paid = bill(stage, "2026-08")
    auditor_sign(report_steps.staging_folder(paid), stage.auditor, trust=stage.trust)
    report = seal(stage, paid)
    assert report.verified, report.verification["failed"]
    assert paid.net > 0
    assert sum(PILOT_REASON in note for note in paid.document["notes"]) == 2
    (found,) = report.facts["sufficiency"]
    assert found["gate"] is None
    rules = found["disqualifications"]
    assert {rule["override"]["auditor"] for rule in rules} == {"auditor, auditor"}
    assert (found["metered_hours"], found["period_hours"]) == ("744", "744")
    free = bill(stage, "2026-09")
    assert free.net == 0
    # What the platform signed was worked out again from the files before it signed.
    facts = json.loads((report_steps.staging_folder(free) / "facts.json").read_bytes())
    assert facts["sufficiency"][0]["gate"].startswith("sufficiency.baseline.days: ")
    assert any("evidence is not sufficient" in limit for limit in facts["limits"])
    evidence = absolute(measured.evidence_path)
    folders = [evidence]
    for number, day in ((1, "2026-12-05"), (2, "2026-12-06")):
        folders.append(remeasured_folder(stage.version, number))
        remeasured_on(evidence, folders[-1], day)
    for folder in folders:
        register(actor=stage.cast.platform, contract_version=stage.version, evidence=folder)
    full = bill(stage, "2026-10")
    assert full.document["fee"] == paid.document["fee"]
    staging = report_steps.staging_folder(full)
    (found,) = json.loads((staging / "facts.json").read_bytes())["sufficiency"]
    assert (found["baseline_runs"], found["baseline_days"]) == ("9", "3")
    assert found["disqualifications"] == []
    assert len(list((staging / "evidence" / "remeasured").iterdir())) == 2
