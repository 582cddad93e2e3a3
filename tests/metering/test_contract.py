"""The fee as a pure function: properties, edges, refusals, and public bug reports."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering import canonical
from metering.contract import (
    BaselinePolicy,
    Contract,
    FeeBreakdown,
    LedgerState,
    Recoupment,
    Tier,
    VerifiedLine,
    VerifiedSavings,
    effective_baselines,
    fee,
    flat_share,
    in_force,
    marginal_fee,
    release_or_credit,
    tier_parts,
)
from metering.money import minor_unit
from metering.refusal import Refusal
from tests.metering.money_cases import (
    START,
    UNHURRIED,
    bill,
    contract,
    line,
    months,
    verified,
)

RATES = st.decimals(min_value=0, max_value=1, places=3)
SAVINGS = st.decimals(min_value=-(10**6), max_value=10**6, places=4)
WHOLE = st.integers(0, 10**6).map(Decimal)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    """Any valid contract."""
    first, second = sorted(draw(st.tuples(RATES, RATES)))
    upper = draw(st.decimals(min_value=1, max_value=10**5, places=2))
    tiers = draw(
        st.sampled_from(
            [(Tier(None, second),), (Tier(upper, second), Tier(None, first))]
        )
    )  # fmt: skip
    room = 1 - second
    recoupment = draw(
        st.sampled_from(
            [
                None,
                Recoupment("pool", draw(WHOLE), share=room / 2),
                Recoupment("amortised", draw(WHOLE), months=draw(st.integers(1, 24))),
            ]
        )
    )
    minimum, cap = sorted(draw(st.tuples(WHOLE, WHOLE)))
    return contract(
        currency=draw(st.sampled_from(["EUR", "JPY", "KWD"])),
        tiers=tiers,
        bound=draw(st.sampled_from(["lower_95", "point"])),
        cap=draw(st.sampled_from([None, cap])),
        cap_excess=draw(st.sampled_from(["forfeit", "carry"])),
        minimum=draw(st.sampled_from([None, minimum])),
        carry_forward=draw(st.booleans()),
        holdback=draw(RATES),
        holdback_tax=draw(st.sampled_from(["release", "issue"])),
        recoupment=recoupment,
        vat=draw(st.decimals(min_value=0, max_value=1, places=2)),
    )


@st.composite
def lines(draw: st.DrawFn) -> list[VerifiedLine]:
    """Up to six lines, some gated, some losing, some without significance."""
    rows = []
    for number in range(draw(st.integers(0, 6))):
        point = draw(SAVINGS)
        counterfactual = draw(st.none() | st.decimals(min_value=0, max_value=10**6, places=2))
        rows.append(
            VerifiedLine(
                f"M{number}", "s", point, point - draw(st.integers(0, 10**5)), counterfactual,
                gate=draw(st.sampled_from([None, None, None, "accuracy below floor"])),
            )
        )  # fmt: skip
    return rows


@UNHURRIED
@given(contracts(), st.lists(lines(), min_size=1, max_size=4))
def test_invariants_hold_over_months(terms: Contract, history: list[list[VerifiedLine]]) -> None:
    state, recouped = LedgerState(), Decimal(0)
    for number, rows in enumerate(history, start=1):
        savings = verified(rows, terms.currency, f"2026-{number:02d}")
        result = fee(terms, state, savings)
        check_identities(terms, result)
        recouped += result.recouped
        assert result.state.recouped == recouped
        if terms.recoupment is not None and terms.recoupment.kind == "pool":
            assert recouped <= terms.recoupment.amount
        shuffled = VerifiedSavings(savings.period, savings.currency, tuple(rows[::-1]), "e" * 64)
        assert canonical.dumps(fee(terms, state, shuffled).to_json()) == canonical.dumps(
            result.to_json()
        )
        state = result.state


def check_identities(terms: Contract, result: FeeBreakdown) -> None:
    """What must be true of every breakdown there is."""
    assert FeeBreakdown.from_json(canonical.loads(canonical.dumps(result.to_json()))) == result
    unit = Decimal(1).scaleb(-minor_unit(terms.currency))
    assert sum((row.amount for row in result.lines), Decimal(0)) == result.fee
    assert 0 <= result.fee <= max(result.chargeable, Decimal(0))
    billed = sum((row.billed_savings for row in result.lines if row.kind == "share"), Decimal(0))
    assert result.chargeable <= max(billed, Decimal(0))
    for row in result.lines:
        if row.counterfactual is not None:
            assert row.billed_savings <= row.counterfactual
        if row.reason.startswith("bills zero"):
            assert row.billed_savings == row.amount == 0
    if terms.cap is not None:
        assert result.fee <= terms.cap
    assert 0 <= result.holdback <= result.fee
    assert result.net == result.fee - result.holdback
    assert result.payable == result.net + result.tax
    assert abs(result.residue) < unit * 2
    for amount in (result.fee, result.holdback, result.net, result.tax, result.payable):
        assert amount == amount.quantize(unit)
    if not result.fee:
        assert result.status != "billed"
        assert any("fee 0" in reason for reason in result.reasons)


@UNHURRIED
@given(contracts(), lines(), lines())
def test_after_an_audit_all_documents_sum_to_the_final_fee(
    terms: Contract, rows: list[VerifiedLine], audited_rows: list[VerifiedLine]
) -> None:
    invoiced = fee(terms, LedgerState(), verified(rows, terms.currency))
    audited = fee(terms, LedgerState(), verified(audited_rows, terms.currency))
    outcome = release_or_credit(terms, invoiced, audited)
    final = min(invoiced.fee, audited.fee)
    assert invoiced.net + outcome.net == final
    assert outcome.cumulative == final + invoiced.tax + outcome.tax
    assert outcome.fee_change <= 0
    assert (outcome.document == "credit_note") == (outcome.net < 0)


@UNHURRIED
@given(SAVINGS.filter(lambda amount: amount > 0), st.integers(1, 60))
def test_marginal_tiers_never_fall_when_savings_rise(savings: Decimal, more: int) -> None:
    tiers = (Tier(Decimal(50_000), Decimal("0.25")), Tier(None, Decimal("0.15")))
    assert marginal_fee(tiers, savings) <= marginal_fee(tiers, savings + more)
    assert sum(part.savings for part in tier_parts(tiers, savings)) == savings


# Public reports

COST = Decimal(120)
ALL = {"tiers": flat_share("1")}
FLOOR_AND_CAP = {"minimum": Decimal(500), "cap": Decimal(900)}


@pytest.mark.parametrize(
    ("report", "terms", "savings", "wanted"),
    [
        ("kubecost/kubecost#1738", ALL, [line(500, counterfactual=COST)], "120.00"),
        ("flexprice/flexprice#1824", {"minimum": Decimal(500)}, [line(0)], "0.00"),
        ("getlago/lago-api#5560 below", FLOOR_AND_CAP, [line(1000)], "500.00"),
        ("getlago/lago-api#5560 above", FLOOR_AND_CAP, [line(9000)], "900.00"),
        ("getlago/lago-api#5560 negative", {"minimum": Decimal(500)}, [line(-9000)], "0.00"),
        ("kubecost/docs#1134 winners only", {}, [line(7200), line(-500, model="B")], "1340.00"),
    ],
    ids=lambda value: value if isinstance(value, str) and "#" in value else None,
)  # fmt: skip
def test_public_reports(report: str, terms: Any, savings: list[VerifiedLine], wanted: str) -> None:
    result = fee(contract(**terms), LedgerState(), verified(savings))
    assert str(result.fee) == wanted, report


def test_overlapping_measures_cannot_be_summed() -> None:
    """kubecost/docs#1134: two kernels of one model are measured together, never added."""
    with pytest.raises(Refusal, match="measure overlapping kernels together"):
        verified([line(100), line(50)])


def test_tax_is_computed_once_on_the_sum() -> None:
    """getlago/lago-api#821: three lines of 0.03 at 19 % owe 0.02, not three times 0.01."""
    result = bill(contract(tiers=flat_share("1"), vat=Decimal("0.19")), "0.03", "0.03", "0.03")
    assert (result.fee, result.tax) == (Decimal("0.09"), Decimal("0.02"))


def test_a_new_contract_version_leaves_the_old_period_at_its_old_rate() -> None:
    """killbill/killbill#1376, #2066."""
    old, new = contract(), contract(version=2, tiers=flat_share("0.50"))
    before = bill(old, 1000)
    assert bill(new, 1000).fee == Decimal("500.00")
    assert bill(old, 1000) == before
    assert before.contract_version == 1
    assert before.contract_digest != new.digest


def test_of_two_versions_on_one_day_the_later_one_counts() -> None:
    """killbill/killbill#877: a plan changed on its first day, KRW 0 to 30000."""
    free = contract(currency="KRW", tiers=flat_share("0"))
    paid = contract(currency="KRW", version=2, tiers=flat_share("0.30"))
    later = contract(currency="KRW", version=3, valid_from=START + timedelta(days=365))
    for versions in ([free, paid, later], [later, paid, free]):
        assert bill(in_force(versions, START + timedelta(days=1)), 100_000).fee == 30_000
    assert in_force([free, paid, later], later.valid_from).version == 3
    with pytest.raises(Refusal, match="before the contract's start"):
        in_force([free, paid], START - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("savings", "wanted"),
    [(50_000, 12_500), (150_000, 32_500), (215_000, 42_250), (49_999, "12499.75")],
)
def test_tiers_are_marginal(savings: int, wanted: object) -> None:
    """flexprice/flexprice#793, #811: a whole-volume tier would bill 32,250 at 215,000."""
    tiers = tuple(
        Tier(None if upper is None else Decimal(upper), Decimal(rate))
        for upper, rate in ((50_000, "0.25"), (150_000, "0.20"), (None, "0.15"))
    )
    assert bill(contract(tiers=tiers), savings).fee == Decimal(str(wanted))


def test_a_settled_period_is_never_billed_again() -> None:
    """getlago/lago-api#1868, #2681, #4795: the job ran twice."""
    result = bill(contract(), 1000)
    with pytest.raises(Refusal, match="never billed again"):
        bill(contract(), 1000, state=result.state)
    with pytest.raises(Refusal, match="never billed again"):
        fee(contract(), result.state, verified([line(1)], month="2026-10"))


def test_preview_and_billing_are_the_same_bytes() -> None:
    """getlago/lago-api#5560: the estimate was right, the saved fee was not."""
    one, two = (canonical.dumps(bill(contract(), "1234.5678").to_json()) for _ in range(2))
    assert one == two


# Steps


def test_a_bound_below_zero_bills_nothing_and_says_so() -> None:
    result = fee(contract(), LedgerState(), verified([line(10, bound=Decimal(-1))]))
    assert (result.fee, result.status) == (0, "not significant")
    assert "not significant" in " ".join(result.reasons)
    by_point = fee(contract(bound="point"), LedgerState(), verified([line(10, bound=Decimal(-1))]))
    assert by_point.fee == Decimal("2.00")


def test_a_gated_line_is_zero_even_when_it_lost() -> None:
    rows = [line(-5000, gate="latency above limit"), line(2000, model="B")]
    result = fee(contract(), LedgerState(), verified(rows))
    assert result.fee == Decimal("400.00")
    assert result.state.losses == 0
    gated = fee(contract(), LedgerState(), verified([line(5000, gate="run INVALID")]))
    assert gated.status == "gated"
    assert gated.reasons[0] == "A on s: bills zero: run INVALID"


def test_losses_are_forgotten_when_the_contract_says_so() -> None:
    results = months(contract(carry_forward=False), ["-8000", "20000"])
    assert [str(result.fee) for result in results] == ["0.00", "4000.00"]
    assert results[0].state.losses == 0


def test_a_month_eaten_by_earlier_losses_says_so() -> None:
    results = months(contract(), ["-8000", "3000", "6000"])
    assert [result.status for result in results] == ["no savings", "offset by losses", "billed"]
    assert results[1].state.losses == 5000
    assert results[2].fee == Decimal("200.00")


def test_excess_over_the_cap_is_carried_or_forfeited() -> None:
    carry = months(contract(cap=Decimal(1000), cap_excess="carry"), [8000, 1000, 10_000])
    assert [str(result.fee) for result in carry] == ["1000.00", "800.00", "1000.00"]
    assert carry[1].state.deferred == 0
    forfeit = months(contract(cap=Decimal(1000)), [8000, 1000])
    assert [str(result.fee) for result in forfeit] == ["1000.00", "200.00"]


def test_deferred_excess_never_lifts_a_fee_above_the_savings() -> None:
    state = LedgerState(deferred=Decimal(5000))
    result = bill(contract(cap_excess="carry"), 100, state=state)
    assert result.fee == Decimal("100.00")
    assert result.state.deferred == Decimal("4920.00")


def test_a_fee_is_rounded_down_to_the_savings_at_a_share_of_one() -> None:
    result = bill(contract(tiers=flat_share("1")), "10.009")
    assert result.fee == Decimal("10.00")
    assert result.residue == Decimal("-0.009")
    assert bill(contract(tiers=flat_share("1")), "0.004").status == "below one minor unit"


def test_the_cap_covers_recoupment_and_the_pool_keeps_what_did_not_fit() -> None:
    pool = Recoupment("pool", Decimal(1000), share=Decimal("0.40"))
    result = bill(contract(recoupment=pool, cap=Decimal(250)), 1000)
    assert (result.fee, result.recouped) == (Decimal("250.00"), Decimal("50.00"))
    assert result.lines[-1].kind == "recoupment"


def test_amortisation_ends_after_its_months_and_a_poor_month_becomes_a_loss() -> None:
    term = Recoupment("amortised", Decimal(1000), months=2)
    results = months(contract(recoupment=term), [2000, 200, 2000])
    assert [str(result.fee) for result in results] == ["300.00", "0.00", "340.00"]


def test_an_audit_never_raises_a_fee() -> None:
    terms = contract(holdback=Decimal("0.10"))
    outcome = release_or_credit(terms, bill(terms, 1000), bill(terms, 9000))
    assert (outcome.document, outcome.gross) == ("release", Decimal("20.00"))
    assert "not raised" in outcome.reasons[1]


def test_an_audit_that_eats_exactly_the_holdback_still_closes_it() -> None:
    terms = contract(holdback=Decimal("0.10"))
    outcome = release_or_credit(terms, bill(terms, 1000), bill(terms, 900))
    assert (outcome.document, outcome.gross) == ("release", 0)
    plain = release_or_credit(contract(), bill(contract(), 1000), bill(contract(), 1000))
    assert plain.document == "none"


def test_tax_on_the_holdback_at_issue() -> None:
    terms = contract(holdback=Decimal("0.10"), vat=Decimal("0.19"), holdback_tax="issue")
    invoiced = bill(terms, 51500)
    assert (invoiced.tax, invoiced.payable) == (Decimal("1957.00"), Decimal("11227.00"))
    outcome = release_or_credit(terms, invoiced, bill(terms, 51500))
    assert (outcome.net, outcome.tax) == (Decimal("1030.00"), 0)


def test_an_audit_of_another_period_or_contract_is_refused() -> None:
    one, other = bill(contract(), 1000), bill(contract(version=2), 1000)
    with pytest.raises(Refusal, match="same contract version"):
        release_or_credit(contract(), one, other)
    with pytest.raises(Refusal, match=r"contract\.digest"):
        release_or_credit(contract(version=2), one, one)
    october = fee(contract(), LedgerState(), verified([line(1)], month="2026-10"))
    with pytest.raises(Refusal, match="same period"):
        release_or_credit(contract(), one, october)


# Baseline policies


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (BaselinePolicy("fixed"), ["2.40", "2.40", "2.40"]),
        (BaselinePolicy("reset"), ["2.40", "2.00", "2.10"]),
        (BaselinePolicy("ratchet"), ["2.40", "2.00", "2.00"]),
        (BaselinePolicy("glide", Decimal("0.5")), ["2.40", "2.200", "2.1500"]),
    ],
)
def test_baseline_policies(policy: BaselinePolicy, wanted: list[str]) -> None:
    costs = [Decimal("2.40"), Decimal("2.00"), Decimal("2.10")]
    assert [str(cost) for cost in effective_baselines(policy, costs)] == wanted


def test_a_baseline_needs_a_cost_above_zero() -> None:
    for costs in ([], [Decimal(0)]):
        with pytest.raises(Refusal):
            effective_baselines(BaselinePolicy(), costs)


@UNHURRIED
@given(contracts())
def test_any_contract_survives_json(terms: Contract) -> None:
    again = Contract.from_json(canonical.loads(canonical.dumps(terms.to_json())))
    assert again == terms
    assert again.digest == terms.digest
