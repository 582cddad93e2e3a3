"""Sufficiency decides: what is missing gates a line, an auditor's named override lifts the gate.

Amounts are those of test_billing.py (40 million samples, 0.09 EUR); runs and hours are made here.
"""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction
from django.http import Http404

from metering.plan import Period
from metering.plan.measurement import METHOD_VERSION
from portal.accounts.access import NotAllowed
from portal.audits.models import SufficiencyOverride
from portal.audits.overrides import override_state
from portal.audits.services import ReviewError
from portal.billing.conflicts import contents_of, usage_decide
from portal.billing.models import BillingPeriod, Invoice, SavingsRecord, UsageEvent
from portal.billing.savings import BillingError, frozen_sufficiency
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.sufficiency import pair_of, preview, stored_coverage
from portal.billing.usage import period_lines, period_metered, usage_ingest
from portal.billing.usage_keys import period_decisions
from portal.events.models import Event
from portal.records import IssuedError
from portal.runs.models import BaselineEntry, Measurement
from portal.workspace import sha256_file
from tests.portal.conftest import Cast, example_contract
from tests.portal.web_evidence import run

ONE_SITTING = {f"final-00-r{turn}": f"2026-09-01T08:0{turn}:00Z" for turn in range(3)}
THREE_DAYS = {f"final-00-r{turn}": f"2026-08-0{1 + turn % 3}T08:00:00Z" for turn in range(6)}
REASON = "Pilot: both parties agreed to bill what one sitting shows."
RULES = ("sufficiency.baseline.days", "sufficiency.baseline.runs", "sufficiency.usage.hours")


@pytest.fixture
def method_version() -> str:
    return METHOD_VERSION


@pytest.fixture
def baseline_runs() -> dict[str, str]:
    return ONE_SITTING


def line(identifier: str, moment: datetime, samples: int, **changes: str) -> str:
    named = {"model": "text-encoder", "system": "search-1"}
    data = named | {name: changes.pop(name) for name in list(changes) if name in named}
    return json.dumps(
        {
            "specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1",
            "id": identifier, "time": moment.isoformat().replace("+00:00", "Z"),
            "data": {**data, "samples": samples}, **changes,
        }
    )  # fmt: skip


def hourly(period: BillingPeriod, samples: int) -> Iterator[str]:
    """One event of as many samples in every hour."""
    for hour in range((period.ends_at - period.starts_at) // timedelta(hours=1)):
        moment = period.starts_at + timedelta(hours=hour, minutes=7)
        yield line(f"{period.label}-{hour}", moment, samples)


def deliver(cast: Cast, lines: Iterator[str] | list[str]) -> None:
    usage_ingest(actor=cast.owner, organisation=cast.organisation, lines=list(lines), via="test")


@pytest.fixture
def period(cast: Cast, approved: Measurement) -> BillingPeriod:
    return period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-09"
    )


@pytest.fixture
def short(cast: Cast, period: BillingPeriod) -> BillingPeriod:
    """Ten hours of September have usage."""
    moments = [datetime(2026, 9, day, 10, tzinfo=UTC) for day in range(1, 11)]
    deliver(cast, [line(f"day {m.day}", m, 4_000_000) for m in moments])
    return period


@pytest.fixture
def whole(cast: Cast, period: BillingPeriod) -> BillingPeriod:
    """Every hour of September has usage, 40 million samples in all."""
    deliver(cast, hourly(period, 55_556))
    return period


def override(
    cast: Cast, period: BillingPeriod, measurement: Measurement, *rules: str
) -> list[SufficiencyOverride]:
    return [
        override_state(
            actor=cast.auditor, period=period, measurement=measurement, rule=rule, reason=REASON
        )
        for rule in rules
    ]


def compute(cast: Cast, period: BillingPeriod, measurement: Measurement) -> SavingsRecord:
    return savings_compute(actor=cast.finance, period=period, measurement=measurement)


def test_what_is_missing_gates_the_line_and_is_named(cast, approved, short):
    record = compute(cast, short, approved)
    (found,) = frozen_sufficiency(record)
    assert [item.name for item in found.disqualifications] == list(RULES)
    assert (record.volume_samples, record.billable, record.fee) == (40_000_000, 0, 0)
    assert round(record.point, 6) > 0, "what was measured is still said"
    assert "3 valid baseline runs, 5 needed" in record.document["lines"][0]["gate"]
    invoice = invoice_issue(actor=cast.finance, savings=record)
    assert invoice.net == 0
    (reason, *_) = invoice.document["reasons"]
    assert "10 of 720 hours metered" in reason
    assert "baseline runs of 1 day, 3 needed" in reason


@pytest.mark.parametrize("baseline_runs", [THREE_DAYS])
def test_what_is_enough_bills_in_full(cast, approved, whole):
    record = compute(cast, whole, approved)
    (found,) = frozen_sufficiency(record)
    assert found.disqualifications == ()
    assert (found.evidence.metered_hours, len(found.evidence.volumes)) == (720, 30)
    assert str(record.fee) == "0.09"
    assert invoice_issue(actor=cast.finance, savings=record).document["notes"] == [
        "short-run plan: shorter runs than a full measurement"
    ]


def test_an_override_bills_and_is_printed(cast, approved, whole):
    rows = override(cast, whole, approved, *RULES[:2])
    record = compute(cast, whole, approved)
    assert str(record.fee) == "0.09"
    (found,) = frozen_sufficiency(record)
    assert [over.name for over in found.overrides] == [row.rule for row in rows]
    notes = invoice_issue(actor=cast.finance, savings=record).document["notes"]
    assert notes[1:] == [
        f"{row.rule}: {row.found}; overridden by auditor, auditor: {REASON}" for row in rows
    ]
    told = Event.objects.filter(action="sufficiency.override").order_by("pk")
    assert [event.data["rule"] for event in told] == list(RULES[:2])


def entered(home: Path, measurement: Measurement, number: int, moment: str) -> BaselineEntry:
    """A re-measurement in the registry, with its runs' logs; its line is not looked at here."""
    folder = home / "evidence" / f"again-{number}"
    runs = [f"final-00-r{turn}" for turn in range(3)]
    for run_id in runs:
        run(folder / "baseline", run_id, 400.0, moment)
    document = folder / "baseline" / "baseline.json"
    document.write_text(json.dumps({"runs": runs, "number": number}))
    entry = BaselineEntry(
        organisation=measurement.organisation, contract_version=measurement.contract_version,
        number=number, line="signed", line_sha256=f"{number}" * 64,
        baseline_sha256=sha256_file(document), stack="onnxruntime", stack_version="1.25",
        samples_per_second=410, evidence_path=f"evidence/again-{number}",
        frozen_at=datetime(2026, 9, 10 * number, tzinfo=UTC),
    )  # fmt: skip
    entry.save(force_insert=True)
    return entry


def test_runs_of_the_registrys_remeasurements_count(cast, approved, whole, home):
    entries = [entered(home, approved, number, f"2026-09-{number}0T22:30:00Z") for number in (1, 2)]
    record = compute(cast, whole, approved)
    (found,) = frozen_sufficiency(record)
    assert found.disqualifications == ()
    assert [day.day for day in found.evidence.run_days] == [1] * 3 + [11] * 3 + [21] * 3
    assert set(found.evidence.remeasured) == {entry.baseline_sha256 for entry in entries}
    assert str(record.fee) == "0.09"


def test_a_remeasurement_that_was_changed_stops_the_computing(cast, approved, whole, home):
    entered(home, approved, 1, "2026-09-10T22:30:00Z")
    (home / "evidence" / "again-1" / "baseline" / "baseline.json").write_text("{}")
    with pytest.raises(BillingError, match="is not the one entered"):
        compute(cast, whole, approved)


def test_one_override_of_several_rules_is_not_enough(cast, approved, whole):
    override(cast, whole, approved, RULES[0])
    record = compute(cast, whole, approved)
    assert record.fee == 0
    assert record.reason == "sufficiency.baseline.runs: 3 valid baseline runs, 5 needed"


def test_older_methods_are_judged_as_they_were_signed(cast, approved, short, settings):
    version = approved.contract_version
    version.plan = {**version.plan, "method_version": "ignition-method-2"}
    with pytest.raises(ReviewError, match="no rules of sufficiency"):
        override(cast, short, approved, RULES[0])
    record = compute(cast, short, approved)
    assert (str(record.fee), record.document["schema"]) == ("0.09", "ignition.savings-period.v1")
    assert frozen_sufficiency(record) == ()


@pytest.mark.parametrize("who", ["owner", "finance", "operator", "platform"])
def test_only_an_auditor_overrides(cast, approved, short, who):
    with pytest.raises(NotAllowed):
        override_state(
            actor=getattr(cast, who), period=short, measurement=approved, rule=RULES[0],
            reason=REASON,
        )  # fmt: skip
    assert SufficiencyOverride.objects.count() == 0


def test_a_stranger_finds_nothing_to_override(cast, approved, short):
    with pytest.raises(Http404):
        override_state(
            actor=cast.outsider, period=short, measurement=approved, rule=RULES[0], reason=REASON
        )


@pytest.mark.parametrize(
    ("rule", "reason", "message"),
    [
        (RULES[2], REASON, "it holds, so there is nothing to override"),
        ("data.volume.extreme", REASON, "it only flags"),
        ("a.rule", REASON, "got 'a.rule'"),
        (RULES[0], "  \n", "got 0 characters"),
        (RULES[0], "x" * 501, "got 501 characters"),
    ],
)
def test_what_cannot_be_overridden(cast, approved, whole, rule, reason, message):
    deliver(cast, [line("a burst", datetime(2026, 9, 9, 9, tzinfo=UTC), 9_000_000_000)])
    with pytest.raises(ReviewError, match=message):
        override_state(
            actor=cast.auditor, period=whole, measurement=approved, rule=rule, reason=reason
        )


def test_an_override_is_stated_once_and_in_time(cast, approved, whole):
    (row,) = override(cast, whole, approved, RULES[0])
    assert override(cast, whole, approved, RULES[0])[0].pk == row.pk
    with pytest.raises(ReviewError, match="overridden already, by auditor, auditor"):
        override_state(
            actor=cast.auditor, period=whole, measurement=approved, rule=RULES[0], reason="other"
        )
    compute(cast, whole, approved)
    with pytest.raises(ReviewError, match="computed and frozen"):
        override(cast, whole, approved, RULES[1])
    zone = approved.contract_version.contract["zone"]
    label = Period.month_of(datetime.now(UTC), zone).label
    running = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label=label
    )
    with pytest.raises(ReviewError, match="ends at"):
        override(cast, running, approved, RULES[0])


def test_an_override_that_late_data_made_needless_is_not_printed(cast, approved, short):
    override(cast, short, approved, *RULES)
    deliver(cast, hourly(short, 1))
    record = compute(cast, short, approved)
    (found,) = frozen_sufficiency(record)
    assert [over.name for over in found.overrides] == list(RULES[:2])
    assert found.verdict.gate is None


def test_a_log_that_is_gone_stops_the_computing(cast, approved, whole, home):
    (log, *_) = sorted((home / "evidence").rglob("mlperf_log_detail.txt"))
    log.unlink()
    with pytest.raises(BillingError, match="no day in its log; restore its evidence"):
        compute(cast, whole, approved)
    assert SavingsRecord.objects.count() == 0


def test_runs_that_are_not_valid_do_not_count(cast, approved, whole, home):
    (log, *_) = sorted((home / "evidence").rglob("mlperf_log_detail.txt"))
    log.write_text(log.read_text().replace('"VALID"', '"INVALID"'))
    assert preview(whole, approved).evidence.run_days == (date(2026, 9, 1),) * 2


def test_an_override_never_changes(cast, approved, short):
    (row,) = override(cast, short, approved, RULES[0])
    row.reason = "another"
    with pytest.raises(IssuedError):
        row.save()
    for statement in ("UPDATE {} SET reason = 'x'", "DELETE FROM {}"):
        with (
            pytest.raises(DatabaseError, match="never change"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(SufficiencyOverride._meta.db_table))


def test_an_edited_examination_gets_no_invoice(cast, approved, short):
    """Whoever opens the gate in the record has changed what the fee was computed from."""
    from portal import triggers

    record = compute(cast, short, approved)
    triggers.remove()
    document = json.loads(json.dumps(record.document))
    document["lines"][0].pop("gate")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_savingsrecord SET document = %s WHERE id = %s",
            [json.dumps(document), record.pk.hex if connection.vendor == "sqlite" else record.pk],
        )
    with pytest.raises(BillingError, match="differs from the frozen one"):
        invoice_issue(actor=cast.finance, savings=SavingsRecord.objects.get(pk=record.pk))
    assert Invoice.objects.count() == 0


@pytest.mark.parametrize(
    ("label", "zone"),
    [("2026-10", "Europe/Berlin"), ("2026-03", "Europe/Berlin"), ("2026-09", "Asia/Kolkata")],
)
def test_the_database_counts_hours_as_the_engine_does(cast, draft, sign_plan, label, zone):
    """Repetitions, conflicts, wrong clocks, other models, early events; clocks that are put on."""
    draft.contract = {
        **example_contract(zone=zone).to_json(),
        "valid_from": f"{label}-03T00:00:00Z",
    }
    draft.save()
    for party in ("provider", "customer", "auditor"):
        sign_plan(draft, party)
    period = period_open(actor=cast.finance, contract_version=draft, label=label)
    start = period.starts_at

    def at(hours: float) -> datetime:
        return start + timedelta(hours=hours)

    lines = [line(f"h{hour}", at(hour + hour % 60 / 60), hour) for hour in range(40, 700, 3)]
    lines += [
        line("zero", at(100.5), 0),
        line("h40", at(40 + 40 / 60), 40),
        line("h70", at(70.5), 9),
        line("h73", at(73.9), 9),
        line("h76", period.ends_at + timedelta(hours=2), 9),
        line("other", at(80.2), 5, model="another"),
        line("ahead", at(101.2), 7, receivedtime=at(90).isoformat()),
        line("close", at(104.02), 7, receivedtime=at(104).isoformat()),
        line("early", at(1), 7),
        line("edge", at(48), 7),
        line("end", period.ends_at - timedelta(microseconds=1), 7),
        line("out", period.ends_at, 7),
    ]
    deliver(cast, lines)
    pair = pair_of(draft)
    for decided in (0, 1):
        if decided:
            stored = UsageEvent.objects.get(event_id="h73")
            seen = [content.event.content for content in contents_of(stored)]
            usage_decide(
                actor=cast.owner, stored=stored, choice="stored", reason="the gateway's own log",
                seen=seen,
            )  # fmt: skip
        decisions = period_decisions(period)
        _, (engine,) = period_metered(period, period_lines(period), [pair], decisions)
        assert stored_coverage(period, draft) == engine
        assert engine.conflicts == 3 - decided
        assert (73 in engine.by_hour) == bool(decided)
        assert 200 < engine.hours < 230
