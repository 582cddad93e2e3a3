"""The queue of reviews."""

import django_tables2 as tables

from portal.audits.models import Review
from portal.web.columns import DigestColumn, InstantColumn, ListTable, MarkColumn, PercentColumn
from portal.web.templatetags.portal_tags import mark


class ReviewTable(ListTable):
    """Reviews, open ones first."""

    caption = "Reviews of measurements"
    csv_columns = (
        ("id", "id"), ("state", "state"), ("measurement", "measurement_id"),
        ("uplift_lower_95", "measurement__uplift_lower_95"), ("kept", "measurement__kept"),
        ("statement_sha256", "statement_sha256"), ("opened_at", "created_at"),
        ("decided_at", "decided_at"), ("decided_by", "decided_by__username"),
    )  # fmt: skip

    created_at = InstantColumn(
        verbose_name="Opened", linkify=("audits:review", {"review_id": tables.A("pk")})
    )
    contract = tables.Column(
        accessor="measurement__contract_version", verbose_name="Contract", orderable=False
    )
    uplift = PercentColumn(accessor="measurement__uplift_lower_95", verbose_name="Lower bound")
    kept = tables.Column(accessor="measurement__kept", verbose_name="Billable")
    findings = tables.Column(empty_values=(), orderable=False)
    state = MarkColumn()
    statement_sha256 = DigestColumn(verbose_name="Statement", orderable=False)
    decided_by = tables.Column(verbose_name="Decided by")

    def render_kept(self, value: bool) -> str:
        """Whether the uplift may be billed once approved."""
        return mark("kept" if value else "not kept")

    def render_findings(self, record: Review) -> str:
        """Open findings of all findings."""
        findings = list(record.findings.all())
        open_ones = sum(finding.resolved_at is None for finding in findings)
        return f"{open_ones} open of {len(findings)}" if findings else "none"
