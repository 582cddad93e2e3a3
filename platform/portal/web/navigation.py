"""What the side bar offers to each role, in the order the work goes.

A link is offered only to roles whose views let them in; `tests/portal/test_web_roles.py` opens every
link of every role and expects a page.
"""

from dataclasses import dataclass

from django.urls import reverse

from portal.accounts.models import Role

CUSTOMER, AUDITOR = Role.CUSTOMER.value, Role.AUDITOR.value
FINANCE, OPERATOR = Role.FINANCE.value, Role.OPERATOR.value

# Who works with machines and kernels, and who with money. Finance has no access to kernels.
TECHNICAL = (CUSTOMER, AUDITOR, OPERATOR)
MONEY = (CUSTOMER, AUDITOR, FINANCE, OPERATOR)

LAYOUT: tuple[tuple[str, tuple[tuple[str, str, tuple[str, ...]], ...]], ...] = (
    ("", (("Dashboard", "home", MONEY),)),
    (
        "Set up",
        (
            ("Systems", "registry:systems", TECHNICAL),
            ("Model mixes", "registry:mixes", TECHNICAL),
            ("Plans and contracts", "contracts:contracts", MONEY),
        ),
    ),
    (
        "Measure",
        (
            ("Baselines", "runs:baselines", TECHNICAL),
            ("Kernel search", "runs:tunings", TECHNICAL),
            ("Uplift", "runs:measurements", TECHNICAL),
            ("Audit", "audits:reviews", TECHNICAL),
        ),
    ),
    (
        "Bill",
        (
            ("Usage", "billing:usage", MONEY),
            ("Savings", "billing:savings", MONEY),
            ("Invoices", "billing:invoices", MONEY),
        ),
    ),
    (
        "Keep",
        (
            ("Downloads", "documents:downloads", MONEY),
            ("Audit trail", "events:events", MONEY),
            ("Jobs", "runs:jobs", (CUSTOMER, OPERATOR)),
        ),
    ),
)


@dataclass(frozen=True)
class Link:
    """One line of the side bar."""

    title: str
    url: str
    current: bool


@dataclass(frozen=True)
class Group:
    """A titled set of links."""

    title: str
    links: tuple[Link, ...]


def navigation(role: str, path: str) -> tuple[Group, ...]:
    """The groups a role sees; the link whose page (or a page below it) is open is marked."""
    groups = []
    for title, entries in LAYOUT:
        links = tuple(
            Link(name, url, path == url or (url != "/" and path.startswith(url)))
            for name, url in (
                (name, reverse(route)) for name, route, roles in entries if role in roles
            )
        )
        if links:
            groups.append(Group(title, links))
    return tuple(groups)
