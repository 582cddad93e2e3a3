"""Joint uncertainty: how errors add, and at which bound each line of a sum bills."""

from __future__ import annotations

from decimal import Decimal

from metering.decimals import to_text
from metering.savings import Estimate, bounds, joint_standard_error, t_95_one_sided
from tests.metering.test_cases import answer, case, cost, fees, saving, usage


def test_errors_of_one_baseline_add_and_others_cancel_in_part() -> None:
    def of(*baselines: str) -> Decimal:
        errors = (Decimal(4000), Decimal(3000))
        return joint_standard_error(
            [
                Estimate(Decimal(10**5), standard_error=error, df=29, baseline_id=name)
                for error, name in zip(errors, baselines, strict=True)
            ]
        )

    assert of("one", "one") == 7000
    assert of("one", "two") == of("", "") == 5000


def test_the_joint_margin_is_spread_over_the_gains() -> None:
    """Margins 4000 t and 3000 t become 5000 t together, in their own proportion."""
    rows = [
        Estimate(Decimal(50_000), standard_error=Decimal(error), df=29) for error in (4000, 3000)
    ]
    joint = bounds(rows, "joint")
    margin = t_95_one_sided(29) * 5000
    assert sum(joint) == 100_000 - margin
    assert joint[0] == 50_000 - (margin * 4 / 7).quantize(Decimal("1E-12"))
    shared = [
        Estimate(row.point, standard_error=row.standard_error, df=29, baseline_id="b")
        for row in rows
    ]
    assert bounds(shared, "joint") == bounds(shared, "each") == bounds(rows, "each")


def test_a_loss_takes_no_margin_but_its_error_is_in_the_sum() -> None:
    gain = Estimate(Decimal(100), standard_error=Decimal(3), df=29)
    loss = Estimate(Decimal(-50), standard_error=Decimal(4), df=29)
    alone, with_loss = bounds([gain], "joint")[0], bounds([gain, loss], "joint")
    assert alone == with_loss[0] == gain.own_bound  # 5 t is above the gain's own 3 t: not above it
    assert with_loss[1] == loss.own_bound


def test_a_joint_case_bills_more_than_each_and_never_above_the_points() -> None:
    value = case(
        savings=[
            saving(50_000, standard_error="4000", df=29),
            saving(50_000, model="B", standard_error="3000", df=29),
        ]
    )
    each, joint = (answer({**value, "uncertainty": how}) for how in ("each", "joint"))
    assert Decimal(fees(each)[0]) < Decimal(fees(joint)[0]) < Decimal(20_000)
    wanted = Decimal("0.2") * (100_000 - t_95_one_sided(29) * 5000)
    assert fees(joint) == [to_text(wanted.quantize(Decimal("0.01")))]


def test_costs_carry_their_error_into_the_bound() -> None:
    told = answer(
        case(
            costs=[
                cost("baseline", "2.40", standard_error="0.03", df=9),
                cost("optimised", "1.50", standard_error="0.04", df=7),
            ],
            usage=[usage("10000", "2026-01-05T00:00:00Z")],
        )
    )
    assert Decimal(told["steps"][0]["standard_error"]) == 500
    assert Decimal(told["steps"][0]["breakdown"]["chargeable"]) == 9000 - 500 * t_95_one_sided(7)
