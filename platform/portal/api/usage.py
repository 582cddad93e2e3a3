"""Usage: CloudEvents in, a fate for each out.

Accepts CloudEvents 1.0 over HTTP in all three content modes: a batch
(`application/cloudevents-batch+json`, also plain JSON), one structured event
(`application/cloudevents+json`) and one binary event (`ce-` headers, the data as body); and JSON
lines (`application/x-ndjson`). The portal stamps the time of receipt. Sending a delivery again is
safe: every event of it is then a duplicate. One event whose id came with other content before is
answered with 409; in a batch its fate says conflict, and the other events are stored.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status
from ninja.pagination import LimitOffsetPagination, paginate

from metering import canonical
from metering.refusal import Refusal
from portal.api.auth import TokenAuth, actor_of
from portal.api.schemas import ErrorOut, UsageAsked, UsageBatchOut, UsageReceipt, VolumesOut
from portal.billing import selectors
from portal.billing.usage import usage_ingest
from portal.billing.usage_forms import UsageForm
from portal.billing.usage_reads import parked_counts, table_of
from portal.billing.usage_words import fate_lines, volume_rows

MAX_EVENTS = 20_000
LINES = ("application/x-ndjson", "application/jsonl")

router = Router(tags=["usage"])


@router.post(
    "/usage/events",
    auth=TokenAuth("usage:write"),
    response={200: UsageReceipt, 409: UsageReceipt, 413: ErrorOut, 422: ErrorOut},
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
        lines, single = _lines(request.body, request.content_type or "", request.headers)
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
    conflict = single and any(fate.fate == "conflict" for fate in fates)
    # Thousands of fates were made here a moment ago: they are written, not validated again.
    receipt = {
        "batch": UsageBatchOut.from_orm(batch).model_dump(mode="json"),
        "fates": [
            {"line": f.line, "fate": f.fate, "reason": f.reason, "source": f.source,
             "id": f.event_id}
            for f in fates
        ],
    }  # fmt: skip
    return HttpResponse(
        json.dumps(receipt), status=409 if conflict else 200, content_type="application/json"
    )


def _lines(body: bytes, content_type: str, headers: Mapping[str, str]) -> tuple[list[str], bool]:
    """One event a line, and whether it is a single one; Refusal when the body is not its type."""
    if content_type in LINES:
        return _text(body).split("\n"), False
    if "ce-specversion" in headers and not content_type.startswith("application/cloudevents"):
        return [_binary(body, content_type, headers)], True
    document = canonical.loads(body)
    if not isinstance(document, list):
        return [json.dumps(document, separators=(",", ":"))], True
    return _elements(_text(body), document), False


def _elements(text: str, document: list[object]) -> list[str]:
    """The text of each element of a JSON array, as it came where it stands on one line."""
    decoder = json.JSONDecoder()
    found = []
    place = text.index("[") + 1
    for value in document:
        while text[place] in " \t\r\n,":
            place += 1
        _, end = decoder.raw_decode(text, place)
        element = text[place:end]
        if "\n" in element or "\r" in element:
            element = json.dumps(value, separators=(",", ":"))
        found.append(element)
        place = end
    return found


def _binary(body: bytes, content_type: str, headers: Mapping[str, str]) -> str:
    """An event in binary content mode as structured JSON: attributes are percent-coded headers."""
    event: dict[str, object] = {
        name[3:].lower(): _attribute(name, value)
        for name, value in headers.items()
        if name.lower().startswith("ce-")
    }
    if content_type:
        event["datacontenttype"] = content_type
    event["data"] = canonical.loads(body)
    return json.dumps(event, separators=(",", ":"))


def _attribute(name: str, value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise Refusal(name, repr(value), "percent-coded UTF-8") from error


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal("body", "bytes that are not UTF-8", "UTF-8 JSON") from error


@router.get(
    "/usage/volumes",
    response={200: VolumesOut, 403: ErrorOut, 422: ErrorOut},
    operation_id="get_usage_volumes",
)
def volumes(request: HttpRequest, asked: Query[UsageAsked]) -> Any:
    """Accepted work by day (by hour up to three days), model and system; every fate's count."""
    actor, now = actor_of(request), timezone.now()
    form = UsageForm(asked.model_dump(), actor=actor, now=now)
    if not form.is_valid():
        named = form.errors.get_json_data()
        told = [f"{name}: {item['message']}" for name, items in named.items() for item in items]
        return Status(422, {"error": "; ".join(told)})
    query = form.query
    table = table_of(actor, query, now)
    fates = fate_lines(query, table, parked_counts(actor=actor, query=query))
    return {
        "start": query.range.start,
        "end": query.range.end,
        "zone": query.range.zone,
        "step": "hour" if query.range.hourly else "day",
        "rows": volume_rows(table),
        "samples": table.samples,
        "events": table.events,
        "hours_ended": table.hours_ended,
        "hours_without_usage": table.hours_missing,
        "fates": {line.fate: line.lines for line in fates},
    }


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
