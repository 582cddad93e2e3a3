"""What each role sees and may do: one table, asked by every selector and every service.

In: an actor and a subject or an action. Out: a query set cut to what the actor may see, or
`NotAllowed`. Another organisation's row is simply not there (404), never "forbidden". Views hold no
rule of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.http import Http404

from portal.accounts.models import Membership, Organisation, Role

Row = TypeVar("Row", bound=Model)

EVERYONE = frozenset(Role.values)
READERS = frozenset({Role.CUSTOMER, Role.AUDITOR})
ENGINEERS = READERS | {Role.OPERATOR}
PAYERS = READERS | {Role.FINANCE}

# Who sees which kind of row of their own organisation. Finance sees no kernels; operators see no
# money.
SEES: Mapping[str, frozenset[str]] = {
    "organisation": EVERYONE,
    "members": EVERYONE,
    "tokens": EVERYONE,
    "systems": EVERYONE,
    "models": EVERYONE,
    "mixes": EVERYONE,
    "prices": PAYERS,
    "contracts": PAYERS,
    "jobs": ENGINEERS,
    "baselines": EVERYONE,
    "tunings": ENGINEERS,
    "packages": ENGINEERS,
    "measurements": EVERYONE,
    "reviews": EVERYONE,
    "usage": PAYERS,
    "billing": PAYERS,
    "reports": PAYERS,
    "downloads": PAYERS,
    "events": ENGINEERS | {Role.FINANCE},
}

# What an operator of the operating organisation sees of every organisation.
OPERATORS_SEE_ALL = frozenset(
    {"organisation", "jobs", "systems", "models", "mixes", "baselines", "tunings", "packages"}
)

# Who may do what in their own organisation. Anything not named here, nobody may.
MAY: Mapping[str, frozenset[str]] = {
    "member.add": frozenset({Role.CUSTOMER}),
    "token.create": EVERYONE,
    "token.revoke": EVERYONE,
    "system.register": frozenset({Role.CUSTOMER, Role.OPERATOR}),
    "model.register": frozenset({Role.CUSTOMER}),
    "mix.register": frozenset({Role.CUSTOMER}),
    "price_book.publish": frozenset({Role.CUSTOMER, Role.FINANCE}),
    "contract.draft": frozenset({Role.CUSTOMER}),
    "plan.sign": READERS,
    "party_key.register": READERS,
    # A search is paid for, and what runs today is the customer's to state.
    "measurement.request": frozenset({Role.CUSTOMER}),
    "job.request": frozenset({Role.CUSTOMER, Role.OPERATOR}),
    "job.cancel": frozenset({Role.CUSTOMER, Role.OPERATOR}),
    "auditor_key.register": frozenset({Role.AUDITOR}),
    "review.decide": frozenset({Role.AUDITOR}),
    "finding.raise": frozenset({Role.AUDITOR}),
    "sufficiency.override": frozenset({Role.AUDITOR}),
    "usage.ingest": frozenset({Role.CUSTOMER}),
    # Only the customer knows what their gateway meant. Finance bills by it and the auditor attests
    # to it, so neither decides; both see the decision, and the evidence carries it.
    "usage.decide": frozenset({Role.CUSTOMER}),
    "savings.verify": frozenset({Role.AUDITOR}),
    "invoice.issue": frozenset({Role.FINANCE}),
    "bill.request": frozenset({Role.FINANCE}),
    "period.close": frozenset({Role.FINANCE}),
    "invoice.credit": frozenset({Role.FINANCE}),
    "invoice.audit": frozenset({Role.AUDITOR}),
    "dispute.open": frozenset({Role.CUSTOMER}),
    "dispute.resolve": frozenset({Role.FINANCE}),
    "export.write": frozenset({Role.FINANCE, Role.CUSTOMER}),
    "file.download": EVERYONE,
}


class NotAllowed(Exception):
    """The actor's role does not permit this action."""


@dataclass(frozen=True)
class Platform:
    """The platform itself acting for one organisation, inside a job someone asked for."""

    organisation: Organisation
    requested_by: User | None = None

    @property
    def user(self) -> User | None:
        """The person who asked for the work, if anybody did."""
        return self.requested_by


Actor = Membership | Platform


def scope(actor: Membership, rows: QuerySet[Row], subject: str) -> QuerySet[Row]:
    """Cut `rows` to what `actor` may see of `subject`; nothing when access has expired.

    `rows` must have an `organisation` column. KeyError for a subject that is not in SEES.
    """
    roles = SEES[subject]
    if not actor.is_active() or actor.role not in roles:
        return rows.none()
    if (
        actor.role == Role.OPERATOR
        and actor.organisation.is_operating
        and subject in OPERATORS_SEE_ALL
    ):
        return rows
    return rows.filter(organisation=actor.organisation)


def get_or_404(rows: QuerySet[Row], pk: Any) -> Row:
    """Return the row with primary key `pk` from `rows`, or raise Http404 (also for a bad id)."""
    try:
        found = rows.filter(pk=pk).first()
    except (ValueError, TypeError, OverflowError, ValidationError) as error:
        raise Http404(f"no such {rows.model._meta.verbose_name}") from error
    if found is None:
        raise Http404(f"no such {rows.model._meta.verbose_name}")
    return found


def sees(actor: Membership, subject: str) -> bool:
    """Whether the actor's role sees this kind of row at all (for menus and empty pages)."""
    return actor.is_active() and actor.role in SEES[subject]


def may(actor: Actor, action: str) -> bool:
    """Whether the actor may do `action` in their own organisation."""
    if isinstance(actor, Platform):
        return True
    return actor.is_active() and actor.role in MAY[action]


def require(actor: Actor, action: str, organisation: Organisation) -> None:
    """Raise NotAllowed unless the actor may do `action`; Http404 for a foreign organisation."""
    if organisation.pk != actor.organisation.pk and not (
        isinstance(actor, Membership)
        and actor.role == Role.OPERATOR
        and actor.organisation.is_operating
        and action.startswith("job.")
    ):
        raise Http404("no such object")
    if not may(actor, action):
        role = actor.role if isinstance(actor, Membership) else "platform"
        allowed = ", ".join(sorted(MAY[action]))
        raise NotAllowed(f"{action}: role {role} may not; it takes one of: {allowed}")
