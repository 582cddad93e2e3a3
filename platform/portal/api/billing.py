"""Savings, invoices, disputes: the same rows and digits as on the pages and in the exports."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.pagination import LimitOffsetPagination, paginate

from portal.api.auth import actor_of
from portal.api.schemas import DisputeOut, ErrorOut, InvoiceOut, OverrideOut, SavingsOut
from portal.audits.selectors import override_get, override_list
from portal.billing import selectors

router = Router(tags=["billing"])


@router.get("/savings", response=list[SavingsOut], operation_id="list_savings")
@paginate(LimitOffsetPagination)
def savings(request: HttpRequest) -> Any:
    """Savings per period."""
    return selectors.savings_list(actor=actor_of(request))


@router.get(
    "/savings/{savings_id}", response={200: SavingsOut, 404: ErrorOut}, operation_id="get_savings"
)
def saving(request: HttpRequest, savings_id: UUID) -> Any:
    """One period's savings with the fee's steps."""
    return selectors.savings_get(actor=actor_of(request), savings_id=savings_id)


@router.get("/invoices", response=list[InvoiceOut], operation_id="list_invoices")
@paginate(LimitOffsetPagination)
def invoices(request: HttpRequest) -> Any:
    """Issued invoices."""
    return selectors.invoice_list(actor=actor_of(request))


@router.get(
    "/invoices/{invoice_id}", response={200: InvoiceOut, 404: ErrorOut}, operation_id="get_invoice"
)
def invoice(request: HttpRequest, invoice_id: UUID) -> Any:
    """One issued invoice: the frozen document."""
    return selectors.invoice_get(actor=actor_of(request), invoice_id=invoice_id)


@router.get("/disputes", response=list[DisputeOut], operation_id="list_disputes")
@paginate(LimitOffsetPagination)
def disputes(request: HttpRequest) -> Any:
    """Disputes of invoices."""
    return selectors.dispute_list(actor=actor_of(request))


@router.get(
    "/disputes/{dispute_id}", response={200: DisputeOut, 404: ErrorOut}, operation_id="get_dispute"
)
def dispute(request: HttpRequest, dispute_id: UUID) -> Any:
    """One dispute: its lines and how the payable is split."""
    return selectors.dispute_get(actor=actor_of(request), dispute_id=dispute_id)


@router.get(
    "/sufficiency-overrides",
    response=list[OverrideOut],
    operation_id="list_sufficiency_overrides",
)
@paginate(LimitOffsetPagination)
def overrides(request: HttpRequest) -> Any:
    """Auditors' overrides of rules of sufficiency; what was examined stands in the savings."""
    return override_list(actor=actor_of(request))


@router.get(
    "/sufficiency-overrides/{override_id}",
    response={200: OverrideOut, 404: ErrorOut},
    operation_id="get_sufficiency_override",
)
def override(request: HttpRequest, override_id: UUID) -> Any:
    """One override, as it was stated."""
    return override_get(actor=actor_of(request), override_id=override_id)
