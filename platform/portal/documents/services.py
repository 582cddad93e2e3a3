"""Writes of stored files, reports and downloads: one transaction and one event each."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from django.db import transaction

from portal.accounts.access import Actor, Platform, require
from portal.accounts.models import Membership, Organisation
from portal.documents.models import Download, Report, StoredFile
from portal.events.services import event_record
from portal.workspace import WorkspaceError, absolute, relative, sha256_file

if TYPE_CHECKING:
    from portal.billing.models import Invoice

MEDIA_TYPES = {
    ".pdf": "application/pdf",
    ".zip": "application/zip",
    ".json": "application/json",
    ".csv": "text/csv",
    ".xml": "application/xml",
    ".beancount": "text/plain",
}


@transaction.atomic
def file_store(*, actor: Actor, organisation: Organisation, kind: str, path: Path) -> StoredFile:
    """Record a finished file under the home; the same path and bytes return the same row.

    WorkspaceError when the path is recorded with other bytes: stored files never change.
    """
    stored = relative(path)
    sha256 = sha256_file(path)
    found = StoredFile.objects.filter(organisation=organisation, path=stored).first()
    if found:
        if found.sha256 != sha256:
            raise WorkspaceError(f"{stored}: recorded as {found.sha256}, found {sha256}")
        return StoredFile.objects.get(pk=found.pk)
    row = StoredFile(
        organisation=organisation,
        kind=kind,
        name=path.name,
        path=stored,
        sha256=sha256,
        size_bytes=path.stat().st_size,
        media_type=MEDIA_TYPES.get(path.suffix, "application/octet-stream"),
    )
    row.save(force_insert=True)
    event_record(
        action="file.store",
        actor=actor,
        subject=row,
        organisation=organisation,
        data={"kind": kind, "path": stored, "sha256": sha256},
    )
    return row


@transaction.atomic
def file_download(*, actor: Membership, stored_file: StoredFile) -> Path:
    """Check the stored bytes, write the download into the log, return the path to send.

    WorkspaceError when the bytes on disk are not the recorded ones: nothing is handed out then.
    """
    require(actor, "file.download", stored_file.organisation)
    path = absolute(stored_file.path)
    if not path.is_file() or sha256_file(path) != stored_file.sha256:
        raise WorkspaceError(
            f"{stored_file.name}: the bytes on disk are not the recorded ones; tell the operator"
        )
    row = Download(
        stored_file=stored_file,
        organisation=stored_file.organisation,
        user=actor.user,
        role=actor.role,
    )
    row.save(force_insert=True)
    event_record(
        action="file.download",
        actor=actor,
        subject=stored_file,
        organisation=stored_file.organisation,
        data={"sha256": stored_file.sha256, "name": stored_file.name},
    )
    return path


@transaction.atomic
def report_issue(
    *,
    actor: Actor,
    invoice: "Invoice",
    facts: Mapping[str, object],
    facts_sha256: str,
    statement_sha256: str,
    pdf: Path,
    bundle: Path,
    log_index: int | None,
    checkpoint: str,
    verified: bool,
    verification: Mapping[str, object],
    issued_at: datetime,
) -> Report:
    """Issue the report on an invoice, once; the one that is there is returned again."""
    if not isinstance(actor, Platform):
        raise WorkspaceError("report.issue: only the platform's own jobs issue reports")
    found = Report.objects.filter(invoice=invoice).first()
    if found:
        return Report.objects.get(pk=found.pk)
    organisation = invoice.organisation
    report = Report(
        organisation=organisation,
        measurement=invoice.measurement,
        invoice=invoice,
        facts=dict(facts),
        facts_sha256=facts_sha256,
        pdf=file_store(actor=actor, organisation=organisation, kind="report", path=pdf),
        bundle=file_store(actor=actor, organisation=organisation, kind="bundle", path=bundle),
        statement_sha256=statement_sha256,
        log_index=log_index,
        checkpoint=checkpoint,
        verified=verified,
        verification=dict(verification),
        issued_at=issued_at,
    )
    report.save(force_insert=True)
    event_record(
        action="report.issue",
        actor=actor,
        subject=report,
        organisation=organisation,
        data={
            "invoice": invoice.number,
            "facts_sha256": facts_sha256,
            "bundle_sha256": report.bundle.sha256,
            "verified": verified,
        },
    )
    return report
