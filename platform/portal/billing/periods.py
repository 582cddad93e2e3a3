"""Every month of every signed contract: its state in words, what blocks it, who must act.

In: an actor. Out: frozen rows, newest month first. A state is read from stored rows each time and
kept nowhere. Months that nobody opened are named too: a month that is not there is not forgotten.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.db.models.fields.json import KT
from django.utils import timezone

from metering.decimals import to_text
from metering.money import quantize
from metering.plan import Period
from portal.accounts.access import scope
from portal.accounts.models import Membership
from portal.audits.models import Review
from portal.audits.selectors import review_list
from portal.billing.models import BillingPeriod, Correction, Dispute, Invoice
from portal.billing.posting import DAY_LABEL, version_in_force
from portal.billing.selectors import (
    invoice_list,
    period_list,
    savings_list,
    usage_event_list,
)
from portal.contracts.models import ContractVersion
from portal.web.formats import instant

FINANCE, AUDITOR, CUSTOMER, NOBODY = "finance", "auditor", "customer", "nobody"


class State(StrEnum):
    """How far a period has come. Its value is the word a page shows."""

    NOT_ENDED = "not ended"
    OPEN = "open"
    MEASURED = "measured"
    COMPUTED = "savings computed"
    ISSUED = "issued"
    DISPUTED = "disputed"
    SETTLED = "settled"
    CLOSED = "closed"


@dataclass(frozen=True)
class Standing:
    """A state, since when, why in words; what comes next and who must do it."""

    state: State
    since: datetime | None
    why: str
    next: str
    who: str


@dataclass(frozen=True)
class Facts:
    """What is stored about one period. None: not there. `skipped`: a later one is computed."""

    now: datetime
    end: datetime
    period: BillingPeriod | None = None
    savings_at: datetime | None = None
    invoice: Invoice | None = None
    holdback: Decimal = Decimal(0)
    disputed_at: datetime | None = None
    audited_at: datetime | None = None
    closed_at: datetime | None = None
    approved_at: datetime | None = None
    last_usage: datetime | None = None
    start: datetime | None = None
    skipped: bool = False


@dataclass(frozen=True)
class Month:
    """One period of one contract. `period` is None while nobody has opened it."""

    version: ContractVersion
    span: Period
    period: BillingPeriod | None
    invoice: Invoice | None
    standing: Standing
    skipped: bool = False

    @property
    def label(self) -> str:
        """The period's label."""
        return self.span.label

    @property
    def may_be_opened(self) -> bool:
        """Whether opening it is a step that is missing."""
        return self.period is None and not self.skipped


def standing_of(facts: Facts) -> Standing:
    """The state of a period; the latest thing that happened to it decides."""
    if facts.closed_at is not None:
        return Standing(
            State.CLOSED, facts.closed_at, "its books are frozen",
            "nothing: corrections are posted in the next open period", NOBODY,
        )  # fmt: skip
    if facts.invoice is not None:
        return _issued(facts, facts.invoice)
    if facts.savings_at is not None:
        return Standing(
            State.COMPUTED, facts.savings_at, "savings and fee are frozen",
            "issue the invoice", FINANCE,
        )  # fmt: skip
    if facts.skipped:
        return _skipped(facts)
    if facts.now < facts.end:
        return _running(facts)
    if facts.period is None:
        return Standing(
            State.OPEN, facts.end, "it has ended and nobody has opened it",
            "open the period", FINANCE,
        )  # fmt: skip
    if facts.approved_at is not None:
        return Standing(
            State.MEASURED, facts.approved_at, "an approved measurement is there",
            "compute the savings and issue the invoice", FINANCE,
        )  # fmt: skip
    return Standing(
        State.OPEN, facts.end, "no measurement of the contract is approved",
        "approve or reject the measurement", AUDITOR,
    )  # fmt: skip


def _skipped(facts: Facts) -> Standing:
    why = "a later period is computed and periods go in order: it bills nothing any more"
    if facts.period is None:
        return Standing(
            State.OPEN, facts.end, why,
            "nothing; its usage can be billed as a line that corrects it", NOBODY,
        )  # fmt: skip
    return Standing(State.OPEN, facts.end, why, "close the period", FINANCE)


def _issued(facts: Facts, invoice: Invoice) -> Standing:
    payable = to_text(quantize(invoice.gross, invoice.currency))
    amount = f"{invoice.number}, {payable} {invoice.currency}"
    if facts.disputed_at is not None:
        return Standing(
            State.DISPUTED, facts.disputed_at, f"lines of {invoice.number} are contested",
            "release the dispute or credit its lines", FINANCE,
        )  # fmt: skip
    if facts.audited_at is not None:
        return Standing(
            State.SETTLED, facts.audited_at, f"{amount}: the audit has settled it",
            "close the period", FINANCE,
        )  # fmt: skip
    if not facts.holdback:
        return Standing(
            State.SETTLED, invoice.issued_at, f"{amount}: nothing is held back",
            "close the period", FINANCE,
        )  # fmt: skip
    return Standing(
        State.ISSUED, invoice.issued_at, f"{amount}: its holdback waits for the audit",
        "close the period; the audit's document may also come after that", FINANCE,
    )  # fmt: skip


def _running(facts: Facts) -> Standing:
    wait = f"wait until {instant(facts.end)}; savings are computed after the end"
    arriving = (
        facts.start is not None
        and facts.last_usage is not None
        and facts.start <= facts.last_usage < facts.end
    )
    if arriving:
        why = f"usage is arriving, the last of {instant(facts.last_usage)}"
        return Standing(State.OPEN, facts.start, why, wait, NOBODY)
    if facts.period is not None:
        why = "opened; no usage yet"
        return Standing(State.OPEN, facts.period.created_at, why, wait, NOBODY)
    return Standing(State.NOT_ENDED, facts.start, "it runs; no usage yet", wait, NOBODY)


def month_list(*, actor: Membership, now: datetime | None = None) -> list[Month]:
    """Every month of the signed contracts the actor sees, newest first."""
    moment = now or timezone.now()
    signed = ContractVersion.objects.filter(status=ContractVersion.Status.SIGNED)
    versions: dict[str, list[ContractVersion]] = defaultdict(list)
    for version in scope(actor, signed, "contracts").order_by("contract_id", "version"):
        versions[version.contract_id].append(version)
    known = _Known(actor)
    found = [
        _month(group, span, known, moment)
        for group in versions.values()
        for span in _spans(group, known.periods.get(group[0].contract_id, {}), moment)
    ]
    return sorted(found, key=lambda month: (month.span.start, month.version.contract_id))[::-1]


def month_of(*, actor: Membership, period: BillingPeriod, now: datetime | None = None) -> Month:
    """One opened period as `month_list` shows it."""
    version = period.contract_version
    span = span_of(period)
    return _month([version], span, _Known(actor, period), now or timezone.now())


def span_of(period: BillingPeriod) -> Period:
    """The engine's period of a row."""
    return Period(period.label, period.zone, period.starts_at, period.ends_at)


class _Known:
    """The rows behind the states, read once for all months."""

    def __init__(self, actor: Membership, only: BillingPeriod | None = None) -> None:
        rows = period_list(actor=actor).select_related("contract_version", "close", "savings")
        rows = rows.defer("savings__document", "savings__usage", "close__document")
        invoices = invoice_list(actor=actor).filter(kind=Invoice.Kind.INVOICE, live=True)
        invoices = invoices.select_related(None).defer("document")
        disputes = Dispute.objects.filter(outcome=Dispute.Outcome.OPEN)
        audits = Correction.objects.filter(kind=Correction.Kind.AUDIT)
        reviews = review_list(actor=actor).filter(state=Review.State.APPROVED)
        if only is not None:
            rows = rows.filter(pk=only.pk)
            invoices = invoices.filter(period=only)
            disputes, audits = (x.filter(invoice__period=only) for x in (disputes, audits))
        self.periods: dict[str, dict[str, BillingPeriod]] = defaultdict(dict)
        for row in rows:
            self.periods[row.contract_id][row.label] = row
        computed = savings_list(actor=actor).order_by("period__starts_at")
        # Of each contract the start of the latest period that is computed.
        self.computed: dict[str, datetime] = dict(
            computed.values_list("period__contract_id", "period__starts_at")
        )
        self.invoices: Mapping[object, Any] = {
            row.period_id: row for row in invoices.annotate(held=KT("document__holdback"))
        }
        self.disputed = dict(
            scope(actor, disputes, "billing").values_list("invoice_id", "created_at")
        )
        self.audited = dict(scope(actor, audits, "billing").values_list("invoice_id", "created_at"))
        self.approved = dict(
            reviews.order_by("decided_at").values_list(
                "measurement__contract_version__contract_id", "decided_at"
            )
        )
        self.last_usage = (
            usage_event_list(actor=actor).order_by("-time").values_list("time", flat=True).first()
        )


def _month(
    versions: Sequence[ContractVersion], span: Period, known: _Known, now: datetime
) -> Month:
    contract_id = versions[0].contract_id
    period = known.periods.get(contract_id, {}).get(span.label)
    invoice = known.invoices.get(period.pk) if period else None
    savings = getattr(period, "savings", None)
    skipped = savings is None and known.computed.get(contract_id, span.start) > span.start
    close = getattr(period, "close", None)
    facts = Facts(
        now=now,
        start=span.start,
        end=span.end,
        period=period,
        savings_at=savings.created_at if savings else None,
        invoice=invoice,
        holdback=Decimal(invoice.held) if invoice else Decimal(0),
        disputed_at=known.disputed.get(invoice.pk) if invoice else None,
        audited_at=known.audited.get(invoice.pk) if invoice else None,
        closed_at=close.created_at if close else None,
        approved_at=known.approved.get(contract_id),
        last_usage=known.last_usage,
        skipped=skipped,
    )
    version = period.contract_version if period else version_in_force(versions, span.start)
    return Month(version or versions[0], span, period, invoice, standing_of(facts), skipped)


def _spans(
    versions: Sequence[ContractVersion], rows: Mapping[str, BillingPeriod], now: datetime
) -> Iterable[Period]:
    """Every period from the contract's start to the one that runs now, and those opened besides."""
    first = versions[0].contract
    zone = str(first["zone"])
    found = {label: span_of(row) for label, row in rows.items()}
    anchors = sorted(label for label in rows if len(label) == DAY_LABEL)
    if anchors:
        start = date.fromisoformat(anchors[0])
        ahead = (now.year - start.year) * 12 + now.month - start.month + 1
        for span in Period.anchored(start, max(ahead, 1), zone):
            if span.start <= now:
                found.setdefault(span.label, span)
        return found.values()
    span = Period.month_of(datetime.fromisoformat(first["valid_from"]), zone)
    while span.start <= now:
        found.setdefault(span.label, span)
        span = span.next_month()
    return found.values()
