"""The gate of sufficiency, worked out from a bundle's files alone; forged overrides are named.

The recording is of real LoadGen runs under the method that examines sufficiency: three runs of the
baseline, all of one day. Bundles of earlier methods are those of every other test of this room.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metering.ledger import Invoice
from metering.savings import Override
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.recount import MeasuredAgain, recount_measurement, recount_money
from reports.sufficiency import REMEASURED
from reports.verify import verify
from reports.view import view
from tests.reports.bundles import edited, remeasured_on
from tests.reports.parties import Sides
from tests.reports.story import (
    EXAMINED_RECORDING,
    LABEL,
    NUMBER,
    Story,
    contract,
    forge,
    tell,
    unpack_recording,
)

RULES = ("sufficiency.baseline.days", "sufficiency.baseline.runs")
REASON = "Pilot of one sitting, agreed by both parties."
SAVINGS, INVOICE = f"savings/{LABEL}.json", f"invoice/{NUMBER}.json"


def told(folder: Path, *overrides: Override) -> Story:
    unpack_recording(folder / "evidence", EXAMINED_RECORDING)
    return tell(folder / "evidence", overrides=overrides)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Nobody overrode anything: the line bills nothing."""
    return told(tmp_path_factory.mktemp("gated"))


@pytest.fixture(scope="module")
def overridden(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The contract's auditor overrode both rules: the line bills."""
    stated = [Override.by("Dana Vogt", contract(), name=name, reason=REASON) for name in RULES]
    return told(tmp_path_factory.mktemp("overridden"), *stated)


@pytest.fixture(scope="module")
def measured(gated: Story) -> MeasuredAgain:
    return recount_measurement(gated.evidence, gated.facts.measurement)


def amounts(facts: ReportFacts) -> tuple[str, bool]:
    return facts.savings.billable, facts.fee.total == "0.00"


def test_both_verify_from_files_alone(
    gated: Story, overridden: Story, sides: Sides, tmp_path: Path
) -> None:
    for name, story in (("gated", gated), ("overridden", overridden)):
        (tmp_path / name).mkdir()
        bundle = forge(story, sides, tmp_path / name / "folder", tmp_path / name / "b.zip")
        found = verify(bundle, sides.trust_dir)
        assert found.ok, found.to_json()
    assert gated.facts.savings.billable == "0.000000"
    assert gated.facts.fee.total == "0.00"
    assert "3 valid baseline runs, 5 needed" in str(gated.facts.savings.reason)
    assert float(overridden.facts.fee.total) > 0
    assert gated.facts.savings.bound == overridden.facts.savings.bound


def test_the_report_prints_rules_and_overrides(gated: Story, overridden: Story) -> None:
    (shown,) = view(overridden.facts)["sufficiency"]
    assert [rule["state"] for rule in shown["rules"]] == ["overridden", "overridden"]
    assert shown["rules"][0]["override"] == f"Dana Vogt, Northlight Assurance: {REASON}"
    (shut,) = view(gated.facts)["sufficiency"]
    assert (shut["gated"], [rule["state"] for rule in shut["rules"]]) == (True, ["blocks"] * 2)
    assert "It is not billed" in view(gated.facts)["headline"]["sentence"]
    notes = Invoice.from_json(json.loads((overridden.evidence / INVOICE).read_bytes())).notes
    assert sum(REASON in note for note in notes) == 2


def test_earlier_methods_state_nothing(story: Story, measured: MeasuredAgain) -> None:
    assert "sufficiency" not in story.facts.to_json()
    first = json.loads((story.evidence / SAVINGS).read_bytes())
    assert first["schema"] == "ignition.savings-period.v1"


def altered(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        *parents, last = path.split(".")
        for parent in parents:
            place = place[int(parent) if parent.isdigit() else parent]
        place[last] = value

    return change


def without_overrides(document: dict[str, Any]) -> None:
    document["sufficiency"] = [{**document["sufficiency"][0], "overrides": []}]


def without_overrides_but_gated(document: dict[str, Any]) -> None:
    (item,) = document["sufficiency"]
    rules = [f"{rule['name']}: {rule['description']}" for rule in item["disqualifications"]]
    document["sufficiency"] = [{**item, "overrides": [], "gate": "; ".join(rules)}]


def more_days(document: dict[str, Any]) -> None:
    """Five runs on three days, with rules and overrides that fit."""
    (item,) = document["sufficiency"]
    days = ["2026-11-01", "2026-11-02", "2026-11-03", "2026-11-03", "2026-11-03"]
    document["sufficiency"] = [
        {
            **item, "evidence": {**item["evidence"], "run_days": days}, "overrides": [],
            "disqualifications": [],
        }
    ]  # fmt: skip


def by_another(document: dict[str, Any]) -> None:
    for override in document["sufficiency"][0]["overrides"]:
        override["auditor"] = "Mallory, Another Auditor"


def of_a_rule_that_holds(document: dict[str, Any]) -> None:
    (item,) = document["sufficiency"]
    extra = {**item["overrides"][0], "name": "sufficiency.usage.hours"}
    document["sufficiency"] = [{**item, "overrides": [*item["overrides"], extra]}]


def said_twice(document: dict[str, Any]) -> None:
    (item,) = document["sufficiency"]
    document["sufficiency"] = [{**item, "overrides": [*item["overrides"], item["overrides"][0]]}]


def of_the_first_schema(document: dict[str, Any]) -> None:
    document["schema"] = "ignition.savings-period.v1"
    del document["sufficiency"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_overrides, "sufficiency.gate"),
        (without_overrides_but_gated, "sufficiency: stated"),
        (more_days, "run_days: stated"),
        (by_another, "does not speak for the contract's auditor"),
        (of_a_rule_that_holds, "a disqualification of this line"),
        (said_twice, "each rule once"),
        (of_the_first_schema, "savings schema"),
        (altered("sufficiency.0.overrides.0.reason", "another reason"), "sufficiency: stated"),
        (altered("sufficiency.0.evidence.metered_hours", "719"), "metered_hours: stated"),
        (altered("sufficiency", []), "sufficiency: stated for"),
        (altered("lines.0.gate", "by hand"), "savings of"),
    ],
)
def test_a_forged_or_removed_override_is_named(
    overridden: Story,
    measured: MeasuredAgain,
    tmp_path: Path,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    changed = edited(overridden, tmp_path)
    path = changed.evidence / SAVINGS
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises((ReportError, ValueError), match=message):
        recount_money(changed.evidence, changed.facts, measured)


def test_an_override_slipped_into_a_gated_bundle_is_named(
    gated: Story, overridden: Story, measured: MeasuredAgain, tmp_path: Path
) -> None:
    """The examination of the overridden bundle in the place of the gated one."""
    changed = edited(gated, tmp_path)
    path = changed.evidence / SAVINGS
    document = json.loads(path.read_bytes())
    other = json.loads((overridden.evidence / SAVINGS).read_bytes())
    path.write_text(json.dumps({**document, "sufficiency": other["sufficiency"]}))
    with pytest.raises(ReportError, match="sufficiency: stated"):
        recount_money(changed.evidence, changed.facts, measured)
    told_so = replace(
        changed,
        facts=ReportFacts.from_json(
            {**gated.facts.to_json(), "sufficiency": overridden.facts.to_json()["sufficiency"]}
        ),
    )
    with pytest.raises(ReportError, match="savings of"):
        recount_money(changed.evidence, told_so.facts, measured)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (altered("sufficiency.0.disqualifications.0.override", None), "sufficiency: stated"),
        (altered("sufficiency", []), "sufficiency: stated"),
        (altered("sufficiency.0.baseline_days", "3"), "sufficiency: stated"),
    ],
)
def test_what_the_report_prints_is_what_was_examined(
    overridden: Story,
    measured: MeasuredAgain,
    change: Callable[[dict[str, Any]], None],
    message: str,
) -> None:
    stated = json.loads(json.dumps(overridden.facts.to_json()))
    change(stated)
    with pytest.raises(ReportError, match=message):
        recount_money(overridden.evidence, ReportFacts.from_json(stated), measured)


def test_an_invoice_that_keeps_an_override_to_itself_is_named(
    overridden: Story, measured: MeasuredAgain, tmp_path: Path
) -> None:
    changed = edited(overridden, tmp_path)
    path = changed.evidence / INVOICE
    document = json.loads(path.read_bytes())
    document["notes"] = [note for note in document["notes"] if RULES[0] not in note]
    path.write_text(json.dumps(document))
    with pytest.raises(ReportError, match="invoice notes"):
        recount_money(changed.evidence, changed.facts, measured)


def test_a_log_moved_to_another_day_changes_the_days(
    overridden: Story, measured: MeasuredAgain, tmp_path: Path
) -> None:
    """Days are those of LoadGen's logs; that a log was edited is what the other recount names."""
    changed = edited(overridden, tmp_path)
    log = changed.evidence / "baseline/runs/final-00-r0/mlperf_log_detail.txt"
    text = log.read_text()
    start = text.index('"test_datetime", "value": "') + len('"test_datetime", "value": "')
    log.write_text(f"{text[:start]}2026-10-01{text[start + 10 :]}")
    with pytest.raises(ReportError, match="run_days: stated"):
        recount_money(changed.evidence, changed.facts, measured)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Two re-measurements on two other days: nine runs of three days, nothing to override."""
    evidence = tmp_path_factory.mktemp("again") / "evidence"
    unpack_recording(evidence, EXAMINED_RECORDING)
    baseline = json.loads((evidence / "baseline" / "baseline.json").read_bytes())
    mix = json.loads((evidence / "mix.json").read_bytes())
    mix |= {name: baseline[name] for name in ("model_sha256", "samples_sha256")}
    (evidence / "mix.json").write_text(json.dumps({**mix, "unit": "sentence"}))
    for number, day in ((1, "2026-11-10"), (2, "2026-11-20")):
        remeasured_on(evidence, evidence / REMEASURED / str(number), day)
    return tell(evidence)


def test_runs_of_the_registrys_other_days_count(again: Story, measured: MeasuredAgain) -> None:
    (item,) = again.facts.sufficiency
    assert (item.baseline_runs, item.baseline_days, item.disqualifications) == ("9", "3", ())
    assert float(again.facts.fee.total) > 0
    recount_money(again.evidence, again.facts, measured)


def copied(evidence: Path) -> None:
    """A third folder with the runs of the second: only its record has another time."""
    folder = evidence / REMEASURED / "3"
    shutil.copytree(evidence / REMEASURED / "2", folder)
    frozen = folder / "baseline" / "baseline.json"
    frozen.write_text(frozen.read_text().replace("T12:00:00Z", "T12:00:03Z"))


def of_another_system(evidence: Path) -> None:
    path = evidence / REMEASURED / "2" / "system.json"
    system = json.loads(path.read_bytes())
    path.write_text(json.dumps({**system, "revision": "another"}))


def edited_log(evidence: Path) -> None:
    log = evidence / REMEASURED / "2" / "baseline/runs/final-00-r0/mlperf_log_detail.txt"
    log.write_text(log.read_text().replace("2026-11-20", "2026-11-21"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda evidence: shutil.rmtree(evidence / REMEASURED / "2"), "run_days: stated"),
        (copied, "counted twice"),
        (of_another_system, "not comparable: system.revision"),
        (edited_log, "SHA-256 is not the recorded one"),
    ],
)
def test_a_forged_remeasurement_is_named(
    again: Story,
    measured: MeasuredAgain,
    tmp_path: Path,
    change: Callable[[Path], None],
    message: str,
) -> None:
    changed = edited(again, tmp_path)
    change(changed.evidence)
    with pytest.raises((ReportError, ValueError), match=message):
        recount_money(changed.evidence, changed.facts, measured)
