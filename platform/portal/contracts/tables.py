"""The list of contract versions."""

import django_tables2 as tables

from portal.contracts.models import ContractVersion
from portal.web.columns import DigestColumn, InstantColumn, ListTable, MarkColumn
from portal.web.templatetags.portal_tags import mark


class ContractTable(ListTable):
    """Contract versions with their plan's kind."""

    caption = "Contract versions; a signed one is fixed"
    csv_columns = (
        ("id", "id"), ("contract_id", "contract_id"), ("version", "version"), ("status", "status"),
        ("system", "system__name"), ("mix", "mix__name"), ("contract_sha256", "contract_sha256"),
        ("plan_sha256", "plan_sha256"), ("signed_at", "signed_at"),
    )  # fmt: skip

    contract_id = tables.Column(
        verbose_name="Contract",
        linkify=("contracts:contract", {"contract_version_id": tables.A("pk")}),
    )
    version = tables.Column()
    system = tables.Column(accessor="system", verbose_name="System")
    mix = tables.Column(accessor="mix__name", verbose_name="Mix")
    status = MarkColumn()
    plan = tables.Column(orderable=False)
    plan_sha256 = DigestColumn(verbose_name="Plan digest", orderable=False)
    signed_at = InstantColumn(verbose_name="Signed")

    def render_plan(self, record: ContractVersion) -> str:
        """Full-length or short-run plan."""
        return mark("short run") if record.plan.get("short_run") else "full"
