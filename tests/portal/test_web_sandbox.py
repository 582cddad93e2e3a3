"""The sandbox page: other assumptions, every difference, nothing written, one address for all."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from metering.cases.assumed import ASSUMED
from metering.contract import Contract, LedgerState, fee
from metering.decimals import exact, to_text
from metering.money import quantize
from metering.savings import SavingsLine
from portal.accounts.models import Membership
from portal.billing.assumptions import assumptions
from portal.billing.models import Correction, Dispute, Invoice, JournalEntry
from portal.billing.sandbox import compare, invoice_what_if
from portal.billing.savings import frozen_savings
from portal.billing.services import invoice_issue, period_open, savings_compute
from portal.billing.usage import usage_ingest
from portal.events.models import Event
from tests.portal.golden_database import Settled
from tests.portal.golden_database import stage as stage
from tests.portal.test_web_invoice import billed, terms


@pytest.fixture
def invoice(stage) -> Invoice:
    """Two lines under two tiers, holdback, tax, a cap, a minimum and a search pool."""
    settled = Settled(stage, (terms(cap=Decimal(2000), minimum=Decimal(10)),), "C-sand")
    return billed(settled, "2026-01", 2500, 700)


def ask(client: Client, member: Membership, invoice: Invoice, given: Mapping[str, str]) -> Any:
    client.force_login(member.user)
    return client.get(reverse("billing:sandbox", args=[invoice.pk]), given)


def amounts(answer: Any) -> dict[str, Decimal]:
    return {
        row.name: row.difference for row, _ in answer.context["rows"] if row.group == "Document"
    }


def with_terms(invoice: Invoice, **changes: object) -> Decimal:
    """The fee of the invoice's savings under other terms, from the function that bills."""
    contract = Contract.from_json(invoice.period.contract_version.contract)
    before = LedgerState.from_json(invoice.savings.document["state_before"])
    return fee(replace(contract, **changes), before, frozen_savings(invoice.savings)).payable


def test_each_term_gives_what_the_fee_gives(stage, invoice, client):
    """The page's difference is that of `fee` under the changed contract, to the cent."""
    contract = Contract.from_json(invoice.period.contract_version.contract)
    first, last = contract.tiers
    pool = contract.recoupment
    assert pool is not None
    asked: dict[str, tuple[str, dict[str, object]]] = {
        "tiers.0.rate": ("0.15", {"tiers": (replace(first, rate=Decimal("0.15")), last)}),
        "tiers.0.upper": ("500", {"tiers": (replace(first, upper=Decimal(500)), last)}),
        "cap": ("150.00", {"cap": Decimal("150.00")}),
        "minimum": ("900", {"minimum": Decimal(900)}),
        "holdback": ("0", {"holdback": Decimal(0)}),
        "holdback_tax": ("issue", {"holdback_tax": "issue"}),
        "vat": ("0.07", {"vat": Decimal("0.07")}),
        "recoupment.share": ("0.05", {"recoupment": replace(pool, share=Decimal("0.05"))}),
        "recoupment.amount": ("100", {"recoupment": replace(pool, amount=Decimal(100))}),
    }
    for name, (text, changes) in asked.items():
        answer = ask(client, stage.cast.owner, invoice, {f"contracts.0.{name}": text})
        assert answer.status_code == 200, (name, answer.context["form"].errors)
        wanted = with_terms(invoice, **changes) - invoice.gross
        assert amounts(answer)["Payable"] == wanted, name
        assert wanted, name


def test_lines_and_state_move_the_fee(stage, invoice, client):
    cast = stage.cast
    half = ask(client, cast.owner, invoice, {"savings.0.point": "1250", "savings.0.bound": "1250"})
    assert amounts(half)["Fee"] == Decimal("-250.00")
    gated = ask(client, cast.owner, invoice, {"savings.0.bills": "false"})
    rows = {row.name: row for row, _ in gated.context["rows"]}
    assert rows["M0 on s"].assumed == 0
    assert rows["M1 on s"].assumed is not None
    losses = ask(client, cast.owner, invoice, {"state.losses": "3200"})
    assert amounts(losses)["Payable"] == -invoice.gross
    nothing = ask(client, cast.owner, invoice, {"contracts.0.cap": ""})
    assert "No amount moves" in nothing.content.decode()


def test_nothing_is_written_and_the_page_shows_it(stage, invoice, client):
    models = (Invoice, JournalEntry, Correction, Dispute, Event)
    before = [model.objects.count() for model in models]
    answer = ask(client, stage.cast.finance, invoice, {"contracts.0.tiers.0.rate": "0.30"})
    assert [model.objects.count() for model in models] == before
    again = Invoice.objects.get(pk=invoice.pk)
    assert (again.document, again.sha256) == (invoice.document, invoice.sha256)
    text = answer.content.decode()
    assert "untouched" in text
    assert invoice.sha256 in text
    assert client.post(reverse("billing:sandbox", args=[invoice.pk])).status_code == 405


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"contracts.0.tiers.0.rate": "1.5"}, "contracts.0.tiers.0.rate"),
        ({"contracts.0.tiers.0.rate": "a fifth"}, "contracts.0.tiers.0.rate"),
        ({"contracts.0.tiers.0.rate": ""}, "contracts.0.tiers.0.rate"),
        ({"contracts.0.cap": "100.005"}, "contracts.0.cap"),
        ({"contracts.0.cap": "5"}, "contracts.0.minimum"),
        ({"contracts.0.holdback": "-0.1"}, "contracts.0.holdback"),
        ({"contracts.0.bound": "highest"}, "contracts.0.bound"),
        ({"contracts.0.baseline_policy.fraction": "0.5"}, "contracts.0.baseline_policy.fraction"),
        ({"contracts.0.baseline_policy.kind": "glide"}, "contracts.0.baseline_policy.fraction"),
        ({"contracts.0.recoupment.share": "0.9"}, "contracts.0.recoupment.share"),
        ({"savings.0.bound": "9999"}, "savings.0.bound"),
        ({"savings.0.counterfactual": "-1"}, "savings.0.counterfactual"),
        ({"state.losses": "-1"}, "state.losses"),
    ],
)
def test_a_wrong_value_is_told_at_its_field_and_kept(stage, invoice, client, given, field):
    answer = ask(client, stage.cast.owner, invoice, given)
    assert answer.status_code == 400
    assert list(answer.context["form"].errors) == [field]
    text = answer.content.decode()
    assert answer.context["rows"] is None
    assert "wanted" in text or "required" in text or "valid choice" in text
    for typed in given.values():
        assert typed in text


def test_the_address_is_the_assumption_and_opens_for_colleagues_only(stage, invoice, client):
    """A whole form becomes an address of what changed; another organisation finds nothing."""
    whole = {item.place: item.value for item in assumptions(invoice.savings)}
    answer = ask(
        client, stage.cast.owner, invoice,
        whole | {"contracts.0.vat": "0.07", "contracts.0.tiers.0.rate": "0.200", "page": "2"},
    )  # fmt: skip
    assert answer.status_code == 302
    assert answer.url.endswith("?contracts.0.vat=0.07")
    mine = amounts(client.get(answer.url))
    client.force_login(stage.cast.colleague.user)
    assert amounts(client.get(answer.url)) == mine
    client.force_login(stage.cast.outsider.user)
    assert client.get(answer.url).status_code == 404
    assert ask(client, stage.cast.owner, invoice, whole).url.endswith("/sandbox/")


def test_the_csv_holds_the_rows_of_the_page(stage, invoice, client):
    given = {"contracts.0.tiers.0.rate": "0.10"}
    page = ask(client, stage.cast.owner, invoice, given)
    rows = [row for row, item in page.context["rows"] if item.opens]
    answer = ask(client, stage.cast.owner, invoice, given | {"format": "csv"})
    listed = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert [(row["amount"], row["difference"]) for row in listed] == [
        (row.name, to_text(row.difference)) for row in rows
    ]
    assert listed[0]["assumptions"] == "contracts.0.tiers.0.rate=0.10"


def test_a_credit_note_leads_to_its_invoices_sandbox(stage, invoice, client):
    client.force_login(stage.cast.finance.user)
    url = reverse("billing:credit", args=[invoice.pk])
    client.post(url, {"amount_1": "1.00", "reason": "x", "confirmed": 0})
    note = Invoice.objects.get(kind="credit_note")
    answer = ask(client, stage.cast.finance, note, {})
    assert answer.url == reverse("billing:sandbox", args=[invoice.pk])


@pytest.fixture
def metered(cast, approved) -> Invoice:
    """The invoice of a month whose savings were computed from 6e11 counted samples."""
    event = {
        "specversion": "1.0", "type": "ignition.usage.v1", "source": "gateway-1", "id": "e1",
        "time": "2026-10-03T08:00:00Z",
        "data": {"model": "text-encoder", "system": "search-1", "samples": 600_000_000_000},
    }  # fmt: skip
    usage_ingest(
        actor=cast.owner, organisation=cast.organisation, lines=[json.dumps(event)], via="test"
    )
    period = period_open(
        actor=cast.finance, contract_version=approved.contract_version, label="2026-10"
    )
    record = savings_compute(actor=cast.finance, period=period, measurement=approved)
    return invoice_issue(actor=cast.finance, savings=record)


def test_inputs_of_a_measured_line_are_worked_out_by_the_engine(cast, metered, client):
    """20 % of savings at the bound = V x price / 3600 x cores / rate x (1 - 1 / (1 + u))."""
    line = SavingsLine.from_json(metered.savings.document["lines"][0])

    def fee_of(**changes: object) -> Decimal:
        now = {name: changes.get(name, getattr(line, name)) for name in ASSUMED}
        with exact():
            cost = (
                now["price_per_core_hour"]
                / 3600
                * now["cores"]
                / (now["baseline_samples_per_second"])
            )
            saved = now["volume"] * cost * (1 - 1 / (1 + now["uplift_lower_95"]))
            return quantize(saved * Decimal("0.20"), "EUR")

    asked: dict[str, object] = {
        "price_per_core_hour": Decimal("0.10"), "volume": 300_000_000_000, "cores": 4,
        "baseline_samples_per_second": Decimal(500), "uplift_lower_95": Decimal("0.1"),
    }  # fmt: skip
    for name, value in asked.items():
        answer = ask(client, cast.owner, metered, {f"savings.0.{name}": str(value)})
        assert answer.status_code == 200, answer.context["form"].errors
        wanted = fee_of(**{name: value}) - fee_of()
        assert amounts(answer)["Fee"] == wanted != 0, name
    wrong = {"uplift_lower_95": "0.5", "cores": "0", "volume": "-1", "price_per_core_hour": "-1"}
    for name, text in wrong.items():
        answer = ask(client, cast.owner, metered, {f"savings.0.{name}": text})
        assert list(answer.context["form"].errors) == [f"savings.0.{name}"]


@pytest.mark.parametrize(
    ("policy", "fraction", "rate", "counts"),
    [
        ("fixed", "", "450", "400"),
        ("reset", "", "450", "450"),
        ("ratchet", "", "450", "450"),
        ("ratchet", "", "350", "400"),
        ("glide", "0.5", "450", "423.529411764706"),
    ],
)
def test_a_remeasured_baseline_counts_as_the_policy_says(
    cast, metered, client, policy, fraction, rate, counts
):
    """Savings = V x (cost at the effective rate - cost of the kernel at the bound)."""
    line = SavingsLine.from_json(metered.savings.document["lines"][0])
    given = {"contracts.0.baseline_policy.kind": policy, "savings.0.remeasured": rate}
    if policy == "fixed":
        del given["contracts.0.baseline_policy.kind"]
    if fraction:
        given["contracts.0.baseline_policy.fraction"] = fraction
    answer = ask(client, cast.owner, metered, given)
    assert answer.status_code == 200, answer.context["form"].errors
    with exact():
        core = line.price_per_core_hour / 3600 * line.cores * line.volume
        kernel = core / line.baseline_samples_per_second / (1 + line.uplift_lower_95)
        saved = max(Decimal(0), core / Decimal(counts) - kernel)
        wanted = quantize(saved * Decimal("0.20"), "EUR")
    assert Decimal(metered.document["fee"]) + amounts(answer)["Fee"] == wanted


def test_unchanged_the_case_gives_every_issued_amount(stage, invoice):
    found = invoice_what_if(
        actor=stage.cast.owner, invoice=invoice, changes={"contracts.0.payment_days": 30}
    )
    for row in compare(found):
        assert row.difference == 0
    issued = {row.name: row.issued for row in compare(found) if row.group == "Document"}
    assert issued["Payable"] == Decimal(invoice.document["payable"])
