"""Periods of contracts and their closes: state in words, totals of the books, what was frozen."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.pagination import LimitOffsetPagination, paginate

from portal.api.auth import actor_of
from portal.api.schemas import ErrorOut
from portal.api.schemas_periods import CloseOut, PeriodDetailOut, PeriodOut
from portal.billing import selectors
from portal.billing.periods import month_list, month_of

router = Router(tags=["billing"])


@router.get("/periods", response=list[PeriodOut], operation_id="list_periods")
@paginate(LimitOffsetPagination)
def periods(request: HttpRequest) -> Any:
    """Opened periods with their state, newest first."""
    return [month for month in month_list(actor=actor_of(request)) if month.period is not None]


@router.get(
    "/periods/{period_id}",
    response={200: PeriodDetailOut, 404: ErrorOut},
    operation_id="get_period",
)
def period(request: HttpRequest, period_id: UUID) -> Any:
    """One period with rows, sums and digests of its books, counted anew; usage is on its close."""
    actor = actor_of(request)
    shown = selectors.period_get(actor=actor, period_id=period_id)
    return month_of(actor=actor, period=shown)


@router.get("/period-closes", response=list[CloseOut], operation_id="list_period_closes")
@paginate(LimitOffsetPagination)
def closes(request: HttpRequest) -> Any:
    """Closes of periods, newest first."""
    return selectors.close_list(actor=actor_of(request))


@router.get(
    "/period-closes/{close_id}",
    response={200: CloseOut, 404: ErrorOut},
    operation_id="get_period_close",
)
def close(request: HttpRequest, close_id: UUID) -> Any:
    """One close: the frozen totals, documents, exports and checks."""
    return selectors.close_get(actor=actor_of(request), close_id=close_id)
