"""What the API says about periods. Sums are decimal text by currency or unit, times are UTC."""

from datetime import datetime
from typing import Any
from uuid import UUID

from ninja import Schema

from portal.billing.posting import invoices_of
from portal.billing.reconciliation import totals_of


class PeriodOut(Schema):
    id: UUID
    contract_id: str
    contract_version_id: UUID
    label: str
    zone: str
    starts_at: datetime
    ends_at: datetime
    state: str
    since: datetime | None
    why: str
    next: str
    who: str
    invoice: str | None

    @staticmethod
    def resolve_id(row: Any) -> UUID:
        return row.period.pk  # type: ignore[no-any-return]

    @staticmethod
    def resolve_contract_id(row: Any) -> str:
        return str(row.version.contract_id)

    @staticmethod
    def resolve_contract_version_id(row: Any) -> UUID:
        return row.version.pk  # type: ignore[no-any-return]

    @staticmethod
    def resolve_zone(row: Any) -> str:
        return str(row.span.zone)

    @staticmethod
    def resolve_starts_at(row: Any) -> datetime:
        return row.span.start  # type: ignore[no-any-return]

    @staticmethod
    def resolve_ends_at(row: Any) -> datetime:
        return row.span.end  # type: ignore[no-any-return]

    @staticmethod
    def resolve_state(row: Any) -> str:
        return str(row.standing.state.value)

    @staticmethod
    def resolve_since(row: Any) -> datetime | None:
        return row.standing.since  # type: ignore[no-any-return]

    @staticmethod
    def resolve_why(row: Any) -> str:
        return str(row.standing.why)

    @staticmethod
    def resolve_next(row: Any) -> str:
        return str(row.standing.next)

    @staticmethod
    def resolve_who(row: Any) -> str:
        return str(row.standing.who)

    @staticmethod
    def resolve_invoice(row: Any) -> str | None:
        return None if row.invoice is None else str(row.invoice.number)


class TotalsOut(Schema):
    name: str
    rows: int
    sums: dict[str, str]
    sha256: str


class PeriodDetailOut(PeriodOut):
    totals: list[TotalsOut]

    @staticmethod
    def resolve_totals(row: Any) -> list[dict[str, object]]:
        documents = list(invoices_of(row.period).select_related("period"))
        found = totals_of(row.period, documents)
        return [{"name": name, **totals.to_json()} for name, totals in found.items()]


class CloseOut(Schema):
    id: UUID
    period_id: UUID
    contract_id: str
    label: str
    closed_at: datetime
    note: str
    document: dict[str, Any]
    sha256: str

    @staticmethod
    def resolve_contract_id(row: Any) -> str:
        return str(row.period.contract_id)

    @staticmethod
    def resolve_label(row: Any) -> str:
        return str(row.period.label)

    @staticmethod
    def resolve_closed_at(row: Any) -> datetime:
        return row.created_at  # type: ignore[no-any-return]
