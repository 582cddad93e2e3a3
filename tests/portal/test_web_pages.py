"""What is on the pages: headers, nothing inline, numbers that open, CSV, query budgets."""

import csv
import io
import json
import re
import zipfile
from datetime import timedelta
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import plotly.graph_objects as go
import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from metering.plan.measurement import METHOD_VERSION
from portal.accounts.access import Platform
from portal.accounts.services import member_add
from portal.audits.models import Review
from portal.billing.figures import line_formula, savings_lines
from portal.documents.models import Download
from portal.runs.models import Job, Measurement, Tuning
from portal.runs.views import speed_series
from portal.runs.views_measurement import uplift_figures
from portal.web import charts
from reports.envelope import add
from tests.portal.test_web_roles import GET
from tests.portal.web_data import PASSWORD, Stage
from tests.portal.web_routes import routes, url_of
from tests.portal.web_stage import stage  # noqa: F401

pytestmark = pytest.mark.django_db

CHART_PAGES = {
    "registry:mix", "runs:tuning", "runs:tuning-progress", "runs:measurement", "audits:review",
    "billing:savings", "billing:usage", "billing:invoice",
}  # fmt: skip
# Lists may ask this often, whatever the number of rows: session, user, memberships, count, rows ...
LIST_BUDGET = 12
DETAIL_BUDGET = 22
# Pages that add up many rows ask about as much as a page of one object.
SUMS = {"home", "billing:usage", "billing:usage-events", "billing:usage-parked"}


class Inline(HTMLParser):
    """Collects what a strict policy would block: inline scripts, styles and handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        data = given.get("type") == "application/json"
        if tag == "script" and not given.get("src") and not data:
            self.found.append("script without src")
        if tag == "style":
            self.found.append("style element")
        self.found += [
            f"{tag} {name}" for name in given if name == "style" or name.startswith("on")
        ]
        self.found += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("href", "src", "action") and value and re.match(r"(https?:)?//", value)
        ]


PAGES = [
    route
    for route in routes()
    if route.name in GET
    and not re.search(
        r"agreement|sweep$|lengths|pairs|csv|lines|statement|envelope|evidence|exports", route.name
    )
    and route.name != "documents:download"
]


@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.name)
def test_strict_policy_and_nothing_inline(route, stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    response = client.get(url_of(route, stage))
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in response.headers["Content-Security-Policy"].split(";")
    )
    assert policy["script-src"] == "'self'"
    assert policy["default-src"] == "'none'"
    inline = " 'unsafe-inline'" if route.name in CHART_PAGES else ""
    assert policy["style-src"] == f"'self'{inline}"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    parser = Inline()
    parser.feed(response.content.decode())
    assert parser.found == []


def test_query_budget(stage: Stage, client: Client):  # noqa: F811
    """A page asks the database a bounded number of times, however many rows there are."""
    client.force_login(stage.owner.user)
    over = {}
    for route in PAGES:
        budget = DETAIL_BUDGET if route.arguments or route.name in SUMS else LIST_BUDGET
        url = url_of(route, stage)
        with CaptureQueriesContext(connection) as seen:
            client.get(url)
        if len(seen) > budget:
            over[route.name] = [query["sql"][:120] for query in seen]
    assert over == {}


def test_more_rows_do_not_mean_more_queries(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    counts = []
    for extra in (0, 30):
        for number in range(extra):
            Job.objects.create(organisation=stage.organisation, kind="main", key=f"extra-{number}")
        with CaptureQueriesContext(connection) as seen:
            client.get(reverse("runs:jobs"))
        counts.append(len(seen))
    assert counts[0] == counts[1]


def test_static_files_are_ours_or_from_installed_wheels():
    for name in (
        "portal/portal.css", "portal/charts.js", "portal/page.js", "portal/logo.svg",
        "vendor/plotly/plotly.min.js", "django_htmx/htmx-2.min.js",
    ):  # fmt: skip
        assert finders.find(name), name
    assert not finders.find("vendor/plotly/widgetbundle.js")
    assert not finders.find("vendor/plotly/../plotly/plotly.min.js")


def test_charts_are_plotly_figures():
    """Each figure is valid for plotly once its colour roles are colours."""
    figures = [
        charts.length_histogram({"5": 3, "9": 1}),
        charts.search_progress({"gemm": [(0.0, 1.0), (2.0, 1.2)], "attention": [(1.0, 1.0)]}),
        charts.paired_changes([1.0, 2.0], point=1.5, low=1.0, high=2.0, band="95 %"),
        charts.savings_waterfall(
            counterfactual=10.0, actual=8.0, savings=2.0, fee=0.4, currency="EUR"
        ),
        charts.fee_waterfall([("Counterfactual", "total", 9.0), ("Saved", "change", -2.0)], "EUR"),
    ]
    for figure in figures:
        plain = re.sub(r"role:[a-z-]+", "#123456", json.dumps(figure))
        assert go.Figure(json.loads(plain)).data


def test_search_speed_is_the_running_product(stage: Stage):  # noqa: F811
    events = list(stage.tuning.events.all())
    series = speed_series(events)
    for operator, points in series.items():
        product = 1.0
        for event in events:
            if event.operator == operator and event.kind == "kept":
                product *= event.ratio
        assert points[-1][1] == pytest.approx(product)
        assert [ratio for _, ratio in points] == sorted(ratio for _, ratio in points)


def test_uplift_page_shows_every_number_open(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    text = client.get(reverse("runs:measurement", args=[stage.measurement.pk])).content.decode()
    for words in (
        "Uplift that bills", "one-sided 95 % lower bound", METHOD_VERSION,
        "uplift-p01-a0-base", stage.measurement.evidence_sha256, "Short-run plan",
        "not verified by MLCommons", "GET /api/v1/measurements/", "A/A pairs",
    ):  # fmt: skip
        assert words in text, words


def test_a_number_leads_to_its_log_line(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    url = reverse(
        "runs:measurement-run", args=[stage.measurement.pk, "uplift", "uplift-p01-a0-base"]
    )
    text = client.get(url).content.decode()
    assert 'id="line-5"' in text
    assert "result_samples_per_second" in text
    assert "1011.0" in text


def test_evidence_comes_whole_and_the_same_each_time(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    url = reverse("runs:measurement-evidence", args=[stage.measurement.pk])
    first, second = (client.get(url).getvalue() for _ in range(2))
    assert first == second
    folder = stage.home / stage.measurement.evidence_path
    with zipfile.ZipFile(io.BytesIO(first)) as packed:
        names = packed.namelist()
        assert "evidence/uplift/pairs.json" in names
        assert len(names) == sum(path.is_file() for path in folder.rglob("*"))
        for name in names:
            stored = folder / name.removeprefix("evidence/")
            assert packed.read(name) == stored.read_bytes()


@pytest.mark.parametrize("run_id", ["..", "nothing", "uplift-p01-a0-base%00"])
def test_no_path_leaves_the_evidence(run_id, stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    base = reverse("runs:measurement", args=[stage.measurement.pk])
    assert client.get(f"{base}uplift/runs/{run_id}/").status_code == 404
    assert client.get(f"{base}kernel/runs/uplift-p01-a0-base/").status_code == 404


def test_csv_matches_the_page_and_guards_formulas(stage: Stage, client: Client):  # noqa: F811
    Job.objects.create(
        organisation=stage.organisation, kind="main", key="=HYPERLINK(1)", error="-1+2"
    )
    client.force_login(stage.owner.user)
    response = client.get(reverse("runs:jobs"), {"format": "csv", "state": "queued"})
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(response.content.decode())))
    page = client.get(reverse("runs:jobs"), {"state": "queued"}).content.decode()
    assert len(rows) == 2
    assert "2 in all" in page
    assert {row["key"] for row in rows} == {"2026-11", "'=HYPERLINK(1)"}
    assert "'-1+2" in {row["error"] for row in rows}


def test_invoice_shows_amounts_journal_and_exports(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    document = stage.invoice.document
    text = client.get(reverse("billing:invoice", args=[stage.invoice.pk])).content.decode()
    for words in (
        *(f"{Decimal(document[name]):,f}" for name in ("fee", "tax", "payable")),
        stage.invoice.number,
        "[2026-09-01, 2026-10-01)", "Europe/Berlin", "short-run plan", "focus.csv",
        "Sum, must be zero", "How this is made",
    ):  # fmt: skip
        assert words.lower() in text.lower(), words
    total = sum(entry.amount for entry in stage.invoice.journal_entries.all())
    assert total == 0


def test_usage_that_was_not_counted_is_visible(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    batch = stage.organisation.usage_batches.get()
    text = client.get(reverse("billing:usage-batch", args=[batch.pk])).content.decode()
    for fate in ("duplicate", "conflict", "malformed"):
        assert fate in text
    assert "not an event" in text


def test_download_serves_the_stored_bytes_and_is_logged(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    response = client.get(reverse("documents:download", args=[stage.report.pdf_id]))
    stored = (stage.home / stage.report.pdf.path).read_bytes()
    assert response.content == stored
    assert response.headers["Content-Disposition"].startswith("attachment;")
    assert Download.objects.filter(user=stage.auditor.user).count() == 1


def test_a_changed_file_is_not_handed_out(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    path = stage.home / stage.report.bundle.path
    before = path.read_bytes()
    path.write_bytes(b"other bytes")
    try:
        response = client.get(reverse("documents:download", args=[stage.report.bundle_id]))
    finally:
        path.write_bytes(before)
    assert response.status_code == 409
    assert b"other bytes" not in response.content


def test_auditor_approves_with_an_envelope_signed_elsewhere(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    url = reverse("audits:envelope", args=[stage.open_review.pk])
    signed = add(client.get(url).content, stage.auditor_private)
    approve = reverse("audits:approve", args=[stage.open_review.pk])
    bad = client.post(approve, {"envelope": io.BytesIO(client.get(url).content)})
    assert bad.status_code == 400
    assert Review.objects.get(pk=stage.open_review.pk).state == "open"
    good = client.post(approve, {"envelope": io.BytesIO(signed)})
    assert good.status_code == 302
    assert Review.objects.get(pk=stage.open_review.pk).state == "approved"


def test_rejection_needs_and_keeps_its_reason(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.auditor.user)
    url = reverse("audits:reject", args=[stage.open_review.pk])
    assert client.post(url, {"reason": " "}).status_code == 400
    response = client.post(url, {"reason": "Pair 3 cannot be explained."}, follow=True)
    assert "Pair 3 cannot be explained." in response.content.decode()
    assert Review.objects.get(pk=stage.open_review.pk).state == "rejected"


def test_switching_organisation(stage: Stage, client: Client):  # noqa: F811
    other = stage.outsider.organisation
    second = member_add(actor=Platform(other), organisation=other, username="owner", role="finance")
    client.force_login(stage.owner.user)
    assert b"Lumen Search GmbH (customer)" in client.get("/").content
    client.post(reverse("switch"), {"membership": str(second.pk)})
    assert b"Outside Ltd</h1>" in client.get("/").content
    assert client.post(reverse("switch"), {"membership": str(stage.host.pk)}).status_code == 404


def test_expired_access_is_refused(stage: Stage, client: Client):  # noqa: F811
    stage.auditor.expires_at = timezone.now() - timedelta(seconds=1)
    stage.auditor.save(update_fields=["expires_at"])
    client.force_login(stage.auditor.user)
    response = client.get("/")
    stage.auditor.expires_at = None
    assert response.status_code == 403
    assert b"has expired" in response.content


def test_sign_in_and_out(stage: Stage, client: Client):  # noqa: F811
    wrong = client.post(reverse("login"), {"username": "owner", "password": "wrong"})
    assert wrong.status_code == 200
    assert b"Please enter a correct" in wrong.content
    url = f"{reverse('login')}?next={reverse('runs:jobs')}"
    right = client.post(url, {"username": "owner", "password": PASSWORD})
    assert right.status_code == 302
    assert right.url == reverse("runs:jobs")
    assert client.get(reverse("logout")).status_code == 405
    assert client.post(reverse("logout")).status_code == 302
    assert client.get("/").status_code == 302


def test_lock_out_after_repeated_failures(stage: Stage, client: Client, settings: Any):  # noqa: F811
    settings.AXES_ENABLED = True
    given = {"username": "owner", "password": "wrong"}
    statuses = [
        client.post(reverse("login"), given).status_code
        for _ in range(settings.AXES_FAILURE_LIMIT + 1)
    ]
    assert statuses[0] == 200
    assert statuses[-1] == 429


def test_a_running_search_polls_and_a_finished_one_does_not(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.owner.user)
    url = reverse("runs:tuning", args=[stage.tuning.pk])
    assert b"hx-trigger" not in client.get(url).content
    Tuning.objects.filter(pk=stage.tuning.pk).update(state="running")
    page = client.get(url).content
    assert b'hx-trigger="every 3s"' in page
    assert b'aria-live="polite"' in page


def test_empty_pages_say_what_to_do(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.outsider.user)
    for route in routes():
        if (
            route.name in GET
            and not route.arguments
            and route.name not in ("home", "events:events")
        ):
            text = client.get(reverse(route.name)).content.decode()
            assert "Nothing here yet" in text, route.name


def test_what_is_not_kept_never_looks_billed(stage: Stage):  # noqa: F811
    reason = "host not measurable: the A/A interval is too wide."
    row = Measurement.objects.get(pk=stage.open_review.measurement_id)
    assert uplift_figures(row)[0].label == "Uplift that bills"
    row.kept, row.reason = False, reason
    figures = uplift_figures(row)
    assert figures[0].label == "Lower bound, not billed"
    assert (figures[2].value, figures[2].note) == ("Not kept", "the reason stands above")
    page = render_to_string(
        "portal/parts/measurement.html", {"figures": figures, "measurement": row}
    )
    assert f"<strong>Not kept, so the fee is 0.</strong> {reason}" in page
    line = {**savings_lines(stage.invoice.savings)[0], "kept": False, "reason": reason}
    assert line_formula(line, "EUR") == f"0 EUR, not kept: {reason}"
