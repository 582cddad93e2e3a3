"""Lists of systems and model mixes."""

import django_tables2 as tables

from portal.web.columns import DigestColumn, InstantColumn, ListTable, NumberColumn


class SystemTable(ListTable):
    """Systems, one row per revision."""

    caption = "Systems by name; a changed machine is a new revision"
    csv_columns = (
        ("id", "id"), ("name", "name"), ("revision", "revision"), ("fingerprint", "fingerprint"),
        ("organisation", "organisation__name"), ("registered_at", "created_at"),
    )  # fmt: skip

    name = tables.Column(linkify=("registry:system", {"system_id": tables.A("pk")}))
    revision = tables.Column()
    processor = tables.Column(
        accessor="machine__cpu_model", verbose_name="Processor", orderable=False
    )
    cores = NumberColumn(accessor="machine__cores", verbose_name="Cores", orderable=False)
    fingerprint = DigestColumn()
    organisation = tables.Column(accessor="organisation__name", verbose_name="Organisation")
    created_at = InstantColumn(verbose_name="Registered")


class MixTable(ListTable):
    """Model mixes with their traffic."""

    caption = "Model mixes: a model with the traffic it serves"
    csv_columns = (
        ("id", "id"), ("name", "name"), ("model", "model__name"), ("unit", "unit"),
        ("samples", "sample_count"), ("held_out_samples", "held_out_count"),
        ("samples_sha256", "samples_sha256"), ("held_out_sha256", "held_out_sha256"),
        ("registered_at", "created_at"),
    )  # fmt: skip

    name = tables.Column(linkify=("registry:mix", {"mix_id": tables.A("pk")}))
    model = tables.Column(accessor="model__name", verbose_name="Model")
    unit = tables.Column(verbose_name="Unit of work")
    sample_count = NumberColumn(verbose_name="Samples")
    held_out_count = NumberColumn(verbose_name="Held out")
    created_at = InstantColumn(verbose_name="Registered")
