"""The audit trail: what happened, who did it, to what."""

from django.http import HttpResponse
from django.views.decorators.http import require_safe

from portal.events import selectors
from portal.events.filters import EventFilter
from portal.events.tables import EventTable
from portal.web.access import ActorRequest, for_readers_of
from portal.web.lists import list_page


@require_safe
@for_readers_of("events")
def events(request: ActorRequest) -> HttpResponse:
    """Every change of the actor's organisation, newest first."""
    return list_page(
        request,
        title="Audit trail",
        intro="Rows are only ever added. Each row's digest covers the row before it, so a removed "
        "or changed row breaks the chain.",
        rows=selectors.event_list(actor=request.actor).order_by("-seq"),
        table=EventTable,
        filterset=EventFilter,
        empty="Nothing has been changed in this organisation yet. The first registration, "
        "signature or run writes the first row.",
    )
