"""How much of a period is metered, and the examination that is frozen, printed and read again."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from metering.canonical import dumps
from metering.contract import fee
from metering.contract.state import LedgerState
from metering.loadgen.days import run_days
from metering.loadgen.verify import EvidenceError
from metering.plan import Period, PriceBook
from metering.refusal import Refusal
from metering.savings import (
    Evidence,
    Override,
    SavingsLine,
    Sufficiency,
    demands_sufficiency,
    evidence_of,
    savings_line,
    verified_savings,
)
from metering.usage import TrafficShare, aggregate, generate_month, metered, read_events
from tests.metering.money_cases import contract

PAIR = ("text-encoder", "search-1")
BERLIN = Period.month("2026-10", "Europe/Berlin")  # 745 hours: the clocks are put back
BOOK = PriceBook("EUR", Decimal("0.05"), datetime(2026, 1, 1, tzinfo=UTC), "agreement")
ENOUGH = tuple(date(2026, 10, day) for day in (1, 1, 2, 2, 3))


def event(identifier: str, moment: datetime, samples: int, **changes: str) -> str:
    data = {"model": PAIR[0], "system": PAIR[1]}
    data |= {name: changes.pop(name) for name in list(changes) if name in data}
    return json.dumps(
        {
            "specversion": "1.0", "type": "ignition.usage.v1", "source": "g", "id": identifier,
            "time": moment.isoformat().replace("+00:00", "Z"), "data": {**data, "samples": samples},
            **changes,
        }
    )  # fmt: skip


def at(hours: float, period: Period = BERLIN) -> datetime:
    return period.start + timedelta(hours=hours)


def coverage(lines: list[str], period: Period = BERLIN) -> Any:
    _, (found,) = metered(read_events(lines), period, period.zone, [PAIR])
    return found


def test_hours_are_real_ones_and_a_reported_zero_is_one() -> None:
    lines = [event("a", at(0), 5), event("b", at(0.99), 7), event("c", at(2), 0)]
    found = coverage(lines)
    assert found.by_hour == {0: 12, 2: 0}
    assert (found.hours, found.period.hours) == (2, 745)
    assert found.by_day == {date(2026, 10, 1): 12}


def test_an_hour_belongs_to_the_local_day_in_which_it_begins() -> None:
    """24 October has 24 hours, the 25th has 25: the hour that comes twice counts twice."""
    lines = [event(f"h{hour}", at(hour + 0.5), 1) for hour in range(745)]
    found = coverage(lines)
    assert found.hours == 745
    assert (found.by_day[date(2026, 10, 24)], found.by_day[date(2026, 10, 25)]) == (24, 25)
    assert len(found.by_day) == 31


def test_half_an_hour_beside_utc_counts_from_the_periods_own_start() -> None:
    month = Period.month("2026-09", "Asia/Kolkata")
    lines = [event(f"h{hour}", at(hour + 0.25, month), 1) for hour in range(720)]
    assert coverage(lines, month).hours == 720
    assert set(coverage(lines, month).by_day.values()) == {24}


def test_only_accepted_events_of_the_pair_cover_an_hour() -> None:
    lines = [
        event("a", at(1), 5),
        event("a", at(1), 5),
        event("torn", at(3), 5),
        event("torn", at(3), 6),
        event("crossed", at(4), 5),
        event("crossed", at(4), 5, model="another"),
        event("ahead", at(9), 5, receivedtime=at(5).isoformat()),
        event("other", at(6), 5, system="elsewhere"),
        event("later", BERLIN.end, 5),
    ]
    found = coverage(lines)
    assert found.by_hour == {1: 5}
    assert found.conflicts == 2, "a key is torn once, whatever model its contents name"


def test_a_pair_without_an_event_covers_nothing() -> None:
    found = coverage([event("x", at(1), 1, model="another")])
    assert (found.hours, found.by_day, found.conflicts) == (0, {}, 0)


@pytest.mark.parametrize("seed", range(5))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    lines = generate_month([TrafficShare(*PAIR)], BERLIN, samples=10**15, seed=4)
    drawn = random.Random(seed)
    mixed = lines + drawn.choices(lines, k=200)
    drawn.shuffle(mixed)
    assert coverage(mixed) == coverage(lines)
    totals = aggregate(read_events(mixed), BERLIN, BERLIN.zone)
    assert sum(coverage(mixed).by_hour.values()) == totals.volume(*PAIR) == 10**15


def test_sums_of_an_hour_never_leave_64_bits() -> None:
    lines = [event(f"e{number}", at(1), 2**53 - 1) for number in range(1100)]
    assert coverage(lines).by_hour == {1: 1100 * (2**53 - 1)}


def examined(**changes: Any) -> Sufficiency:
    evidence = evidence_of(
        # Without one hour of the day that has 25: as much work on every day.
        coverage([event(f"h{hour}", at(hour), 10) for hour in range(701) if hour != 580]),
        changes.pop("run_days", ENOUGH[:1]),
        contract=contract(),
        meter_zone="Europe/Berlin",
    )
    return Sufficiency(*PAIR, evidence, **changes)


STATED = (
    Override.by("D. Vogt", contract(), name="sufficiency.baseline.days", reason="a pilot"),
    Override.by("D. Vogt", contract(), name="sufficiency.baseline.runs", reason="a pilot"),
)


def test_evidence_is_that_of_coverage_runs_and_contract() -> None:
    evidence = examined(run_days=ENOUGH).evidence
    assert (evidence.metered_hours, evidence.period_hours) == (700, 745)
    assert sum(evidence.volumes) == 7000
    assert examined(run_days=ENOUGH).disqualifications == ()
    begun = contract(valid_from=at(200))
    late = evidence_of(
        coverage([event("a", at(1), 1)]), ENOUGH, contract=begun, meter_zone="Europe/London"
    )
    names = [item.name for item in Sufficiency(*PAIR, late).disqualifications]
    assert names == ["data.zone.mismatch", "sufficiency.period.partial", "sufficiency.usage.hours"]


@pytest.mark.parametrize("overrides", [(), STATED[:1], STATED])
def test_what_is_frozen_reads_back_and_leads_to_the_same_gate(
    overrides: tuple[Override, ...],
) -> None:
    item = examined(overrides=overrides)
    again = Sufficiency.from_json(json.loads(dumps(item.to_json())))
    assert again == item
    assert (item.verdict.gate is None) == (len(overrides) == 2)
    assert set(item.verdict.printed) >= set(item.verdict.noted)
    assert len(item.verdict.noted) == len(overrides)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gate": None}, "sufficiency.gate"),
        ({"disqualifications": []}, "sufficiency.disqualifications"),
        ({"overrides": [STATED[0].to_json()] * 2}, "each rule once"),
        ({"overrides": [{**STATED[0].to_json(), "name": "data.zone.mismatch"}]}, "overrides"),
        ({"overrides": [{**STATED[0].to_json(), "reason": " "}]}, "override.reason"),
        ({"more": 1}, "does not know"),
        ({"evidence": {**examined().evidence.to_json(), "zones": ["UTC"]}}, "two: the contract's"),
        ({"evidence": {**examined().evidence.to_json(), "metered_hours": "746"}}, "metered_hours"),
    ],
)
def test_a_document_that_contradicts_itself_is_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(Refusal, match=message):
        Sufficiency.from_json({**examined().to_json(), **changes})


def test_evidence_reads_back() -> None:
    evidence = Evidence(
        ENOUGH, Decimal("743.5"), Decimal(3), (Decimal(1),), 2, ("UTC", "UTC"), True
    )
    assert Evidence.from_json(evidence.to_json()) == evidence


def test_the_first_two_methods_are_judged_without_the_rules() -> None:
    versions = [f"ignition-method-{number}" for number in (1, 2, 3, 4)]
    assert [demands_sufficiency(version) for version in versions] == [False, False, True, True]


def line(**changes: Any) -> SavingsLine:
    given = {
        "model": PAIR[0], "system": PAIR[1], "period": BERLIN, "volume": 10**9,
        "baseline_samples_per_second": "400", "cores": 2, "price_book": BOOK,
        "uplift_point": "0.25", "uplift_lower_95": "0.2", "baseline_id": "b", "uplift_id": "u",
        "evidence_digest": "e" * 64,
    }  # fmt: skip
    return savings_line(**(given | changes))


def test_a_gated_line_says_what_was_measured_and_bills_nothing() -> None:
    open_line, shut = line(), line(gate="sufficiency.usage.hours: 1 of 745 hours metered")
    assert (shut.point, shut.bound) == (open_line.point, open_line.bound)
    assert shut.billable == 0
    assert shut.reason == shut.gate
    assert "gate" not in open_line.to_json(), "a line from before gates keeps its digest"
    assert SavingsLine.from_json(shut.to_json()) == shut
    verified = verified_savings([shut], evidence_digest="e" * 64)
    breakdown = fee(contract(), LedgerState(), verified)
    assert (breakdown.fee, breakdown.status) == (0, "gated")
    assert shut.gate in breakdown.reasons[0]


def test_a_kernel_that_was_not_kept_says_so_first() -> None:
    shut = line(gate="sufficiency.usage.hours: none", kept=False, not_kept_reason="too noisy")
    assert shut.reason == "kernel not kept: too noisy"
    assert shut.to_verified().gate == "kernel not kept: too noisy"


def log(folder: Path, run_id: str, moment: str, validity: str = "VALID") -> None:
    (folder / run_id).mkdir()
    rows = [("result_validity", validity), ("test_datetime", moment)]
    text = "".join(
        ":::MLLOG "
        + json.dumps({"key": key, "value": value, "metadata": {"is_error": False}})
        + "\n"
        for key, value in rows
        if value
    )
    (folder / run_id / "mlperf_log_detail.txt").write_text(text)


def test_days_are_local_ones_of_valid_runs_by_their_logs(tmp_path: Path) -> None:
    log(tmp_path, "r1", "2026-10-02T22:30:00Z")
    log(tmp_path, "r0", "2026-10-01T10:00:00Z")
    log(tmp_path, "r2", "2026-10-03T10:00:00Z", "INVALID")
    found = run_days(tmp_path, ["r1", "r0", "r2"], "Europe/Berlin")
    assert found == (date(2026, 10, 1), date(2026, 10, 3)), "00:30 in Berlin is the next day"


@pytest.mark.parametrize("moment", ["", "yesterday", "2026-10-02T22:30:00"])
def test_a_log_without_a_day_is_refused(tmp_path: Path, moment: str) -> None:
    log(tmp_path, "r0", moment)
    with pytest.raises(EvidenceError, match="r0: "):
        run_days(tmp_path, ["r0"], "UTC")
    for run_id in ("r1", "../r0"):
        with pytest.raises(EvidenceError):
            run_days(tmp_path, [run_id], "UTC")


def test_utc_is_a_zone_like_any_other() -> None:
    month = Period.month("2026-02", "UTC")
    assert coverage(
        [event("a", datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC), 1)], month
    ).by_hour == {671: 1}
