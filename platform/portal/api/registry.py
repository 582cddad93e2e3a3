"""Systems and model mixes."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.pagination import LimitOffsetPagination, paginate

from portal.api.auth import actor_of
from portal.api.schemas import ErrorOut, MixOut, SystemOut
from portal.registry import selectors

router = Router(tags=["registry"])


@router.get("/systems", response=list[SystemOut], operation_id="list_systems")
@paginate(LimitOffsetPagination)
def systems(request: HttpRequest) -> Any:
    """Every revision of every registered machine."""
    return selectors.system_list(actor=actor_of(request))


@router.get(
    "/systems/{system_id}", response={200: SystemOut, 404: ErrorOut}, operation_id="get_system"
)
def system(request: HttpRequest, system_id: UUID) -> Any:
    """One machine revision."""
    return selectors.system_get(actor=actor_of(request), system_id=system_id)


@router.get("/mixes", response=list[MixOut], operation_id="list_mixes")
@paginate(LimitOffsetPagination)
def mixes(request: HttpRequest) -> Any:
    """Model mixes with their traffic."""
    return selectors.mix_list(actor=actor_of(request))


@router.get("/mixes/{mix_id}", response={200: MixOut, 404: ErrorOut}, operation_id="get_mix")
def mix(request: HttpRequest, mix_id: UUID) -> Any:
    """One model mix."""
    return selectors.mix_get(actor=actor_of(request), mix_id=mix_id)
