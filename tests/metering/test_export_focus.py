"""FOCUS rows: columns of each version, sums, classes of charge and the periods they are about."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from metering import canonical
from metering.contract import LedgerState, Recoupment, fee
from metering.export import FOCUS, focus_csv
from metering.export.check_focus import check_focus
from metering.plan import Period
from tests.metering.export_cases import history, issued, rows_of, terms
from tests.metering.money_cases import CUSTOMER, ISSUED, bill, invoice, line, verified


@pytest.mark.parametrize("version", list(FOCUS))
def test_focus_has_every_mandatory_column_of_its_version(version: str) -> None:
    mandatory, columns = FOCUS[version].mandatory, FOCUS[version].columns
    assert len(mandatory) == 21
    rows = rows_of(focus_csv([issued()], version)[0])
    assert list(rows[0]) == list(columns)
    nullable = {"ChargeClass", "PricingQuantity", "PricingUnit", "HostProviderName"}
    assert all(row[name] for row in rows for name in mandatory if name not in nullable)
    assert {"x_BaselineId", "x_EvidenceBundleSha256", "x_SavingsLCB95"} <= set(columns)


def test_both_focus_versions_are_maps_over_the_same_rows() -> None:
    old, new = (rows_of(focus_csv(history(), version)[0]) for version in ("1.2", "1.4"))
    shared = set(FOCUS["1.2"].columns) & set(FOCUS["1.4"].columns)
    assert set(FOCUS["1.2"].columns) - shared == {"ProviderName", "PublisherName"}
    assert set(FOCUS["1.4"].columns) - shared == {
        "HostProviderName", "InvoiceDetailId", "ServiceProviderName",
    }  # fmt: skip
    assert [{n: r[n] for n in shared} for r in old] == [{n: r[n] for n in shared} for r in new]
    assert {r["ProviderName"] for r in old} == {r["ServiceProviderName"] for r in new}
    assert {r["HostProviderName"] for r in new} == {""}


def test_billed_costs_sum_to_the_payable_of_every_document() -> None:
    documents = history()
    text, record = focus_csv(documents)
    rows = rows_of(text)
    for document in documents:
        costs = [Decimal(r["BilledCost"]) for r in rows if r["InvoiceId"] == document.number]
        assert sum(costs) == document.payable
    assert record.rows == len(rows)
    assert record.sums == {"EUR": sum(document.payable for document in documents)}
    assert record.sha256 == canonical.digest_bytes(text.encode())


def test_focus_rows_say_what_they_are() -> None:
    usage, holdback, tax = rows_of(focus_csv([issued()], "1.4")[0])
    details = [row["InvoiceDetailId"] for row in (usage, holdback, tax)]
    assert details == ["1", "holdback", "tax"]
    assert [r["ChargeCategory"] for r in (usage, holdback, tax)] == ["Usage", "Credit", "Tax"]
    assert [r["BilledCost"] for r in (usage, holdback, tax)] == ["10300.00", "-1030.00", "1761.30"]
    assert (usage["PricingQuantity"], usage["PricingUnit"]) == ("51500.0", "Verified EUR")
    assert (usage["ConsumedQuantity"], usage["ConsumedUnit"]) == ("51000000000.0", "Samples")
    assert usage["x_SavingsPoint"] == "52000.5"
    assert tax["PricingQuantity"] == tax["PricingUnit"] == ""
    assert usage["BillingPeriodStart"] == "2026-10-31T23:00:00Z"
    assert usage["ChargeClass"] == ""


def test_a_correction_is_of_a_period_billed_before() -> None:
    release = rows_of(focus_csv([history()[2]])[0])
    assert {row["ChargeClass"] for row in release} == {"Correction"}
    assert {row["ChargePeriodEnd"] for row in release} == {"2026-11-30T23:00:00Z"}
    assert {row["BillingPeriodStart"] for row in release} == {"2026-12-31T23:00:00Z"}
    middle = Period.anchored(date(2026, 11, 15), 1, "Europe/Berlin")[0]
    issued_in = datetime(2026, 12, 20, tzinfo=UTC)
    halved = rows_of(focus_csv([replace(history()[2], period=middle, issued_at=issued_in)])[0])
    assert {row["ChargeClass"] for row in halved} == {"Correction"}
    assert {row["ChargePeriodEnd"] for row in halved} == {"2026-12-14T23:00:00Z"}
    assert {row["BillingPeriodStart"] for row in halved} == {"2026-12-14T23:00:00Z"}
    assert {row["BillingPeriodEnd"] for row in halved} == {"2026-12-31T23:00:00Z"}
    within = replace(history()[3], issued_at=ISSUED - timedelta(days=5))
    fix = rows_of(focus_csv([within])[0])
    assert {row["ChargeClass"] for row in fix} == {""}
    assert {row["BillingPeriodStart"] for row in fix} == {"2026-10-31T23:00:00Z"}


def test_late_usage_is_a_correction_inside_the_next_invoice() -> None:
    used = terms()
    lines = [
        line(1000, model="now"),
        line(100, model="late", segment="late from 2026-10", corrects="2026-10"),
        line(100, model="older", segment="late from 2026-09-15", corrects="2026-09-15"),
    ]
    document = invoice(used, fee(used, LedgerState(), verified(lines)))
    text = focus_csv([document])[0]
    by_model = {row["ResourceName"]: row for row in rows_of(text)}
    classes = {name: row["ChargeClass"] for name, row in by_model.items() if name}
    assert classes == {"now": "", "late": "Correction", "older": "Correction"}
    assert {row["BillingPeriodStart"] for row in by_model.values()} == {"2026-10-31T23:00:00Z"}
    late, older = by_model["late"], by_model["older"]
    assert late["ChargePeriodStart"] == "2026-09-30T22:00:00Z"
    assert late["ChargePeriodEnd"] == "2026-10-31T23:00:00Z"
    assert older["ChargePeriodStart"] == "2026-09-14T22:00:00Z"
    assert older["ChargePeriodEnd"] == "2026-10-14T22:00:00Z"
    assert check_focus(list(rows_of(text)[0]), rows_of(text)).findings == []


def test_recouped_search_cost_is_an_adjustment() -> None:
    used = terms(recoupment=Recoupment("pool", Decimal(1500), share=Decimal("0.4")))
    rows = rows_of(focus_csv([invoice(used, bill(used, 10_000))])[0])
    assert [r["BilledCost"] for r in rows if r["ChargeCategory"] == "Adjustment"] == ["1500.00"]


def test_a_hostile_customer_name_stays_text() -> None:
    hostile = replace(CUSTOMER, name='=HYPERLINK("http://x","y")')
    text = focus_csv([issued(terms(customer=hostile))])[0]
    assert rows_of(text)[0]["BillingAccountName"].startswith("'=HYPERLINK")
