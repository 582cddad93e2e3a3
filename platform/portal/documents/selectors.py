"""Reads of reports, stored files and downloads; every one takes the actor."""

from django.db.models import QuerySet

from portal.accounts.access import get_or_404, scope
from portal.accounts.models import Membership, Role
from portal.documents.models import Download, Report, StoredFile


def report_list(*, actor: Membership) -> QuerySet[Report]:
    """Issued reports, newest first."""
    rows = Report.objects.select_related("invoice__period", "measurement", "pdf", "bundle")
    return scope(actor, rows, "reports")


def report_get(*, actor: Membership, report_id: object) -> Report:
    """One of `report_list`, or Http404."""
    return get_or_404(report_list(actor=actor), report_id)


def file_list(*, actor: Membership) -> QuerySet[StoredFile]:
    """Files the actor may take: reports, bundles, statements, exports."""
    return scope(actor, StoredFile.objects.all(), "reports")


def file_get(*, actor: Membership, file_id: object) -> StoredFile:
    """One of `file_list`, or Http404."""
    return get_or_404(file_list(actor=actor), file_id)


def download_list(*, actor: Membership) -> QuerySet[Download]:
    """Who took what: a customer sees the organisation's log, others their own."""
    rows = scope(actor, Download.objects.select_related("stored_file", "user"), "downloads")
    return rows if actor.role == Role.CUSTOMER else rows.filter(user=actor.user)
