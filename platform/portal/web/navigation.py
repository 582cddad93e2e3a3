"""What the side bar offers to each role, in the order the work goes.

In: an actor. Out: titled groups of links, each only where `portal.accounts.access` lets the role
see the subject; `tests/portal/test_web_roles.py` opens every link of every role and expects a page.
"""

from dataclasses import dataclass

from django.urls import reverse

from portal.accounts.access import sees
from portal.accounts.models import Membership

# (group, ((link, route, subject the role must see), ...))
LAYOUT: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    ("", (("Dashboard", "home", "organisation"),)),
    (
        "Set up",
        (
            ("Systems", "registry:systems", "systems"),
            ("Model mixes", "registry:mixes", "mixes"),
            ("Contracts and plans", "contracts:contracts", "contracts"),
        ),
    ),
    (
        "Measure",
        (
            ("Baselines", "runs:baselines", "baselines"),
            ("Kernel search", "runs:tunings", "tunings"),
            ("Uplift", "runs:measurements", "measurements"),
            ("Audit", "audits:reviews", "reviews"),
        ),
    ),
    (
        "Bill",
        (
            ("Periods", "billing:periods", "billing"),
            ("Usage", "billing:usage", "usage"),
            ("Savings", "billing:savings-list", "billing"),
            ("Invoices", "billing:invoices", "billing"),
            ("Disputes", "billing:disputes", "billing"),
            ("Journal", "billing:journal", "billing"),
            ("Trial balance", "billing:trial-balance", "billing"),
        ),
    ),
    (
        "Keep",
        (
            ("Downloads", "documents:files", "reports"),
            ("Jobs", "runs:jobs", "jobs"),
            ("Audit trail", "events:events", "events"),
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


def navigation(actor: Membership, path: str) -> tuple[Group, ...]:
    """The groups an actor sees; the link whose page (or a page below it) is open is marked."""
    groups = []
    for title, entries in LAYOUT:
        pairs = [(name, reverse(route)) for name, route, subject in entries if sees(actor, subject)]
        links = tuple(
            Link(name, url, path == url or (url != "/" and path.startswith(url)))
            for name, url in pairs
        )
        if links:
            groups.append(Group(title, links))
    return tuple(groups)
