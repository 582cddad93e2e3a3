"""What the API says, field by field. Amounts and rates are decimal text, times are UTC.

In: model rows. Out: JSON. A field that is here stays; the golden OpenAPI document shows a change.
"""

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import PlainSerializer

from metering.decimals import to_text

Amount = Annotated[Decimal, PlainSerializer(to_text, return_type=str)]


class SystemOut(Schema):
    id: UUID
    name: str
    revision: int
    fingerprint: str
    machine: dict[str, Any]
    created_at: datetime


class MixOut(Schema):
    id: UUID
    name: str
    unit: str
    model_name: str
    model_sha256: str
    length_histogram: dict[str, int]
    sample_count: int
    samples_sha256: str
    held_out_count: int
    held_out_sha256: str
    created_at: datetime

    @staticmethod
    def resolve_model_name(row: Any) -> str:
        return str(row.model.name)

    @staticmethod
    def resolve_model_sha256(row: Any) -> str:
        return str(row.model.sha256)


class BaselineOut(Schema):
    id: UUID
    system_id: UUID
    mix_id: UUID
    contract_version_id: UUID
    stack: str
    stack_version: str
    threads: int
    arrangement: str
    batch: int
    samples_per_second: Amount
    document: dict[str, Any]
    sha256: str
    frozen_at: datetime


class BaselineEntryOut(Schema):
    id: UUID
    contract_version_id: UUID
    number: int
    stack: str
    stack_version: str
    samples_per_second: Amount
    frozen_at: datetime
    baseline_sha256: str
    line: str
    line_sha256: str


class TuningOut(Schema):
    id: UUID
    baseline_id: UUID
    state: str
    seed: int
    budget_s: Amount
    trials: int
    accepted: int
    rejected: dict[str, int]
    seconds: Amount
    cost: Amount
    currency: str
    finished_at: datetime | None


class MeasurementOut(Schema):
    id: UUID
    contract_version_id: UUID
    baseline_id: UUID
    state: str
    aa: dict[str, Any]
    uplift: dict[str, Any]
    accuracy: dict[str, Any]
    pairs: list[dict[str, Any]]
    kept: bool
    reason: str
    evidence_sha256: str
    measured_at: datetime | None


class SavingsOut(Schema):
    id: UUID
    period: str
    zone: str
    starts_at: datetime
    ends_at: datetime
    measurement_id: UUID
    currency: str
    volume_samples: int
    counterfactual: Amount
    point: Amount
    billable: Amount
    fee: Amount
    kept: bool
    reason: str
    document: dict[str, Any]
    sha256: str

    @staticmethod
    def resolve_period(row: Any) -> str:
        return str(row.period.label)

    @staticmethod
    def resolve_zone(row: Any) -> str:
        return str(row.period.zone)

    @staticmethod
    def resolve_starts_at(row: Any) -> datetime:
        return row.period.starts_at  # type: ignore[no-any-return]

    @staticmethod
    def resolve_ends_at(row: Any) -> datetime:
        return row.period.ends_at  # type: ignore[no-any-return]


class InvoiceOut(Schema):
    id: UUID
    number: str
    kind: str
    corrects_id: UUID | None
    period: str
    currency: str
    net: str
    tax: str
    payable: str
    live: bool
    issued_at: datetime
    document: dict[str, Any]
    sha256: str

    @staticmethod
    def resolve_period(row: Any) -> str:
        return str(row.period.label)

    # The document's own text: page, API and export say an amount in the same digits.
    @staticmethod
    def resolve_net(row: Any) -> str:
        return str(row.document["net"])

    @staticmethod
    def resolve_tax(row: Any) -> str:
        return str(row.document["tax"])

    @staticmethod
    def resolve_payable(row: Any) -> str:
        return str(row.document["payable"])


class DisputeOut(Schema):
    id: UUID
    invoice_id: UUID
    invoice: str
    currency: str
    lines: list[str]
    reason: str
    collectible: Amount
    disputed: Amount
    opened_on: date
    outcome: str
    resolved_at: datetime | None

    @staticmethod
    def resolve_invoice(row: Any) -> str:
        return str(row.invoice.number)

    @staticmethod
    def resolve_currency(row: Any) -> str:
        return str(row.invoice.currency)


class OverrideOut(Schema):
    """An auditor's override of one rule of sufficiency in one period."""

    id: UUID
    period_id: UUID
    period: str
    measurement_id: UUID
    rule: str
    found: str
    stated_by: str
    reason: str
    created_at: datetime

    @staticmethod
    def resolve_period(row: Any) -> str:
        return str(row.period.label)


class FateOut(Schema):
    line: int
    fate: str
    reason: str
    source: str
    id: str


class UsageBatchOut(Schema):
    id: UUID
    via: str
    sha256: str
    lines: int
    stored: int
    duplicates: int
    conflicts: int
    rejected: int
    created_at: datetime

    @staticmethod
    def resolve_stored(row: Any) -> int:
        return int(row.accepted)


class UsageAsked(Schema):
    """A range of local days, [start, end); what is left out is that of the newest usage."""

    start: str = ""
    end: str = ""
    zone: str = ""
    model: str = ""
    system: str = ""
    source: str = ""


class VolumeOut(Schema):
    """Accepted work of one day or hour; `samples` is null where no usage came: never zero."""

    start: datetime
    end: datetime
    label: str
    zone: str
    model: str
    system: str
    samples: int | None
    events: int
    hours_ended: int
    hours_without_usage: int


class VolumesOut(Schema):
    start: datetime
    end: datetime
    zone: str
    step: str
    rows: list[VolumeOut]
    samples: int
    events: int
    hours_ended: int
    hours_without_usage: int
    fates: dict[str, int]


class UsageReceipt(Schema):
    batch: UsageBatchOut
    fates: list[FateOut]


class ErrorOut(Schema):
    error: str
