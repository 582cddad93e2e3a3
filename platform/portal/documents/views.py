"""Downloads: files as they were issued, reports with their checks, and who took what."""

from base64 import b64encode

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_safe

from portal.billing.sufficiency_page import shown_of
from portal.documents import selectors
from portal.documents.filters import FileFilter
from portal.documents.services import file_download
from portal.documents.tables import DownloadTable, FileTable
from portal.web.access import ActorRequest, for_readers_of
from portal.web.answers import attachment
from portal.web.figures import crumbs
from portal.web.lists import list_page
from portal.workspace import WorkspaceError


@require_safe
@for_readers_of("reports")
def files(request: ActorRequest) -> HttpResponse:
    """Reports first, then every stored file."""
    return list_page(
        request,
        title="Downloads",
        intro="Stored once and served as they are, never drawn again. Each download is logged.",
        rows=selectors.file_list(actor=request.actor),
        table=FileTable,
        filterset=FileFilter,
        empty="Reports, bundles and exports appear here once an invoice is issued.",
        template="portal/documents/files.html",
        more={"reports": selectors.report_list(actor=request.actor)[:20]},
    )


@require_GET
@for_readers_of("reports")
def download(request: ActorRequest, file_id: object) -> HttpResponse:
    """The stored bytes, after their digest was checked; 409 when they are not the recorded ones."""
    stored = selectors.file_get(actor=request.actor, file_id=file_id)
    try:
        path = file_download(actor=request.actor, stored_file=stored)
    except WorkspaceError as error:
        context = {
            "title": "The file does not match its digest",
            "what": str(error),
            "next": "Nothing was handed out. The operator finds the recorded digest in the list of "
            "downloads and in the audit trail.",
        }
        return render(request, "portal/error.html", context, status=409)
    response = attachment(path.read_bytes(), stored.name, stored.media_type)
    response.headers["Repr-Digest"] = f"sha-256=:{_base64(stored.sha256)}:"
    return response


def _base64(hex_digest: str) -> str:
    return b64encode(bytes.fromhex(hex_digest)).decode("ascii")


@require_safe
@for_readers_of("reports")
def report(request: ActorRequest, report_id: object) -> HttpResponse:
    """One report with the checks of its bundle and its place in the log."""
    shown = selectors.report_get(actor=request.actor, report_id=report_id)
    context = {
        "report": shown,
        "checks": shown.verification.get("checks", ()),
        "items": shown_of(shown.invoice.savings),
        "crumbs": crumbs(("Downloads", reverse("documents:files"))),
    }
    return render(request, "portal/documents/report.html", context)


@require_safe
@for_readers_of("downloads")
def downloads(request: ActorRequest) -> HttpResponse:
    """Who took which file."""
    return list_page(
        request,
        title="Download log",
        intro="A customer sees the organisation's log; everybody else their own.",
        rows=selectors.download_list(actor=request.actor),
        table=DownloadTable,
        empty="Nobody has taken a file yet.",
        crumbs=crumbs(("Downloads", reverse("documents:files"))),
    )
