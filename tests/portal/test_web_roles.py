"""Owner, colleague, auditor, finance, operator, outsider and host on every route of the url conf.

The table says what each gets; a route that is not in it fails, so a new page cannot be forgotten.
"""

import pytest
from django.test import Client
from django.urls import reverse

from portal.web.navigation import navigation
from tests.portal.web_data import Stage
from tests.portal.web_routes import routes, url_of
from tests.portal.web_stage import stage  # noqa: F401

CAST = ("owner", "colleague", "auditor", "finance", "operator", "outsider", "host")

# Status per member of CAST. The outsider is a customer of another organisation; the host is the
# operator of the operating organisation, who sees machines and work of all, money of none.
EVERYONE = (200, 200, 200, 200, 200, 200, 200)
MONEY_LIST = (200, 200, 200, 200, 403, 200, 403)
MONEY = (200, 200, 200, 200, 403, 404, 403)
MACHINE = (200, 200, 200, 200, 200, 404, 200)
WORK_LIST = (200, 200, 200, 403, 200, 200, 200)
WORK = (200, 200, 200, 403, 200, 404, 200)
MEASURED = (200, 200, 200, 200, 200, 404, 404)

GET = {
    "home": EVERYONE,
    "registry:systems": EVERYONE,
    "registry:system": MACHINE,
    "registry:mixes": EVERYONE,
    "registry:mix": MACHINE,
    "registry:mix-lengths": MACHINE,
    "contracts:contracts": MONEY_LIST,
    "contracts:contract": MONEY,
    "contracts:agreement": MONEY,
    "contracts:break-even": MONEY,
    "runs:baselines": EVERYONE,
    "runs:baseline": MACHINE,
    "runs:baseline-sweep": MACHINE,
    "runs:baseline-run": MACHINE,
    "runs:registry": MACHINE,
    "runs:registry-lines": MACHINE,
    "runs:registry-csv": MACHINE,
    "runs:registry-key": MACHINE,
    "runs:tunings": WORK_LIST,
    "runs:tuning": WORK,
    "runs:tuning-progress": WORK,
    "runs:trials": WORK,
    "runs:measure-request": (200, 200, 403, 403, 403, 404, 403),
    "runs:measurements": EVERYONE,
    "runs:measurement": MEASURED,
    "runs:measurement-pairs": MEASURED,
    "runs:measurement-run": MEASURED,
    "runs:measurement-evidence": (200, 200, 200, 403, 200, 404, 404),
    "runs:jobs": WORK_LIST,
    "runs:job": WORK,
    "runs:job-status": WORK,
    "audits:reviews": EVERYONE,
    "audits:review": MEASURED,
    "audits:statement": MEASURED,
    "audits:envelope": MEASURED,
    "audits:sufficiency": MONEY,
    "billing:usage": MONEY_LIST,
    "billing:usage-batches": MONEY_LIST,
    "billing:usage-batch": MONEY,
    "billing:usage-events": MONEY_LIST,
    "billing:usage-event": MONEY,
    "billing:usage-parked": MONEY_LIST,
    "billing:usage-line": MONEY,
    "billing:savings-list": MONEY_LIST,
    "billing:savings": MONEY,
    "billing:savings-csv": MONEY,
    "billing:invoices": MONEY_LIST,
    "billing:invoice": MONEY,
    "billing:invoice-lines": MONEY,
    "billing:invoice-waterfall-csv": MONEY,
    "billing:sandbox": MONEY,
    "billing:audit": (403, 403, 200, 403, 403, 403, 403),
    "billing:dispute-new": (200, 200, 403, 403, 403, 404, 403),
    "billing:credit-new": (403, 403, 403, 200, 403, 403, 403),
    "billing:disputes": MONEY_LIST,
    "billing:dispute": MONEY,
    "billing:journal": MONEY_LIST,
    "billing:trial-balance": MONEY_LIST,
    "billing:periods": MONEY_LIST,
    "billing:period": MONEY,
    "billing:period-job": MONEY,
    "billing:period-job-status": MONEY,
    "billing:period-checks": MONEY,
    "billing:reconciliation": MONEY,
    "billing:period-csv": MONEY,
    "billing:period-exports": MONEY,
    "documents:files": MONEY_LIST,
    "documents:download": MONEY,
    "documents:report": MONEY,
    "documents:downloads": MONEY_LIST,
    "events:events": (200, 200, 200, 200, 200, 200, 200),
}
# POST with nothing in it: 400 is the form sent back, 302 an act that needs no input, 404 a foreign
# object, 403 a role that may not act.
POST = {
    "switch": (404, 404, 404, 404, 404, 404, 404),
    "contracts:sign": (400, 400, 400, 403, 403, 404, 403),
    "billing:period-open": (403, 403, 403, 400, 403, 403, 403),
    "billing:period-bill": (403, 403, 403, 400, 403, 403, 403),
    "billing:period-close": (403, 403, 403, 400, 403, 403, 403),
    "billing:invoice-exports": (302, 302, 403, 302, 403, 404, 403),
    "runs:measure": (400, 400, 403, 403, 403, 404, 403),
    "billing:audit-confirm": (403, 403, 400, 403, 403, 403, 403),
    "billing:dispute-open": (400, 400, 403, 403, 403, 404, 403),
    "billing:dispute-release": (403, 403, 403, 302, 403, 403, 403),
    "billing:credit": (403, 403, 403, 400, 403, 403, 403),
    "runs:remeasure": (302, 302, 403, 403, 302, 404, 302),
    "billing:usage-decide": (400, 400, 403, 403, 403, 404, 403),
    "billing:usage-send-again": (302, 302, 403, 403, 403, 404, 403),
    "runs:job-cancel": (302, 302, 403, 403, 302, 404, 302),
    "audits:approve": (403, 403, 400, 403, 403, 403, 403),
    "audits:reject": (403, 403, 400, 403, 403, 403, 403),
    "audits:finding": (403, 403, 400, 403, 403, 403, 403),
    "audits:override": (403, 403, 400, 403, 403, 403, 403),
    "audits:resolve": (403, 403, 302, 403, 403, 403, 403),
}
# Open to those who are not signed in; Django's own views with tests of their own below.
PUBLIC = {"login", "logout"}

ROUTES = routes()


def test_every_route_is_in_exactly_one_table():
    names = [route.name for route in ROUTES]
    assert sorted(names) == sorted([*GET, *POST, *PUBLIC])
    assert len(names) == len(set(names))


def test_every_view_asks_for_an_actor():
    forgotten = [r.name for r in ROUTES if r.name not in PUBLIC and not hasattr(r.view, "roles")]
    assert forgotten == []


@pytest.mark.django_db
@pytest.mark.parametrize("who", CAST)
@pytest.mark.parametrize("method", ["get", "post"])
def test_what_each_gets(method: str, who: str, stage: Stage, client: Client):  # noqa: F811
    """Every route of the method against its row of the table."""
    client.force_login(getattr(stage, who).user)
    table = GET if method == "get" else POST
    met = {}
    for route in ROUTES:
        if route.name in table:
            response = getattr(client, method)(url_of(route, stage))
            met[route.name] = response.status_code
            if response.streaming:
                response.getvalue()  # reads to the end, which closes the file behind it
    assert met == {name: row[CAST.index(who)] for name, row in table.items()}


@pytest.mark.django_db
def test_a_visitor_is_sent_to_sign_in(stage: Stage, client: Client):  # noqa: F811
    for route in ROUTES:
        if route.name in GET:
            url = url_of(route, stage)
            response = client.get(url)
            assert (response.status_code, response.url) == (302, f"{reverse('login')}?next={url}")


@pytest.mark.django_db
def test_acts_refuse_get_and_a_missing_token(stage: Stage):  # noqa: F811
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(stage.auditor.user)
    for route in ROUTES:
        if route.name in POST:
            url = url_of(route, stage)
            assert strict.get(url).status_code == 405, route.name
            response = strict.post(url)
            assert response.status_code == 403, route.name
            assert b"The form has expired" in response.content


@pytest.mark.django_db
@pytest.mark.parametrize("who", CAST)
def test_every_link_of_the_side_bar_opens(who: str, stage: Stage, client: Client):  # noqa: F811
    member = getattr(stage, who)
    client.force_login(member.user)
    links = [link for group in navigation(member, "/") for link in group.links]
    assert links
    for link in links:
        assert client.get(link.url).status_code == 200, link


@pytest.mark.django_db
def test_wrong_role_says_what_to_do(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.finance.user)
    response = client.get(reverse("runs:jobs"))
    assert response.status_code == 403
    text = response.content.decode()
    assert "you are signed in as finance of Lumen Search GmbH" in text
    assert "ask a colleague who has it" in text


@pytest.mark.django_db
def test_lists_hold_nothing_of_another_organisation(stage: Stage, client: Client):  # noqa: F811
    client.force_login(stage.outsider.user)
    for route in ROUTES:
        if route.name in GET and not route.arguments:
            text = client.get(reverse(route.name)).content.decode()
            for secret in ("Lumen", "search-eu-1", "LUMEN-1", stage.invoice.number):
                assert secret not in text, (route.name, secret)
