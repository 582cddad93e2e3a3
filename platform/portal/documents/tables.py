"""Lists of stored files and of who took them."""

from typing import Any

import django_tables2 as tables
from django.urls import reverse
from django.utils.html import format_html

from portal.documents.models import StoredFile
from portal.web import formats
from portal.web.columns import NUMERIC, DigestColumn, InstantColumn, ListTable


class FileTable(ListTable):
    """Stored files with their digests."""

    caption = "Files as they were issued; a download serves exactly these bytes"
    csv_columns = (
        ("id", "id"), ("kind", "kind"), ("name", "name"), ("size_bytes", "size_bytes"),
        ("sha256", "sha256"), ("media_type", "media_type"), ("stored_at", "created_at"),
    )  # fmt: skip

    name = tables.Column(verbose_name="File")
    kind = tables.Column()
    size_bytes = tables.Column(verbose_name="Size", attrs=NUMERIC)
    sha256 = DigestColumn(verbose_name="SHA-256")
    created_at = InstantColumn(verbose_name="Stored")

    def render_name(self, value: str, record: StoredFile) -> str:
        """The name as a download link."""
        url = reverse("documents:download", args=[record.pk])
        return format_html('<a href="{}" download>{}</a>', url, value)

    def render_size_bytes(self, value: Any) -> str:
        """The size in binary units."""
        return formats.byte_size(value)


class DownloadTable(ListTable):
    """Who took which file."""

    caption = "Who took which file, and when"
    csv_columns = (
        ("at", "created_at"), ("file", "stored_file__name"), ("sha256", "stored_file__sha256"),
        ("user", "user__username"), ("role", "role"),
    )  # fmt: skip

    created_at = InstantColumn(verbose_name="When")
    stored_file = tables.Column(accessor="stored_file__name", verbose_name="File")
    user = tables.Column(accessor="user__username", verbose_name="Who")
    role = tables.Column()
    sha256 = DigestColumn(accessor="stored_file__sha256", verbose_name="SHA-256")
