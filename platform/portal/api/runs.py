"""Baselines, searches and measurements."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router
from ninja.pagination import LimitOffsetPagination, paginate

from portal.api.auth import actor_of
from portal.api.schemas import BaselineEntryOut, BaselineOut, ErrorOut, MeasurementOut, TuningOut
from portal.runs import selectors

router = Router(tags=["runs"])


@router.get("/baselines", response=list[BaselineOut], operation_id="list_baselines")
@paginate(LimitOffsetPagination)
def baselines(request: HttpRequest) -> Any:
    """Frozen baselines."""
    return selectors.baseline_list(actor=actor_of(request))


@router.get(
    "/baselines/{baseline_id}",
    response={200: BaselineOut, 404: ErrorOut},
    operation_id="get_baseline",
)
def baseline(request: HttpRequest, baseline_id: UUID) -> Any:
    """One frozen baseline with its sweep table."""
    return selectors.baseline_get(actor=actor_of(request), baseline_id=baseline_id)


@router.get(
    "/baseline-entries", response=list[BaselineEntryOut], operation_id="list_baseline_entries"
)
@paginate(LimitOffsetPagination)
def baseline_entries(request: HttpRequest) -> Any:
    """Signed lines of the registries of baselines, oldest first in each."""
    return selectors.baseline_entry_list(actor=actor_of(request))


@router.get(
    "/baseline-entries/{entry_id}",
    response={200: BaselineEntryOut, 404: ErrorOut},
    operation_id="get_baseline_entry",
)
def baseline_entry(request: HttpRequest, entry_id: UUID) -> Any:
    """One signed line with its figures."""
    return selectors.baseline_entry_get(actor=actor_of(request), entry_id=entry_id)


@router.get("/tunings", response=list[TuningOut], operation_id="list_tunings")
@paginate(LimitOffsetPagination)
def tunings(request: HttpRequest) -> Any:
    """Searches for kernels and what they cost."""
    return selectors.tuning_list(actor=actor_of(request))


@router.get(
    "/tunings/{tuning_id}", response={200: TuningOut, 404: ErrorOut}, operation_id="get_tuning"
)
def tuning(request: HttpRequest, tuning_id: UUID) -> Any:
    """One search."""
    return selectors.tuning_get(actor=actor_of(request), tuning_id=tuning_id)


@router.get("/measurements", response=list[MeasurementOut], operation_id="list_measurements")
@paginate(LimitOffsetPagination)
def measurements(request: HttpRequest) -> Any:
    """Measurements with interval, bound, accuracy and verdict."""
    return selectors.measurement_list(actor=actor_of(request))


@router.get(
    "/measurements/{measurement_id}",
    response={200: MeasurementOut, 404: ErrorOut},
    operation_id="get_measurement",
)
def measurement(request: HttpRequest, measurement_id: UUID) -> Any:
    """One measurement with its pairs."""
    return selectors.measurement_get(actor=actor_of(request), measurement_id=measurement_id)
