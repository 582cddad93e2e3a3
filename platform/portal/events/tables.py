"""The audit trail as a list."""

import json
from typing import Any

import django_tables2 as tables
from django.utils.html import format_html

from portal.web.columns import DigestColumn, InstantColumn, ListTable


class EventTable(ListTable):
    """One row per change, newest first."""

    caption = "Every change, newest first; each row's digest covers the row before it"
    csv_columns = (
        ("seq", "seq"), ("at", "at"), ("action", "action"), ("actor", "actor_label"),
        ("subject_type", "subject_type"), ("subject_id", "subject_id"), ("data", "data"),
        ("previous_sha256", "previous_sha256"), ("sha256", "sha256"),
    )  # fmt: skip

    seq = tables.Column(verbose_name="No.")
    at = InstantColumn(verbose_name="When")
    action = tables.Column()
    actor_label = tables.Column(verbose_name="Who")
    subject_type = tables.Column(verbose_name="What")
    subject_id = DigestColumn(verbose_name="Which")
    data = tables.Column(verbose_name="Details", orderable=False)
    sha256 = DigestColumn(verbose_name="Chain digest", orderable=False)

    def render_data(self, value: Any) -> str:
        """The details as text, folded away when there are any."""
        if not value:
            return "—"
        text = json.dumps(value, sort_keys=True, ensure_ascii=False)
        return format_html(
            '<details class="more"><summary>Show</summary><code>{}</code></details>', text
        )
