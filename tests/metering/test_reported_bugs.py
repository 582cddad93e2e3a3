"""Public bug reports about money and measurement, each with the test that holds us to its value.

A row names the report, what went wrong there, and where the right value is asserted. Two rows
that no other test fits are asserted here.
"""

from __future__ import annotations

import ast
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from metering.money import allocate, line_amount
from metering.plan import Period
from tests.metering.money_cases import bill, contract, months

TESTS = Path(__file__).parents[1]

ROWS = [
    ("frappe/central#170", "read-then-insert race: six invoices",
     "portal/test_billing.py::test_eight_callers_at_once_get_one_invoice"),
    ("getlago/lago-api#1868", "the job ran twice and billed twice",
     "metering/test_contract.py::test_a_settled_period_is_never_billed_again"),
    ("killbill/killbill#640", "a swallowed exception generated items over and over",
     "portal/test_billing_corrections.py::test_a_contract_that_cannot_be_read_parks_its_invoice"),
    ("killbill/killbill#877", "a plan changed on its first day",
     "metering/test_contract.py::test_of_two_versions_on_one_day_the_later_one_counts"),
    ("killbill/killbill#1934", "an offset fixed at account creation",
     "metering/test_plan.py::test_events_fall_into_the_month_of_the_contracts_zone"),
    ("killbill/killbill#743", "30 days after 1 March gave day 1",
     "metering/test_plan.py::test_thirty_days_after_a_local_evening"),
    ("getlago/lago-api#818", "the first day wrong in a zone ahead of UTC",
     "metering/test_money.py::test_public_reports"),
    ("getlago/lago-api#1438", "proration wrong across daylight saving",
     "metering/test_reported_bugs.py::test_a_month_has_the_hours_and_days_of_its_zone"),
    ("home-assistant/core#114721", "a month of one hour",
     "metering/test_plan.py::test_a_year_is_twelve_periods_without_gap_or_overlap"),
    ("killbill/killbill#2133", "a start on 31 March billed on 30 May",
     "metering/test_plan.py::test_month_ends_stay_anchored"),
    ("openmeterio/openmeter#4179", "the cutoff test used the wrong clock",
     "metering/test_cases.py::test_late_usage_is_a_line_of_the_next_open_period"),
    ("polarsource/polar#5345", "events before the contract billed",
     "metering/test_cases.py::test_usage_before_the_contract_or_outside_its_periods_is_listed"),
    ("getlago/lago-api#2643", "tax per credit note: 335.00 of 334.99",
     "metering/test_ledger.py::test_four_credit_notes_total_the_invoice"),
    ("getlago/lago-api#821", "tax summed from rounded fees",
     "metering/test_contract.py::test_tax_is_computed_once_on_the_sum"),
    ("killbill/killbill#1124", "3.685 parked by a check on the unrounded value",
     "metering/test_money.py::test_public_reports"),
    ("killbill/killbill#161", "an item with four decimals",
     "metering/test_money.py::test_public_reports"),
    ("PrestaShop/PrestaShop#33912", "tax per unit, then times four",
     "metering/test_money.py::test_public_reports"),
    ("BasedHardware/omi#10158", "int(19.99 * 100) is 1998",
     "metering/test_money.py::test_public_reports"),
    ("Paymenter/Paymenter#1258", "yen times a hundred",
     "metering/test_money.py::test_public_reports"),
    ("killbill/killbill#1082", "pesos with decimals",
     "metering/test_money.py::test_public_reports"),
    ("influxdata/influxdb#6642", "70 x 0.4 is 27.999999999999964",
     "metering/test_money.py::test_public_reports"),
    ("getlago/lago-api#5560", "the estimate right, the saved fee 0 or negative",
     "portal/test_billing_golden.py::test_golden_through_the_database"),
    ("getlago/lago-api#3703", "a failed credit, voided, came back twice",
     "portal/test_billing_corrections.py::"
     "test_a_failed_credit_changes_nothing_and_a_void_gives_everything_back"),
    ("killbill/killbill#1464", "a void left credits consumed",
     "metering/test_cases.py::test_a_void_gives_back_recouped_cost_and_losses"),
    ("killbill/killbill#152", "an issued invoice moved with price, tax id or a fix",
     "metering/test_ledger.py::test_an_issued_document_has_one_digest_whatever_changes_elsewhere"),
    ("killbill/killbill#1376", "a catalogue change lost the old price",
     "metering/test_contract.py::"
     "test_a_new_contract_version_leaves_the_old_period_at_its_old_rate"),
    ("flexprice/flexprice#793", "tiered overage miscounted",
     "metering/test_contract.py::test_tiers_are_marginal"),
    ("flexprice/flexprice#1824", "a zero month skipped the minimum",
     "metering/test_contract.py::test_public_reports"),
    ("kubecost/kubecost#1738", "savings above cost",
     "metering/test_savings.py::test_savings_never_exceed_the_counterfactual"),
    ("kubecost/kubectl-cost#96", "a monthly figure times days",
     "metering/test_cases_properties.py::test_a_window_of_days_saves_so_many_times_one_day"),
    ("kubecost/docs#1134", "overlapping measures added up",
     "metering/test_contract.py::test_overlapping_measures_cannot_be_summed"),
    ("opencost/opencost#3387", "a negative total hidden by clamping",
     "metering/test_savings_rules.py::test_a_bill_below_zero_is_an_incident"),
    ("odoo/odoo#11859", "gaps in numbers; a credit note reset the counter",
     "portal/test_billing_corrections.py::"
     "test_a_credit_note_has_its_own_series_and_a_rollback_leaves_no_gap"),
    ("nmecr#30", "months of the baseline, not of the reporting period",
     "metering/test_savings_rules.py::test_months_are_those_of_the_reporting_period"),
    ("opendsm/caltrack#127", "summer savings paid, winter given back",
     "metering/test_reported_bugs.py::test_a_bad_season_is_set_off_and_never_paid_twice"),
]  # fmt: skip


@pytest.mark.parametrize(("report", "symptom", "place"), ROWS, ids=[row[0] for row in ROWS])
def test_each_report_has_its_test(report: str, symptom: str, place: str) -> None:
    """The named test exists and its file says which report it answers."""
    file, name = place.split("::")
    text = (TESTS / file).read_text("utf-8")
    functions = {
        node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)
    }
    assert name in functions, symptom
    own = file == "metering/test_reported_bugs.py"
    assert own or report in text or report.split("/")[-1] in text, f"{report} not named in {file}"


@pytest.mark.parametrize(("month", "hours"), [("2026-03", 743), ("2026-10", 745)])
def test_a_month_has_the_hours_and_days_of_its_zone(month: str, hours: int) -> None:
    """getlago/lago-api#1438, #1442: Berlin; both months have 31 days."""
    period = Period.month(month, "Europe/Berlin")
    assert period.hours == hours
    assert (period.local_last_day - date.fromisoformat(f"{month}-01")).days + 1 == 31


def test_a_bad_season_is_set_off_and_never_paid_twice() -> None:
    """opendsm/caltrack#127: what winter loses is taken off later gains, once."""
    fees = [month.fee for month in months(contract(), [10_000, -4_000, -2_000, 5_000, 5_000])]
    assert fees == [2000, 0, 0, 0, Decimal("800.00")]
    assert sum(fees) == Decimal("0.20") * (10_000 - 4_000 - 2_000 + 5_000 + 5_000)


def test_a_penny_is_neither_lost_nor_made() -> None:
    """Rows of rounding together: 55 x 0.067, and an amount over three centres."""
    assert line_amount("55", "0.067", "EUR") == Decimal("3.69")
    assert sum(allocate(Decimal("3.69"), [1, 1, 1], "EUR")) == Decimal("3.69")
    assert bill(contract(), "18.45").fee == Decimal("3.69")
