"""Before and beside the bill: break-even of a search, the dispute sandbox, the search pool."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kernelgen.agent.ledger import Booking, Ledger
from metering import canonical
from metering.__main__ import main
from metering.cases import what_if
from metering.contract import (
    Contract,
    LedgerState,
    Recoupment,
    break_even,
    flat_share,
    outlook,
    savings_at,
    search_price,
    uplift_needed,
)
from metering.ledger import Pool, read_ledger
from metering.refusal import Refusal
from tests.metering.money_cases import bill, contract
from tests.metering.test_cases import case, saving


def pooled(amount: str, **changes: Any) -> Contract:
    return contract(
        recoupment=Recoupment("pool", Decimal(amount), share=Decimal("0.40")), **changes
    )


# Break-even


def test_break_even_by_hand() -> None:
    """G8a as a forecast: 12,000 at 10,000 a month pays back in two, is recouped in three."""
    found = break_even(pooled("12000"), "12000", "10000")
    assert (found.months_to_pay_back, found.months_to_recoup) == (2, 3)
    assert [str(month.fee) for month in found.first_year[:4]] == [
        "6000.00", "6000.00", "6000.00", "2000.00",
    ]  # fmt: skip
    assert found.first_year[3].customer_keeps == 8000
    assert found.worth_it


def test_a_search_dearer_than_the_pool_says_what_is_not_covered() -> None:
    found = break_even(pooled("1000"), "1500.50", "10000")
    assert found.not_recouped == Decimal("500.50")
    assert not found.worth_it
    assert any("does not recoup 500.50" in reason for reason in found.reasons)


def test_a_cheaper_search_is_recouped_at_its_price() -> None:
    assert break_even(pooled("12000"), "3000", "10000").months_to_recoup == 1


@pytest.mark.parametrize("savings", ["0", "-5", "0.01"])
def test_a_search_that_never_pays_back_says_so(savings: str) -> None:
    found = break_even(contract(), "12000", savings)
    assert found.months_to_pay_back is None
    assert not found.worth_it


def test_the_amortised_search_is_recouped_in_its_months() -> None:
    terms = contract(recoupment=Recoupment("amortised", Decimal(12000), months=12))
    found = break_even(terms, "12000", "10000")
    assert found.months_to_recoup == 12
    assert str(found.first_year[0].fee) == "1800.00"


def test_an_outlook_by_hand() -> None:
    """A quarter faster saves a fifth of the cost; 1,000 a month at 200 is paid after five."""
    assert str(savings_at("1000", "0.25")) == "200.000000000000"
    slow, fast = outlook(contract(), "1000", "1000", ["0.25", "1"])
    assert (slow.savings, slow.found.months_to_pay_back) == (200, 5)
    assert (fast.savings, fast.found.months_to_pay_back) == (500, 2)
    assert slow.found == break_even(contract(), "1000", "200.000000000000")
    for cost, gain in (("-1", "0.1"), ("1", "-1")):
        with pytest.raises(Refusal, match="uplift above -1"):
            savings_at(cost, gain)


@pytest.mark.parametrize("months", [1, 3, 7, 12])
def test_the_gain_needed_is_just_enough(months: int) -> None:
    needed = uplift_needed("100", "1000", months)
    assert needed is not None
    enough = break_even(contract(), "100", savings_at("1000", needed))
    assert enough.months_to_pay_back == months
    short = break_even(contract(), "100", savings_at("1000", needed - Decimal("0.0001")))
    assert short.months_to_pay_back == months + 1
    assert uplift_needed("1000", "1000", 1) is None
    with pytest.raises(Refusal):
        uplift_needed("1", "1", 0)


def test_a_forecast_ends_when_it_is_answered() -> None:
    """A year at least, and as far as paying back and recouping reach."""
    found = break_even(pooled("12000"), "12000", "600")
    assert (found.months_to_pay_back, found.months_to_recoup) == (20, 50)
    assert len(found.first_year) == 12


def test_the_price_of_a_search() -> None:
    assert search_price("7200", 2, "0.05") == Decimal("0.2")
    with pytest.raises(Refusal):
        search_price("-1", 2, "0.05")


# The sandbox


def test_the_sandbox_moves_copies_only() -> None:
    value = case({"vat": Decimal("0.19")}, savings=[saving(1000)])
    frozen = canonical.dumps(value)
    found = what_if(value, {"savings.0.point": "900", "contracts.0.vat": "0"})
    assert canonical.dumps(value) == frozen
    moved = {row.amount: (str(row.before), str(row.after), str(row.difference))
             for row in found.moved}  # fmt: skip
    assert moved["fee"] == ("200.00", "180.00", "-20.00")
    assert moved["payable"] == ("238.00", "180.00", "-58.00")
    assert found.before.documents[0].digest != found.after.documents[0].digest


def test_the_sandbox_shows_documents_that_only_one_side_has() -> None:
    value = case(savings=[saving(1000), saving(500, "2026-02")])
    found = what_if(value, {"savings.1.period": "2026-01", "savings.1.model": "B"})
    assert {row.document: str(row.after) for row in found.moved if row.amount == "fee"} == {
        "CASE-1": "300.00", "CASE-2": "0",
    }  # fmt: skip


@pytest.mark.parametrize("changes", [{}, {"savings.7.point": "1"}, {"contracts.0.discount": "1"}])
def test_the_sandbox_changes_what_is_there(changes: dict[str, object]) -> None:
    with pytest.raises(Refusal):
        what_if(case(savings=[saving(1000)]), changes)


def test_both_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, changes = tmp_path / "case.json", tmp_path / "changes.json"
    path.write_text(json.dumps(case(savings=[saving(1000)])))
    changes.write_text('{"savings.0.point": "900"}')
    assert main(["fee", str(path), "--what-if", str(changes)]) == 0
    assert json.loads(capsys.readouterr().out)["moved"][0]["difference"] == "-20.00"
    assert main(["fee", str(path), str(path), "--what-if", str(changes)]) == 2
    assert "one case file" in capsys.readouterr().err
    assert main(["break-even", str(path), "--price", "100", "--savings", "50"]) == 0
    assert json.loads(capsys.readouterr().out)["months_to_pay_back"] == 2
    assert main(["break-even", str(path), "--price", "100", "--savings", "0"]) == 1
    assert main(["break-even", str(path), "--price", "lots", "--savings", "0"]) == 2


# The search pool


def ledger_text(folder: Path, seconds: tuple[float, ...] = (3600.0, 1800.0, 0.5)) -> str:
    """A ledger that kernelgen wrote: two jobs done, one refused by the judge."""
    ledger = Ledger(folder / "ledger.jsonl", Decimal("0.05"), "EUR", customer="c-001", model="m")
    for outcome, spent in zip(("done", "wrong", "done"), seconds, strict=True):
        ledger.book(Booking("gemm", "compile" if outcome == "done" else "judge", outcome, spent))
    return (folder / "ledger.jsonl").read_text()


def test_the_pool_is_what_kernelgen_booked_failed_work_included(tmp_path: Path) -> None:
    search = read_ledger(ledger_text(tmp_path))
    assert search.cost == Decimal("0.075006944444")
    assert [(row.work, row.outcome, row.bookings) for row in search.rows] == [
        ("compile", "done", 2), ("judge", "wrong", 1),
    ]  # fmt: skip
    assert (search.customer, search.model, search.currency) == ("c-001", "m", "EUR")
    pool = Pool((search,))
    assert pool.left == pool.recorded == search.cost
    with pytest.raises(Refusal, match="at most the"):
        Pool((search,), recouped=Decimal("0.08"))
    with pytest.raises(Refusal, match="each search once"):
        Pool((search, search))


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"operator":"x"}',
        '{"operator":"x","customer":"c","model":"m","work":"judge","outcome":"done",'
        '"seconds":"1","price_per_core_hour":"1","currency":"EUR","cost":"-1"}',
        '{"operator":"x","customer":"c","model":"m","work":"judge","outcome":"done",'
        '"seconds":1.5,"price_per_core_hour":"1","currency":"EUR","cost":"1"}',
    ],
)
def test_a_ledger_that_does_not_add_up_is_refused(line: str) -> None:
    with pytest.raises(Refusal):
        read_ledger(line)


def test_no_more_is_recouped_than_searches_have_cost() -> None:
    """The contract allows 12,000; 3,000.009 is recorded: 3,000.00 comes back, then nothing."""
    state = LedgerState(recorded=Decimal("3000.009"))
    first = bill(pooled("12000"), 10_000, state=state)
    assert (first.recouped, first.state.recouped) == (Decimal("3000.00"), Decimal("3000.00"))
    later = LedgerState(recouped=first.state.recouped, recorded=state.recorded)
    assert bill(pooled("12000"), 10_000, state=later).recouped == 0
    amortised = contract(recoupment=Recoupment("amortised", Decimal(12000), months=12))
    assert bill(amortised, 10_000, state=LedgerState(recorded=Decimal(6000))).fee == 1900
    assert bill(contract(tiers=flat_share("1")), 5, state=state).fee == 5
