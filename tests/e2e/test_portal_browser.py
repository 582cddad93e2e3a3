"""Customer, auditor and finance walk through the portal in a real browser.

Every page is opened in light and dark and looked over by axe; nothing may scroll sideways at 200 %
zoom, break the content security policy or write an error to the console.
"""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.urls import reverse

from portal.audits.models import Review
from portal.documents.models import Download
from portal.runs.models import Measurement, Tuning
from reports.canonical import sha256_bytes
from reports.envelope import add
from tests.e2e.conftest import NARROWEST_PX, Visitor
from tests.portal.web_data import Stage

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

# Rules of axe that we hold ourselves to at any impact from "moderate" up.
SERIOUS = {"critical", "serious", "moderate"}


def pages(stage: Stage) -> dict[str, str]:
    """Every page by a short name."""
    named = {
        "dashboard": ("home",),
        "systems": ("registry:systems",),
        "system": ("registry:system", stage.system.pk),
        "mixes": ("registry:mixes",),
        "mix": ("registry:mix", stage.mix.pk),
        "contracts": ("contracts:contracts",),
        "contract": ("contracts:contract", stage.draft.pk),
        "baselines": ("runs:baselines",),
        "baseline": ("runs:baseline", stage.baseline.pk),
        "searches": ("runs:tunings",),
        "search": ("runs:tuning", stage.tuning.pk),
        "trials": ("runs:trials", stage.tuning.pk),
        "measurements": ("runs:measurements",),
        "measurement": ("runs:measurement", stage.measurement.pk),
        "run": ("runs:measurement-run", stage.measurement.pk, "uplift", "uplift-p01-a0-base"),
        "reviews": ("audits:reviews",),
        "review": ("audits:review", stage.open_review.pk),
        "usage": ("billing:usage",),
        "deliveries": ("billing:usage-batches",),
        "delivery": ("billing:usage-batch", stage.organisation.usage_batches.get().pk),
        "usage events": ("billing:usage-events",),
        "usage event": ("billing:usage-event", _contested(stage)),
        "parked": ("billing:usage-parked",),
        "parked line": ("billing:usage-line", _conflict(stage)),
        "savings": ("billing:savings-list",),
        "saving": ("billing:savings", stage.invoice.savings_id),
        "invoices": ("billing:invoices",),
        "invoice": ("billing:invoice", stage.invoice.pk),
        "sandbox": ("billing:sandbox", stage.invoice.pk),
        "audit of an invoice": ("billing:audit", stage.invoice.pk),
        "disputes": ("billing:disputes",),
        "periods": ("billing:periods",),
        "period": ("billing:period", stage.invoice.period_id),
        "checklist": ("billing:period-checks", stage.invoice.period_id),
        "reconciliation": ("billing:reconciliation", stage.invoice.period_id),
        "break-even": ("contracts:break-even", stage.contract.pk),
        "dispute": ("billing:dispute", stage.organisation.disputes.get().pk),
        "journal": ("billing:journal",),
        "downloads": ("documents:files",),
        "report": ("documents:report", stage.report.pk),
        "download log": ("documents:downloads",),
        "events": ("events:events",),
        "jobs": ("runs:jobs",),
        "job": ("runs:job", stage.job.pk),
    }
    return {name: reverse(route, args=args) for name, (route, *args) in named.items()}


def _conflict(stage: Stage) -> int:
    """A parked line whose key is contested."""
    batch = stage.organisation.usage_batches.get()
    return int(batch.parked.get(fate="conflict").pk)


def _contested(stage: Stage) -> int:
    """The stored event of that key."""
    key = stage.organisation.usage_batches.get().parked.get(fate="conflict").event_id
    return int(stage.organisation.usage_events.get(event_id=key).pk)


def _conflict(stage: Stage) -> int:
    """A parked line whose key is contested."""
    batch = stage.organisation.usage_batches.get()
    return int(batch.parked.get(fate="conflict").pk)


def _contested(stage: Stage) -> int:
    """The stored event of that key."""
    key = stage.organisation.usage_batches.get().parked.get(fate="conflict").event_id
    return int(stage.organisation.usage_events.get(event_id=key).pk)


def faults(visitor: Visitor) -> list[str]:
    """What axe finds on the open page."""
    found = Axe().run(visitor.page).response["violations"]
    return [
        f"{item['id']}: {node['html'][:160]}"
        for item in found
        if item["impact"] in SERIOUS
        for node in item["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(scheme: str, visit: Any, stage: Stage):
    visitor = visit(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    visitor.open("/sign-in/")
    found = {"sign in": faults(visitor)}
    visitor.sign_in("auditor")
    for name, path in pages(stage).items():
        visitor.open(path)
        visitor.page.evaluate(
            "document.querySelectorAll('details').forEach(d => { d.open = true; })"
        )
        found[name] = faults(visitor)
    assert {name: items for name, items in found.items() if items} == {}


def test_nothing_scrolls_sideways_at_200_percent(visit: Any, stage: Stage):
    visitor = visit(viewport={"width": NARROWEST_PX, "height": 450})
    visitor.sign_in("auditor")
    wide = {}
    for name, path in pages(stage).items():
        visitor.open(path)
        if visitor.sideways():
            wide[name] = visitor.sideways()
    assert wide == {}


def test_charts_are_drawn_and_follow_the_scheme(visit: Any, stage: Stage):
    visitor = visit(color_scheme="light")
    visitor.sign_in("owner")
    for name, charts in (("mix", 1), ("search", 1), ("measurement", 2), ("saving", 1)):
        page = visitor.open(pages(stage)[name])
        page.wait_for_selector(".chart-plot svg.main-svg")
        assert page.locator(".chart-plot .plot-container").count() == charts, name
    tick = page.locator(".chart-plot .ytick text").first
    light = tick.evaluate("node => getComputedStyle(node).fill")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "old => getComputedStyle(document.querySelector('.ytick text')).fill != old", arg=light
    )


def test_the_skip_link_leads_to_the_content(visit: Any):
    visitor = visit()
    visitor.sign_in("owner")
    visitor.page.keyboard.press("Tab")
    assert visitor.page.evaluate("document.activeElement.className") == "skip"
    visitor.page.keyboard.press("Enter")
    assert visitor.page.evaluate("document.activeElement.id") == "content"


def test_a_running_search_refreshes_itself(visit: Any, stage: Stage):
    Tuning.objects.filter(pk=stage.tuning.pk).update(state="running")
    visitor = visit()
    visitor.sign_in("owner")
    page = visitor.open(pages(stage)["search"])
    assert page.get_by_text("so far", exact=True).count() == 1
    Tuning.objects.filter(pk=stage.tuning.pk).update(state="done")
    page.wait_for_selector("#tuning-progress:not([hx-trigger])", timeout=10_000)
    assert page.get_by_text("21 accepted").count() == 1
    page.wait_for_selector("#tuning-progress .chart-plot svg.main-svg")


def test_customer_auditor_finance(visit: Any, stage: Stage, tmp_path: Path):
    """The customer reads, the auditor opens a log line and approves, finance takes an export."""
    customer = visit()
    customer.sign_in("owner")
    page = customer.page
    page.get_by_role("link", name="Uplift", exact=True).click()
    page.get_by_role("link", name="2026-").last.click()
    assert page.get_by_role("heading", name="Uplift on docstring-sentences").is_visible()
    page.get_by_text("How this is made: Uplift that bills").click()
    assert page.get_by_text("Money uses this figure").is_visible()
    customer.open(pages(stage)["review"])
    assert page.get_by_role("button", name="Approve with this envelope").count() == 0

    auditor = visit()
    auditor.sign_in("auditor")
    page = auditor.page
    page.get_by_role("link", name="Audit", exact=True).click()
    page.get_by_role("row", name="LUMEN-2").get_by_role("link").first.click()
    page.get_by_text("Show the table: Uplift pairs").click()
    page.get_by_role("link", name="uplift-p01-a0-base").click()
    page.get_by_role("link", name="result_samples_per_second").click()
    assert page.evaluate("document.querySelector(':target').innerText").endswith("1011.0")
    page = auditor.open(pages(stage)["review"])
    with page.expect_download() as taken:
        page.get_by_role("link", name="Envelope to sign").click()
    unsigned = Path(taken.value.path()).read_bytes()
    page.get_by_label("Signed envelope (JSON)").set_input_files(
        {"name": "envelope.json", "mimeType": "application/json", "buffer": unsigned}
    )
    page.get_by_role("button", name="Approve with this envelope").click()
    assert page.locator(".errorlist").first.is_visible()
    signed = tmp_path / "signed.json"
    signed.write_bytes(add(unsigned, stage.auditor_private))
    page.get_by_label("Signed envelope (JSON)").set_input_files(signed)
    page.get_by_role("button", name="Approve with this envelope").click()
    page.get_by_text("your signature holds").wait_for()
    assert Review.objects.get(pk=stage.open_review.pk).state == "approved"
    measured = Measurement.objects.get(pk=stage.open_review.measurement_id)
    assert measured.state == "approved"
    # The refused upload answers 400, which Chromium reports; nothing else may be in the console.
    assert [text for text in auditor.complaints if "400" not in text] == []
    auditor.complaints.clear()

    finance = visit()
    finance.sign_in("finance")
    page = finance.page
    assert page.get_by_role("link", name="Kernel search").count() == 0
    page.get_by_role("link", name="Invoices", exact=True).click()
    page.get_by_role("link", name=stage.invoice.number).click()
    assert page.get_by_role("row", name="Sum, must be zero").is_visible()
    export = stage.invoice.exports.get(file_format="focus").stored_file
    with page.expect_download() as taken:
        page.get_by_role("link", name=export.name).click()
    assert sha256_bytes(Path(taken.value.path()).read_bytes()) == export.sha256
    assert Download.objects.filter(user=stage.finance.user, stored_file=export).count() == 1


def test_a_dispute_is_opened_and_credited(visit: Any, stage: Stage):
    """The customer sees the split before opening, finance the note before issuing."""
    customer = visit()
    customer.sign_in("owner")
    page = customer.open(reverse("billing:dispute-new", args=[stage.invoice.pk]))
    page.get_by_label("Line 1").check()
    page.get_by_label("Reason").fill("The volume of 3 September is ours to prove")
    page.get_by_role("button", name="Show what this comes to").click()
    assert page.get_by_role("row", name="Set aside").get_by_text("1,825.77").is_visible()
    page.get_by_role("button", name="Open the dispute").click()
    assert page.get_by_text("The dispute is open").is_visible()

    finance = visit()
    finance.sign_in("finance")
    page = finance.page
    page.get_by_role("link", name="Disputes", exact=True).click()
    page.get_by_role("row", name="is ours to prove").get_by_role("link").first.click()
    page.get_by_role("link", name="Credit lines").click()
    page.get_by_label("Line 1").fill("4.73")
    page.get_by_label("Reason").fill("Agreed")
    page.get_by_role("button", name="Show what this comes to").click()
    page.get_by_role("button", name="Issue the credit note").click()
    assert page.get_by_role("heading", name="Credit note CN-000001").is_visible()
    customer.page.reload()
    assert customer.page.get_by_text("credited", exact=True).is_visible()
    assert customer.page.get_by_role("link", name="CN-000001").is_visible()


def test_a_foreign_invoice_is_not_there(visit: Any, stage: Stage):
    visitor = visit()
    visitor.sign_in("outsider")
    page = visitor.open(pages(stage)["invoice"])
    assert page.get_by_role("heading", name="Not found").is_visible()
    assert [text for text in visitor.complaints if "404" not in text] == []
    visitor.complaints.clear()


def test_print_hides_the_shell(visit: Any, stage: Stage):
    visitor = visit()
    visitor.sign_in("finance")
    page = visitor.open(pages(stage)["invoice"])
    page.emulate_media(media="print")
    assert not page.locator("nav[aria-label=Main]").is_visible()
    payable = f"{stage.invoice.gross:,.2f}"
    assert page.get_by_role("cell", name=payable, exact=True).first.is_visible()
