"""Conflicts decided by a person: pages, period, evidence and a stranger's recount say the same."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction
from django.http import Http404
from django.urls import reverse

from metering.plan import Period
from metering.usage import aggregate, decisions_document, read_decisions, read_events
from portal.accounts.access import NotAllowed
from portal.billing.conflicts import (
    contents_of,
    decision_of,
    usage_decide,
    usage_send_again,
)
from portal.billing.models import ParkedUsage, SavingsRecord, UsageDecision, UsageEvent
from portal.billing.savings import BillingError
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.sufficiency import pair_of, stored_coverage
from portal.billing.usage import period_lines, period_metered, usage_cut, usage_ingest
from portal.billing.usage_keys import period_decisions
from portal.billing.usage_range import UsageRange
from portal.billing.usage_reads import UsageQuery, parked_counts, table_of
from portal.events.models import Event
from portal.events.services import chain_check
from portal.records import IssuedError
from portal.registry.services import system_register
from tests.portal.test_usage_explorer import event

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OCTOBER = UsageQuery(UsageRange(date(2026, 10, 1), date(2026, 11, 1), "Europe/Berlin"))
WHEN = "2026-10-05T08:00:00Z"


@pytest.fixture
def ingest(cast, agreed):
    def act(*lines: str) -> list[str]:
        _, fates = usage_ingest(
            actor=cast.owner, organisation=cast.organisation, lines=list(lines), via="test"
        )
        return [fate.fate for fate in fates]

    return act


@pytest.fixture
def decide(cast):
    def act(name: str = "k", choice: int = 0, who=None, seen=None, reason="read twice"):
        stored = UsageEvent.objects.get(organisation=cast.organisation, event_id=name)
        contents = contents_of(stored)
        return usage_decide(
            actor=who or cast.owner, stored=stored, choice=contents[choice].choice, reason=reason,
            seen=seen or [content.event.content for content in contents],
        )  # fmt: skip

    return act


@pytest.fixture
def october(cast, approved):
    """Compute October and return its record."""

    def act() -> SavingsRecord:
        period = period_open(
            actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
        )
        return savings_compute(actor=cast.finance, period=period, measurement=approved)

    return act


def recounted(record: SavingsRecord, folder: Path):
    """October as a stranger adds it up: from the files of the evidence alone."""
    period, version = record.period, record.period.contract_version
    lines = folder / "events.jsonl"
    lines.write_text("".join(f"{x}\n" for x in period_lines(period, record.usage_until)))
    decisions = folder / "decisions.json"
    decided = period_decisions(period, record.usage_until)
    decisions.write_text(json.dumps(decisions_document(decided)))
    with lines.open("rb") as stream:
        return aggregate(
            read_events(stream),
            Period.month(period.label, period.zone),
            period.zone,
            known={(version.mix.model.name, version.system.name)},
            decisions=read_decisions(json.loads(decisions.read_text())),
            not_before=datetime.fromisoformat(version.contract["valid_from"]),
        )


@pytest.mark.parametrize(
    ("choice", "samples", "duplicates"),
    [(None, 1, 0), (0, 101, 0), (1, 201, 1), (2, 301, 0)],
    ids=["undecided", "the stored one", "another", "the third"],
)
def test_page_period_and_recount_come_to_the_same(
    cast, ingest, decide, october, tmp_path, choice, samples, duplicates
):
    ingest(event("k", WHEN, 100), event("z", WHEN, 1))
    assert ingest(event("k", WHEN, 200), event("k", WHEN, 200), event("k", WHEN, 300)) == [
        "conflict", "conflict", "conflict",
    ]  # fmt: skip
    if choice is not None:
        decide(choice=choice)
    assert table_of(cast.owner, OCTOBER, NOW).samples == samples
    record = october()
    assert record.volume_samples == samples
    assert (record.usage["counts"]["duplicate"], record.usage["rows"]) == (duplicates, 5)
    assert recounted(record, tmp_path).to_json() == record.usage
    assert table_of(cast.owner, OCTOBER, NOW).samples == samples
    counts = parked_counts(actor=cast.auditor, query=OCTOBER)
    open_ones = 3 if choice is None else 0
    assert (counts["conflict"], counts["decided"]) == (open_ones, int(choice in (1, 2)))
    # A forged decision gives other totals: the recount of the bundle fails.
    if choice == 1:
        row = UsageDecision.objects.get()
        forged = replace(row.as_decision(), content=row.contents[0])
        forged = replace(forged, content=next(c for c in row.contents if c != row.content_sha256))
        lines = list(period_lines(record.period, record.usage_until))
        month = Period.month("2026-10", "Europe/Berlin")
        again = aggregate(read_events(lines), month, month.zone, decisions={forged.key: forged})
        assert again.samples != samples


def test_a_time_moved_to_another_month_counts_in_one_month_only(
    cast, approved, ingest, decide, tmp_path
):
    """Without the rival's line the second month would see one content, and count it."""
    ingest(event("k", "2026-09-30T12:00:00Z", 100), event("z", WHEN, 1))
    ingest(event("k", "2026-10-02T12:00:00Z", 100))

    def volumes() -> list[int]:
        found = []
        with transaction.atomic():
            for label in ("2026-09", "2026-10"):
                period = period_open(
                    actor=cast.finance, contract_version=approved.contract_version, label=label
                )
                record = savings_compute(actor=cast.finance, period=period, measurement=approved)
                assert recounted(record, tmp_path).to_json() == record.usage
                found.append(record.volume_samples)
            transaction.set_rollback(True)
        return found

    assert volumes() == [0, 1]
    decide(choice=0)
    assert volumes() == [100, 1]
    decide(choice=1)
    assert volumes() == [0, 101]


def test_the_preview_of_hours_follows_decisions(cast, agreed, ingest, decide):
    """What the auditor sees before the computation is what it will be examined by."""
    ingest(event("k", "2026-09-30T12:00:00Z", 100), event("z", WHEN, 1), event("y", WHEN, 4))
    ingest(event("k", "2026-10-02T12:00:00Z", 7), event("y", "2026-10-06T08:00:00Z", 5))
    period = period_open(actor=cast.platform, contract_version=agreed, label="2026-10")

    def hours() -> tuple[int, int]:
        _, (engine,) = period_metered(
            period, period_lines(period), [pair_of(agreed)], period_decisions(period)
        )
        assert stored_coverage(period, agreed) == engine
        return len(engine.by_hour), engine.conflicts

    assert hours() == (1, 2)
    decide("k", choice=1)
    assert hours() == (2, 1)
    decide("y", choice=1)
    assert hours() == (3, 0)
    decide("k", choice=0)
    assert hours() == (2, 0)


def test_another_content_contests_the_key_again(cast, ingest, decide):
    ingest(event("k", WHEN, 100))
    ingest(event("k", WHEN, 200))
    seen = [content.event.content for content in contents_of(UsageEvent.objects.get())]
    first = decide(choice=1)
    assert table_of(cast.owner, OCTOBER, NOW).samples == 200
    # What was looked at may come again; what was not is a conflict.
    assert ingest(event("k", WHEN, 100), event("k", WHEN, 200)) == ["duplicate", "duplicate"]
    assert decision_of(first.stored) == first
    assert ingest(event("k", WHEN, 300)) == ["conflict"]
    assert decision_of(first.stored) is None
    assert table_of(cast.owner, OCTOBER, NOW).samples == 0
    with pytest.raises(BillingError, match="another one came since, look again"):
        decide(choice=1, seen=seen)
    again = decide(choice=2, reason="the third one is right")
    assert again.replaces == first
    assert table_of(cast.owner, OCTOBER, NOW).samples == 300
    assert ingest(event("k", WHEN, 200)) == ["overruled"]
    assert table_of(cast.owner, OCTOBER, NOW).fates == {"overruled": 1, "pending": 1}
    assert decide(choice=2) == again


def test_a_computed_period_does_not_change(cast, ingest, decide, october, client):
    ingest(event("k", WHEN, 100), event("k", WHEN, 200), event("z", WHEN, 1))
    record = october()
    invoice = invoice_issue(actor=cast.finance, savings=record)
    with pytest.raises(BillingError, match=f"does not change: finance may credit {invoice.number}"):
        decide()
    assert UsageDecision.objects.count() == 0
    client.force_login(cast.owner.user)
    stored = UsageEvent.objects.get(event_id="k")
    page = reverse("billing:usage-event", args=[stored.pk])
    text = client.get(page).content.decode()
    assert "Too late to decide" in text
    assert "<form" not in text.split("Which content counts")[1].split("</section>")[0]
    asked = {"choice": "stored", "reason": "r", "seen": "x"}
    assert client.post(reverse("billing:usage-decide", args=[stored.pk]), asked).status_code == 400
    assert UsageDecision.objects.count() == 0


def test_what_comes_after_the_computation_leaves_the_evidence_alone(
    cast, ingest, october, tmp_path
):
    ingest(event("a", WHEN, 100))
    record = october()
    before = list(period_lines(record.period, record.usage_until))
    ingest(event("a", WHEN, 100), event("a", WHEN, 7), event("b", WHEN, 5))
    assert list(period_lines(record.period, record.usage_until)) == before
    assert recounted(record, tmp_path).to_json() == record.usage
    assert table_of(cast.owner, OCTOBER, NOW).fates["late"] == 1


def test_a_cut_gives_its_lock_back(cast):
    before = datetime.now(UTC)
    with transaction.atomic():
        moment = usage_cut(cast.organisation)
        assert not transaction.get_rollback()
    assert timedelta(0) <= moment - before < timedelta(minutes=1)


def test_a_decision_is_issued_and_told(cast, ingest, decide):
    ingest(event("k", WHEN, 100), event("k", WHEN, 200))
    row = decide(choice=1, reason="the gateway was patched")
    told = Event.objects.get(action="usage.decide")
    assert (told.subject_id, told.actor_label) == (str(row.pk), "owner (customer)")
    assert told.data["reason"] == "the gateway was patched"
    assert told.data["contents"] == row.contents
    assert chain_check().ok
    row.reason = "another"
    with pytest.raises(IssuedError):
        row.save()
    for statement in ("UPDATE {} SET reason = 'x'", "DELETE FROM {}"):
        with (
            pytest.raises(DatabaseError, match="never change"),
            transaction.atomic(),
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(UsageDecision._meta.db_table))


@pytest.mark.parametrize("who", ["auditor", "finance", "operator", "host"])
def test_only_the_customer_decides(cast, ingest, decide, who):
    ingest(event("k", WHEN, 100), event("k", WHEN, 200))
    with pytest.raises(Http404 if who == "host" else NotAllowed):
        decide(who=getattr(cast, who))


def test_nothing_to_decide_is_said(ingest, decide, cast):
    ingest(event("k", WHEN, 100))
    with pytest.raises(BillingError, match="nothing is to be decided"):
        decide()
    ingest(event("k", WHEN, 200))
    stored = UsageEvent.objects.get()
    with pytest.raises(BillingError, match="choice: got 'nobody'"):
        usage_decide(
            actor=cast.owner, stored=stored, choice="nobody", reason="r",
            seen=[content.event.content for content in contents_of(stored)],
        )  # fmt: skip


def test_the_page_shows_both_contents_and_takes_the_decision(cast, ingest, client):
    ingest(event("k", WHEN, 100), event("k", WHEN, 2_000))
    stored, other = UsageEvent.objects.get(), ParkedUsage.objects.get()
    page = reverse("billing:usage-event", args=[stored.pk])
    act = reverse("billing:usage-decide", args=[stored.pk])
    client.force_login(cast.auditor.user)
    assert "The customer decides" in client.get(page).content.decode()
    client.force_login(cast.colleague.user)
    text = client.get(page).content.decode()
    assert "2 contents came under this source and id" in text
    seen = text.split('name="seen" value="')[1].split('"')[0]
    empty = client.post(act, {"choice": other.pk, "reason": " ", "seen": seen})
    assert empty.status_code == 400
    assert 'id="id_reason_error"' in empty.content.decode()
    # The choice made stays; fields nobody asked for change nothing.
    assert "checked" in empty.content.decode()
    sent = {"choice": other.pk, "reason": "second reading", "seen": seen, "samples": "9",
            "organisation": cast.outsider.organisation.pk}  # fmt: skip
    answer = client.post(act, sent, follow=True)
    text = answer.content.decode()
    assert "Decided: 2,000 samples count under this key." in text
    assert "decided by colleague (customer)" in text
    assert UsageDecision.objects.get().samples == 2_000
    line = client.get(reverse("billing:usage-line", args=[other.pk])).content.decode()
    assert "counts in place of the stored event" in line
    stale = client.post(act, {**sent, "seen": stored.content_sha256})
    assert stale.status_code == 400
    assert "look again" in stale.content.decode()
    client.force_login(cast.outsider.user)
    assert client.post(act, sent).status_code == 404


def test_an_unmatched_line_is_sent_again_once_registered(cast, ingest, client, machine):
    data = {"model": "text-encoder", "system": "search-2", "samples": 5}
    assert ingest(event("u", WHEN, data=data, receivedtime="2026-10-05T08:00:09Z")) == ["unmatched"]
    line = ParkedUsage.objects.get()
    page = reverse("billing:usage-line", args=[line.pk])
    again = reverse("billing:usage-send-again", args=[line.pk])
    client.force_login(cast.owner.user)
    assert "Send it again" in client.get(page).content.decode()
    assert "not registered: register it" in client.post(again, follow=True).content.decode()
    assert UsageEvent.objects.count() == 0
    system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-2",
        machine=replace(machine, fingerprint="ef" * 32),
    )  # fmt: skip
    assert "Stored: the line counts now." in client.post(again, follow=True).content.decode()
    stored = UsageEvent.objects.get()
    # It keeps its first time of receipt.
    assert stored.received_at == datetime(2026, 10, 5, 8, 0, 9, tzinfo=UTC)
    assert stored.line == line.line
    assert "duplicate" in client.post(again, follow=True).content.decode()
    assert UsageEvent.objects.count() == 1
    with pytest.raises(NotAllowed):
        usage_send_again(actor=cast.finance, line=line)
    with pytest.raises(BillingError, match="only an unmatched line"):
        usage_send_again(actor=cast.owner, line=ParkedUsage.objects.filter(fate="duplicate")[0])
