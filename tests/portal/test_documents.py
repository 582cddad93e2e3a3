"""Stored files: recorded by digest, handed out only as recorded, every download on record."""

import pytest
from django.http import Http404

from portal.documents.models import Download
from portal.documents.selectors import download_list, file_get, file_list
from portal.documents.services import file_download, file_store
from portal.events.models import Event
from portal.records import IssuedError
from portal.workspace import WorkspaceError, write


@pytest.fixture
def stored(cast, home):
    path = home / "documents" / "reports" / "r.pdf"
    write(path, b"%PDF-1.7 a report")
    return file_store(actor=cast.platform, organisation=cast.organisation, kind="report", path=path)


def test_same_file_again_is_the_same_row(cast, home, stored):
    path = home / stored.path
    again = file_store(
        actor=cast.platform, organisation=cast.organisation, kind="report", path=path
    )
    assert again.pk == stored.pk
    assert stored.media_type == "application/pdf"
    path.write_bytes(b"other")
    with pytest.raises(WorkspaceError, match="recorded as"):
        file_store(actor=cast.platform, organisation=cast.organisation, kind="report", path=path)


def test_download_is_logged(cast, stored):
    path = file_download(actor=cast.auditor, stored_file=stored)
    assert path.read_bytes() == b"%PDF-1.7 a report"
    assert Download.objects.get().user == cast.auditor.user
    assert Event.objects.filter(action="file.download").count() == 1
    assert download_list(actor=cast.auditor).count() == 1
    assert download_list(actor=cast.finance).count() == 0
    assert download_list(actor=cast.owner).count() == 1
    with pytest.raises(IssuedError):
        Download.objects.get().delete()


def test_changed_bytes_are_not_handed_out(cast, home, stored):
    (home / stored.path).write_bytes(b"%PDF-1.7 A REPORT")
    with pytest.raises(WorkspaceError, match="not the recorded ones"):
        file_download(actor=cast.owner, stored_file=stored)
    assert Download.objects.count() == 0


def test_lost_file_is_said_clearly(cast, home, stored):
    (home / stored.path).unlink()
    with pytest.raises(WorkspaceError, match="not the recorded ones"):
        file_download(actor=cast.owner, stored_file=stored)


def test_outsider_finds_nothing(cast, stored):
    assert file_list(actor=cast.outsider).count() == 0
    with pytest.raises(Http404):
        file_get(actor=cast.outsider, file_id=stored.pk)
    with pytest.raises(Http404):
        file_download(actor=cast.outsider, stored_file=stored)
