"""The registry of baselines in the portal: entries, what is in force, what is due, and again."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from metering import stacks
from metering.__main__ import main
from metering.baseline.comparability import ComparabilityKey
from metering.baseline.registry import Entry, Known, signed_line
from metering.contract import BaselinePolicy
from metering.loadgen import EvidenceError
from metering.loadgen.files import sha256_bytes
from portal.accounts.access import NotAllowed, Platform
from portal.billing.models import BillingPeriod
from portal.billing.savings import BillingError, require_baseline_in_force
from portal.contracts.models import ContractVersion
from portal.events.models import Event
from portal.keystore import platform_keys
from portal.runs import tasks
from portal.runs.models import Baseline, BaselineDue, BaselineEntry, Job, Measurement
from portal.runs.pipeline.baseline import register
from portal.runs.registry import due_mark, entries_of, entry_store, standing
from portal.runs.requests import remeasure_request
from portal.runs.services import RunsError
from portal.workspace import home as home_folder
from tests.metering.measure.conftest import recorded  # noqa: F401
from tests.metering.measure.test_baseline_registry import later, registered
from tests.portal.web_data import Stage
from tests.portal.web_stage import stage  # noqa: F401

FROZEN = datetime(2026, 8, 3, 9, 30, tzinfo=UTC)
KEY = ComparabilityKey({"system.name": "search-eu-1", "settings.cores": "0,1"})
pytestmark = pytest.mark.django_db

RATES = ("1012.5", "1100", "1050")


def known() -> tuple[Known, ...]:
    return tuple(
        Known(info.name, info.version, info.digest)
        for info in stacks.discover_stock()
        if info.available
    )


def entry(number: int, previous: str = "", **fields: Any) -> Entry:
    made = Entry(
        number=number, previous=previous, key=KEY, baseline_sha256=f"{number:064d}",
        plan_digest="ab" * 32, frozen_at=FROZEN + timedelta(days=30 * number),
        stack="onnxruntime", version=f"1.{number}", samples_per_second=Decimal(RATES[number]),
        as_found=Decimal("812.4") if number == 0 else None, cores=2, swept=("onnxruntime",),
        stacks=known(),
    )  # fmt: skip
    return replace(made, **fields)


def enter(version: ContractVersion, made: Entry) -> BaselineEntry:
    return entry_store(
        actor=Platform(version.organisation),
        contract_version=version,
        line=signed_line(made, platform_keys().statement),
        evidence=home_folder() / "evidence" / str(made.number),
    )


@pytest.fixture
def filled(stage: Stage, db: None) -> list[BaselineEntry]:  # noqa: F811
    """Three entries in the registry of the stage's baseline."""
    rows: list[BaselineEntry] = []
    for number in range(3):
        previous = rows[-1].line_sha256 if rows else ""
        rows.append(enter(stage.baseline.contract_version, entry(number, previous)))
    return rows


def page(client: Client, stage: Stage, **query: str) -> str:  # noqa: F811
    client.force_login(stage.auditor.user)
    return client.get(reverse("runs:registry", args=[stage.baseline.pk]), query).content.decode()


def test_entries_stand_in_order_and_the_policy_says_which_counts(
    client: Client,
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
) -> None:
    text = page(client, stage)
    assert "The policy is fixed" in text
    assert "entry 0 is in force" in text
    places = [text.index(f"onnxruntime 1.{number}") for number in range(3)]
    assert places == sorted(places)
    assert text.count("does not count") == 2
    assert "812.40" in text
    assert "What is billed already stays as it is" in text


def test_a_day_is_asked_about_in_the_contract_s_zone(
    client: Client,
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
) -> None:
    assert "2026-08-31 22:00:00Z entry 0 is in force" in _plain(
        page(client, stage, at="2026-09-01")
    )
    assert "Before the first entry no baseline was in force" in page(client, stage, at="2026-01-01")
    client.force_login(stage.auditor.user)
    url = reverse("runs:registry", args=[stage.baseline.pk])
    answer = client.get(url, {"at": "yesterday"})
    assert answer.status_code == 400
    assert "Enter a valid date" in answer.content.decode()
    assert 'value="yesterday"' in answer.content.decode()


def _plain(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", "", text).split())


POLICIES = [
    ("fixed", None, [0, 0, 0], "1012.5"),
    ("reset", None, [0, 1, 2], "1050"),
    # The third is dearer than the second: under ratchet the second's cost goes on counting.
    ("ratchet", None, [0, 1, 2], "1100"),
    ("glide", Decimal("0.5"), [0, 1, 2], "1052"),
]


@pytest.mark.parametrize(("kind", "fraction", "numbers", "rate"), POLICIES)
def test_every_policy_has_one_in_force_at_each_time(
    kind: Any, fraction: Any, numbers: list[int], rate: str
) -> None:
    entries = [entry(number) for number in range(3)]
    policy = BaselinePolicy(kind, fraction)
    found = [standing(entries, policy, one.frozen_at + timedelta(hours=1)) for one in entries]
    assert [one.number for one in found] == numbers
    last = found[-1].effective[-1]
    assert abs(last.samples_per_second - Decimal(rate)) < Decimal("1")
    assert kind in found[-1].reason


@pytest.mark.parametrize(
    ("kind", "fraction", "rates", "refused"),
    [
        ("fixed", None, ("400", "500"), False),
        ("reset", None, ("400", "500"), True),
        ("ratchet", None, ("400", "500"), True),
        # Dearer than before: under ratchet the first goes on counting, and bills.
        ("ratchet", None, ("400", "300"), False),
        ("glide", "0.5", ("400", "500"), True),
    ],
)
def test_no_period_is_billed_against_a_baseline_nobody_measured_against(
    measured: Measurement, kind: str, fraction: str | None, rates: tuple[str, str], refused: bool
) -> None:
    version = measured.contract_version
    policy = {"kind": kind, **({"fraction": fraction} if fraction else {})}
    version.contract = {**version.contract, "baseline_policy": policy}
    previous = ""
    for number, rate in enumerate(rates):
        row = enter(version, entry(number, previous, samples_per_second=Decimal(rate)))
        previous = row.line_sha256
    taken = FROZEN + timedelta(days=30)
    before = BillingPeriod(label="2026-08", starts_at=FROZEN, ends_at=taken)
    after = BillingPeriod(label="2026-09", starts_at=FROZEN, ends_at=taken + timedelta(hours=1))
    require_baseline_in_force(before, measured)
    if not refused:
        require_baseline_in_force(after, measured)
        return
    with pytest.raises(BillingError, match=f"under the policy {kind} baseline 1 counts from"):
        require_baseline_in_force(after, measured)


def test_lines_are_what_the_engine_s_own_command_checks(
    client: Client,
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.force_login(stage.auditor.user)
    paths = []
    for name, route in (("registry.jsonl", "registry-lines"), ("platform.pem", "registry-key")):
        answer = client.get(reverse(f"runs:{route}", args=[stage.baseline.pk]))
        paths.append(tmp_path / name)
        paths[-1].write_bytes(answer.content)
    assert main(["baseline", "show", str(paths[0]), "--public", str(paths[1]), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["samples_per_second"] for one in shown["entries"]] == list(RATES)
    table = client.get(reverse("runs:registry-csv", args=[stage.baseline.pk])).content.decode()
    rows = [line.split(",") for line in table.splitlines()]
    assert [row[4] for row in rows[1:]] == list(RATES)
    assert rows[1][5] == "812.4"
    # A changed line does not hold.
    paths[0].write_bytes(paths[0].read_bytes().replace(b"1012.5", b"912.5"))
    assert main(["baseline", "show", str(paths[0]), "--public", str(paths[1])]) == 1


def test_only_the_platform_s_next_line_is_entered_once(
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
) -> None:
    version = stage.baseline.contract_version
    again = enter(version, entry(2, filled[1].line_sha256))
    assert again.pk == filled[2].pk
    with pytest.raises(EvidenceError, match="does not follow the line before it"):
        enter(version, entry(2, filled[0].line_sha256, baseline_sha256="f" * 64))
    line = signed_line(entry(0), Ed25519PrivateKey.generate())
    with pytest.raises(EvidenceError, match="the signature is not that of the key"):
        entry_store(
            actor=Platform(version.organisation), contract_version=stage.contract, line=line,
            evidence=home_folder() / "evidence",
        )  # fmt: skip
    with pytest.raises(RunsError, match="only the platform's own jobs"):
        entry_store(
            actor=stage.owner,
            contract_version=version,
            line=line,
            evidence=home_folder() / "evidence",
        )
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE runs_baselineentry SET samples_per_second = 1")
    events = Event.objects.filter(action="baseline.register")
    assert events.count() == 3
    assert [one.number for one in entries_of(filled)] == [0, 1, 2]


def test_another_system_is_not_comparable_and_the_page_says_why(
    client: Client,
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
) -> None:
    other = Baseline.objects.exclude(pk=stage.baseline.pk).get().contract_version
    key = ComparabilityKey({**KEY.fields, "settings.cores": "0"})
    enter(other, entry(0, key=key, baseline_sha256="e" * 64))
    text = page(client, stage)
    assert "not comparable" in text
    assert "settings.cores: got 0, wanted 0,1" in text


def test_due_by_date_or_by_a_newer_stack_is_marked_once(
    client: Client,
    stage: Stage,  # noqa: F811
    settings: Any,
) -> None:
    settings.BASELINE_EVERY_DAYS = 90
    version = stage.baseline.contract_version
    row = enter(version, entry(0))
    assert due_mark(now=FROZEN + timedelta(days=89)) == []
    marks = due_mark(now=FROZEN + timedelta(days=90))
    assert [mark.entry_id for mark in marks] == [row.pk]
    assert "the 90 days since 2026-08-03T09:30:00Z are over" in marks[0].reasons[0]
    assert due_mark(now=FROZEN + timedelta(days=91)) == []
    assert Event.objects.filter(action="baseline.due").count() == 1
    older = tuple(replace(one, digest="0" * 64, version="0.9") for one in known())
    second = enter(version, entry(1, row.line_sha256, stacks=older))
    marks = due_mark(now=second.frozen_at)
    assert [mark.entry_id for mark in marks] == [second.pk]
    assert "is installed, measured was 0.9 (000000000000)" in marks[0].reasons[0]
    text = page(client, stage)
    assert "measured was 0.9" in text
    assert "marked" in text
    assert BaselineDue.objects.count() == 2


def test_the_worker_s_look_marks_what_is_due(stage: Stage, settings: Any) -> None:  # noqa: F811
    settings.BASELINE_EVERY_DAYS = 1
    enter(stage.baseline.contract_version, entry(0))
    assert tasks.mark_due() == 1
    assert tasks.mark_due() == 0


def test_the_look_comes_once_an_hour_and_never_stops_the_queue(
    client: Client,
    stage: Stage,  # noqa: F811
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.BASELINE_EVERY_DAYS = 1
    Job.objects.all().delete()
    row = enter(stage.baseline.contract_version, entry(0))
    monkeypatch.setattr(tasks, "_looked_at", [])
    assert tasks.sweep() == "idle"
    assert BaselineDue.objects.get().entry == row
    client.force_login(stage.owner.user)
    text = client.get(reverse("runs:baseline", args=[stage.baseline.pk])).content.decode()
    assert "Due to be measured again" in text
    # Within the hour nothing is looked at; a look that fails leaves the queue going.
    enter(stage.baseline.contract_version, entry(1, row.line_sha256))
    assert tasks.sweep() == "idle"
    assert BaselineDue.objects.count() == 1
    monkeypatch.setattr(tasks, "_looked_at", [])
    settings.BASELINE_EVERY_DAYS = 0
    assert tasks.sweep() == "idle"
    assert BaselineDue.objects.count() == 1


def test_measuring_again_is_one_job_for_each_entry(
    client: Client,
    stage: Stage,  # noqa: F811
    filled: list[BaselineEntry],
) -> None:
    client.force_login(stage.owner.user)
    url = reverse("runs:remeasure", args=[stage.baseline.pk])
    answers: list[Any] = [client.post(url, {"number": "7"}) for _ in range(2)]
    job = Job.objects.get(kind="remeasure")
    assert {answer.url for answer in answers} == {reverse("runs:job", args=[job.pk])}
    assert job.arguments["number"] == 3
    assert str(job.created_at.year) in page(client, stage)
    with pytest.raises(NotAllowed, match=r"job\.request: role finance"):
        remeasure_request(actor=stage.finance, baseline=stage.baseline)


def test_a_page_without_entries_says_what_to_do(
    client: Client,
    stage: Stage,  # noqa: F811
) -> None:
    assert "No entry yet" in page(client, stage)
    client.force_login(stage.owner.user)
    text = client.get(reverse("runs:registry", args=[stage.baseline.pk])).content.decode()
    assert "Measure again" in text


def test_recorded_runs_are_worked_out_before_they_are_entered(
    recorded: Path,  # noqa: F811
    cast: Any,
    agreed: ContractVersion,
    home: Path,
) -> None:
    """The platform signs what real runs say; those of another day follow, edited ones do not."""
    first = registered(Path(shutil.copytree(recorded, home / "evidence" / "first")))
    actor = cast.platform
    one = register(actor=actor, contract_version=agreed, evidence=first)
    assert register(actor=actor, contract_version=agreed, evidence=first).pk == one.pk
    second = later(first, home / "evidence" / "second", 90)
    two = register(actor=actor, contract_version=agreed, evidence=second)
    assert (two.number, two.samples_per_second) == (1, one.samples_per_second)
    assert sha256_bytes(one.line.encode()) == entries_of([one, two])[1].previous
    edited = later(first, home / "evidence" / "edited", 91)
    path = edited / "baseline" / "baseline.json"
    path.write_bytes(
        path.read_bytes().replace(str(one.samples_per_second.normalize()).encode(), b"9")
    )
    with pytest.raises(EvidenceError):
        register(actor=actor, contract_version=agreed, evidence=edited)
    assert BaselineEntry.objects.count() == 2
