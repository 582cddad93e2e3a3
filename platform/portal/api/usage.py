"""Usage: CloudEvents in, a fate for each out.

Accepts a CloudEvents batch (`application/cloudevents-batch+json`, also plain JSON), one event
(`application/cloudevents+json`) or JSON lines (`application/x-ndjson`). The portal stamps the time
of receipt. Sending a delivery again is safe: every event of it is then a duplicate.
"""

import json
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status
from ninja.pagination import LimitOffsetPagination, paginate

from metering import canonical
from metering.refusal import Refusal
from portal.api.auth import TokenAuth, actor_of
from portal.api.schemas import ErrorOut, FateOut, UsageBatchOut, UsageReceipt
from portal.billing import selectors
from portal.billing.usage import usage_ingest

MAX_EVENTS = 20_000
LINES = ("application/x-ndjson", "application/jsonl")

router = Router(tags=["usage"])


@router.post(
    "/usage/events",
    auth=TokenAuth("usage:write"),
    response={200: UsageReceipt, 413: ErrorOut, 422: ErrorOut},
    operation_id="send_usage",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/cloudevents-batch+json": {
                    "schema": {"type": "array", "items": {"type": "object"}}
                },
                "application/cloudevents+json": {"schema": {"type": "object"}},
                "application/x-ndjson": {"schema": {"type": "string"}},
            },
        }
    },
)
def send_usage(request: HttpRequest) -> Any:
    """Store a delivery of usage events; the answer tells what became of each, in order."""
    actor = actor_of(request)
    try:
        lines = _lines(request.body, request.content_type or "")
    except Refusal as refusal:
        return Status(422, {"error": str(refusal)})
    if len(lines) > MAX_EVENTS:
        return Status(
            413,
            {
                "error": f"events: got {len(lines)}; wanted at most {MAX_EVENTS} in one delivery;"
                " send several"
            },
        )
    batch, fates = usage_ingest(
        actor=actor,
        organisation=actor.organisation,
        lines=lines,
        via="api",
        received_at=timezone.now().replace(microsecond=0),
    )
    told = [
        FateOut(line=f.line, fate=f.fate, reason=f.reason, source=f.source, id=f.event_id)
        for f in fates
    ]
    return Status(200, {"batch": batch, "fates": told})


def _lines(body: bytes, content_type: str) -> list[str]:
    """One event a line; Refusal for a body that is not what its type says."""
    if content_type in LINES:
        try:
            return body.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise Refusal("body", "bytes that are not UTF-8", "UTF-8 JSON lines") from error
    document = canonical.loads(body)
    events = document if isinstance(document, list) else [document]
    return [json.dumps(event, separators=(",", ":"), ensure_ascii=False) for event in events]


@router.get("/usage/batches", response=list[UsageBatchOut], operation_id="list_usage_batches")
@paginate(LimitOffsetPagination)
def batches(request: HttpRequest) -> Any:
    """Deliveries and what became of their lines."""
    return selectors.usage_batch_list(actor=actor_of(request))


@router.get(
    "/usage/batches/{batch_id}",
    response={200: UsageBatchOut, 404: ErrorOut},
    operation_id="get_usage_batch",
)
def batch(request: HttpRequest, batch_id: UUID) -> Any:
    """One delivery."""
    return selectors.usage_batch_get(actor=actor_of(request), batch_id=batch_id)
