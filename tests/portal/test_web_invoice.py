"""The page of an issued document: every number open, the way to the payable, its relatives."""

import csv
import io
import json
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from django.test import Client
from django.urls import reverse

from metering.contract import Contract, FeeBreakdown, Recoupment, Tier
from portal.accounts.models import Membership
from portal.billing.corrections import audit_settle, credit_issue
from portal.billing.figures_invoice import amount_figures, line_rows
from portal.billing.invoice_page import invoice_falls
from portal.billing.models import Invoice
from portal.billing.savings import savings_verify
from portal.billing.services import invoice_issue, period_open
from tests.metering.money_cases import contract, line, verified
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage


def terms(**changes: object) -> Contract:
    """Two tiers, holdback, tax and a search pool of 1,000."""
    given: dict[str, object] = {
        "tiers": (Tier(Decimal(1000), Decimal("0.20")), Tier(None, Decimal("0.10"))),
        "holdback": Decimal("0.10"),
        "vat": Decimal("0.19"),
        "recoupment": Recoupment("pool", Decimal(1000), share=Decimal("0.10")),
    }
    return contract(**(given | changes))


def billed(settled: Settled, month: str, *savings: object) -> Invoice:
    """The invoice of a month with one line per amount, stated by the auditor."""
    cast = settled.stage.cast
    period = period_open(actor=cast.finance, contract_version=settled.versions[0], label=month)
    lines = [
        line(amount, model=f"M{n}", counterfactual=Decimal(9000))
        for n, amount in enumerate(savings)
    ]
    record = savings_verify(
        actor=cast.auditor,
        period=period,
        measurement=settled.measurement,
        verified=replace(
            verified(lines, month=month), evidence_digest=settled.measurement.evidence_sha256
        ),
    )
    return invoice_issue(actor=cast.finance, savings=record)


def page(client: Client, member: Membership, invoice: Invoice) -> str:
    client.force_login(member.user)
    return client.get(reverse("billing:invoice", args=[invoice.pk])).content.decode()


CASES = {
    "two tiers and a pool": (terms(), ((2500, 700),)),
    "a cap that cuts": (terms(cap=Decimal(150), recoupment=None), ((2500, 700),)),
    "a cap that carries, then room": (
        terms(cap=Decimal(200), cap_excess="carry", recoupment=None), ((2500,), (100,)),
    ),
    "a minimum that lifts": (terms(minimum=Decimal(300), recoupment=None), ((400,),)),
    "a loss, then set off": (terms(recoupment=None), ((-500,), (1500,))),
    "an amortised search": (terms(recoupment=Recoupment("amortised", Decimal(1200), months=12)),
                            ((2500, 700),)),
    "a month of nothing": (terms(), ((0,),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_way_to_the_payable_is_made_of_stored_amounts(stage, name):
    """Changes add up between totals; every total is the engine's; the end is the payable."""
    contract_terms, months = CASES[name]
    settled = Settled(stage, (contract_terms,), "C-fall")
    for number, savings in enumerate(months, start=1):
        invoice = billed(settled, f"2026-0{number}", *savings)
        told = FeeBreakdown.from_json(invoice.savings.document["breakdown"])
        rows = invoice_falls(invoice)
        totals = {row.name: row.amount for row in rows if row.kind == "total"}
        assert totals.pop("Our share", None) in {
            None, *(step.amount for step in told.steps if step.name == "share"),
        }  # fmt: skip
        assert totals == {
            "Counterfactual": told.counterfactual, "Savings that count": told.net_savings,
            "Chargeable savings": told.chargeable, "Fee": told.fee, "Net": told.net,
            "Payable": told.payable,
        }  # fmt: skip
        running = Decimal(0)
        for row in rows:
            running = row.amount if row.kind == "total" else running + row.amount
            assert running == row.after, row.name
            before = rows[rows.index(row) - 1].after
            assert row.kind == "change" or row is rows[0] or row.amount == before, row.name
        assert all(row.figure.opens for row in rows)
        assert rows[-1].amount == invoice.gross


def test_named_terms_show_where_they_bite(stage):
    wanted = {
        "a cap that cuts": {"Cut at the cap": Decimal("-270.00")},
        "a minimum that lifts": {"Raised to the minimum": Decimal("220.00")},
        "an amortised search": {"Instalment of the search": Decimal(-100)},
    }
    for number, (name, changes) in enumerate(wanted.items()):
        contract_terms, months = CASES[name]
        settled = Settled(stage, (contract_terms,), f"C-term-{number}")
        found = {
            row.name: row.amount for row in invoice_falls(billed(settled, "2026-01", *months[0]))
        }
        assert {key: found[key] for key in changes} == changes


def test_every_number_of_the_page_opens(stage, client):
    """Each amount stands with formula, inputs and API call, and so does what is handed on."""
    settled = Settled(stage, (terms(),), "C-open")
    invoice = billed(settled, "2026-01", 2500, 700)
    text = page(client, stage.cast.owner, invoice)
    opened = re.findall(r'<summary>How [^<]+<span class="visually-hidden">: ([^<]+)', text)
    for words in (
        "Fee", "Holdback", "Net", "Taxable amount", "VAT", "Payable", "Billed savings", "Amount",
        "Counterfactual", "Savings that count", "Chargeable savings", "Our share",
        "Search cost paid back", "Losses carried forward", "Search cost recouped",
        "Left of line 1", "Sum, must be zero",
    ):  # fmt: skip
        assert words in opened, words
    assert text.count(f"GET /api/v1/invoices/{invoice.pk}") >= 15
    assert "20.00 % of 1,000 EUR" in text
    figures = amount_figures(invoice)
    assert {name: figures[name].value for name in figures} == {
        name: invoice.document[name] for name in figures
    }
    rows = line_rows(invoice)
    assert [row.amount.value for row in rows] == [
        item["fee_line"]["amount"] for item in invoice.document["lines"]
    ]
    assert all(row.savings.opens and row.amount.opens for row in rows)


def test_the_waterfall_is_chart_table_and_csv_of_the_same_rows(stage, client):
    settled = Settled(stage, (terms(),), "C-csv")
    invoice = billed(settled, "2026-01", 2500, 700)
    rows = invoice_falls(invoice)
    text = page(client, stage.cast.finance, invoice)
    figure = re.search(r'<script id="waterfall-chart" type="application/json">(.*?)</script>', text)
    assert figure is not None
    bars = json.loads(figure[1])["data"][0]
    assert bars["x"] == [row.name for row in rows]
    assert bars["y"] == [float(row.amount) for row in rows]
    url = reverse("billing:invoice-waterfall-csv", args=[invoice.pk])
    listed = list(csv.DictReader(io.StringIO(client.get(url).content.decode())))
    assert [(row["name"], Decimal(row["amount"])) for row in listed] == [
        (row.name, row.amount) for row in rows
    ]


def test_documents_lead_to_each_other_and_say_what_is_left(stage, client):
    settled = Settled(stage, (terms(),), "C-link")
    cast = stage.cast
    invoice = billed(settled, "2026-01", 2500, 700)
    note = credit_issue(
        actor=cast.finance, invoice=invoice, reason="price agreed", amounts={"1": Decimal("12.34")}
    )
    text = page(client, cast.owner, invoice)
    assert reverse("billing:invoice", args=[note.pk]) in text
    left = Decimal(invoice.document["lines"][0]["fee_line"]["amount"]) - Decimal("12.34")
    assert f'<td class="num">{left:,}</td>' in text
    text = page(client, cast.owner, note)
    assert "Credit note CN-000001" in text
    assert reverse("billing:invoice", args=[invoice.pk]) in text
    assert "credited so far" in text
    assert "From counterfactual to payable" not in text


def test_a_release_and_its_invoice_name_each_other(stage, client):
    settled = Settled(stage, (terms(recoupment=None),), "C-release")
    invoice = billed(settled, "2026-01", 2500)
    found = replace(
        verified([line(2500, model="M0", counterfactual=Decimal(9000))], month="2026-01"),
        evidence_digest=settled.measurement.evidence_sha256,
    )
    correction = audit_settle(
        actor=stage.cast.auditor, invoice=invoice, measurement=settled.measurement, verified=found
    )
    text = page(client, stage.cast.auditor, invoice)
    assert correction.document.number in text
    assert "audited fee" in text
    text = page(client, stage.cast.auditor, correction.document)
    assert "Release of holdback" in text
    assert "an audit never raises it" in text
