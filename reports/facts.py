"""What a report prints, as frozen, validated records.

In: a JSON object built by whoever owns the data (the portal). Out: `ReportFacts`, the only input
of the PDF and of the billing statement, and `MeasurementFacts`, the part that exists before any
money does and that the measurement statement carries.

Every number is text in plain decimal notation (`"812.40"`), so that no reader rounds it on the
way; the unit is in the field's name. Ratios are minus one: uplift `"0.2345"` is 23.45 %.
Never compute a figure here: facts are stated, and `reports.verify` recomputes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from pydantic import model_validator

from reports.canonical import canonical_json
from reports.record import (
    Count,
    Currency,
    Date,
    Grown,
    Identifier,
    Number,
    Record,
    Sentence,
    Sha256,
    Text,
    Utc,
    Zone,
    validated,
)

FACTS_VERSION = "ignition-facts/v1"


class Party(Record):
    name: Text
    reference: Text


class Period(Record):
    """Half-open: `start` belongs to it, `end` does not."""

    label: Text
    zone: Zone
    start: Utc
    end: Utc

    @model_validator(mode="after")
    def _ordered(self) -> Period:
        if datetime.fromisoformat(self.start) >= datetime.fromisoformat(self.end):
            raise ValueError(f"period start {self.start} must come before its end {self.end}")
        return self


class SystemFacts(Record):
    name: Text
    fingerprint: Sha256
    processor: Text
    cores: Count
    memory_bytes: Count
    accelerators: tuple[Text, ...] = ()


class LengthShare(Record):
    """One bar of the traffic histogram: inputs of about `tokens` tokens."""

    tokens: Count
    samples: Count


class MixFacts(Record):
    model: Text
    model_sha256: Sha256
    samples: Count
    samples_sha256: Sha256
    traffic: tuple[LengthShare, ...]


class PlanFacts(Record):
    plan_id: Text
    digest: Sha256
    option: Text
    scenario: Text
    precision: Text
    cores: Count
    run_seconds: Number
    pairs: Count
    aa_pairs: Count
    minimum_effect: Number
    accuracy_floor_cosine: Number
    short_run: bool


class SweepRow(Record):
    """One stock configuration that was tried; `samples_per_second` is None when it failed."""

    stack: Text
    version: Text
    configuration: Text
    samples_per_second: Number | None
    state: Text
    chosen: bool


class AsFoundFacts(Record):
    """What the customer stated to run before; `samples_per_second` is None when it failed."""

    stack: Text
    version: Text
    configuration: Text
    samples_per_second: Number | None
    state: Text


class BaselineFacts(Grown):
    """The best stock configuration; `as_found` is None where the customer stated nothing."""

    later = frozenset({"as_found"})
    stack: Text
    version: Text
    configuration: Text
    samples_per_second: Number
    frozen_at: Utc
    sha256: Sha256
    sweep: tuple[SweepRow, ...]
    as_found: AsFoundFacts | None = None


class AaFacts(Record):
    """Same stack in both arms. `ratios` are other/base of the kept pairs, 1 = equal."""

    passed: bool
    lo: Number
    hi: Number
    pairs: Count
    ratios: tuple[Number, ...]
    reason: Text


class EnergyFacts(Record):
    """Joules a sample of both arms, and baseline over optimised as ratio minus one with its 95 %
    interval; or nothing of it, and the reason why it was not measured.
    """

    source: Text | None = None
    uncertainty: Number | None = None
    baseline_j_per_sample: Number | None = None
    optimised_j_per_sample: Number | None = None
    point: Number | None = None
    lo: Number | None = None
    hi: Number | None = None
    reason: Sentence | None = None

    @property
    def measured(self) -> bool:
        return self.reason is None

    @model_validator(mode="after")
    def _all_or_the_reason(self) -> EnergyFacts:
        given = {name for name, value in self if value is not None}
        if given != {"reason"} and given != set(type(self).model_fields) - {"reason"}:
            raise ValueError(f"states {sorted(given)}, wanted every figure or the reason alone")
        return self


class UpliftFacts(Grown):
    """Point, 95 % interval and one-sided 95 % lower bound, all as ratio minus one. `energy` is None
    in statements from before reports printed it.
    """

    later = frozenset({"energy"})
    kept: bool
    reason: Text
    point: Number
    lo: Number
    hi: Number
    lower_95: Number
    pairs: Count
    ratios: tuple[Number, ...]
    optimised_samples_per_second: Number
    energy: EnergyFacts | None = None


class AccuracyFacts(Record):
    passed: bool
    samples: Count
    min_cosine: Number
    mean_cosine: Number
    max_abs_error: Number
    floor_cosine: Number


class RejectionCount(Record):
    reason: Text
    trials: Count


class SearchFacts(Record):
    """What the kernel search cost and how many candidates the judge refused, by reason."""

    trials: Count
    accepted: Count
    rejected: tuple[RejectionCount, ...]
    seconds: Number
    cost: Number
    currency: Currency
    package_manifest_sha256: Sha256


class MeasurementFacts(Record):
    """All that is known once a measurement is done; carries no money but the search's cost."""

    measurement_id: Identifier
    method_version: Text
    organisation: Party
    auditor: Party
    measured_at: Utc
    system: SystemFacts
    mix: MixFacts
    plan: PlanFacts
    baseline: BaselineFacts
    aa: AaFacts
    uplift: UpliftFacts
    accuracy: AccuracyFacts
    search: SearchFacts

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | bytes) -> MeasurementFacts:
        """Validate a JSON object or its text. Raises ReportError naming each wrong field."""
        return validated(cls, document)

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class DocumentFacts(Record):
    number: Identifier
    version: Count
    title: Text
    status: Literal["draft", "issued"]
    issued_at: Utc


class InvoiceFacts(Record):
    number: Identifier
    status: Text
    issued_on: Date
    due_on: Date | None = None


class UsageRow(Record):
    model: Text
    system: Text
    samples: Count


class UsageFacts(Record):
    """Accepted work of the period and the fate of every event that came in."""

    samples: Count
    accepted: Count
    duplicates: Count
    conflicts: Count
    late: Count
    early: Count
    rejected: Count
    rows: tuple[UsageRow, ...]


class SavingsFacts(Record):
    """One line of savings. Money is in `currency`; `per_sample` costs carry full precision."""

    currency: Currency
    volume_samples: Count
    price_per_core_hour: Number
    cores: Count
    baseline_samples_per_second: Number
    baseline_cost_per_sample: Number
    uplift_point: Number
    uplift_lower_95: Number
    counterfactual: Number
    point: Number
    bound: Number
    billable: Number
    reason: Sentence | None = None


class OverrideFacts(Record):
    """Who decided to bill in spite of a rule, and why."""

    auditor: Text
    reason: Sentence


class DisqualificationFacts(Record):
    """One rule of sufficiency that does not hold; it blocks unless there is an override."""

    name: Identifier
    description: Sentence
    blocks: bool
    override: OverrideFacts | None = None


class SufficiencyFacts(Record):
    """What stands behind one line, and which rules it does not meet. `gate`: why nothing bills."""

    model: Text
    system: Text
    baseline_runs: Count
    baseline_days: Count
    metered_hours: Number
    period_hours: Number
    conflicts: Count
    disqualifications: tuple[DisqualificationFacts, ...]
    gate: Sentence | None = None


class FeeLine(Record):
    label: Text
    amount: Number


class FeeFacts(Record):
    contract: Text
    currency: Currency
    lines: tuple[FeeLine, ...]
    net: Number
    tax: Number
    total: Number


class ExportFacts(Record):
    name: Identifier
    format: Text
    sha256: Sha256
    size_bytes: Count


class ReportFacts(Record):
    """Everything one report prints.

    `sufficiency` is empty under a method that does not examine it, and is then not written: what
    was stated before there was one keeps its bytes.
    """

    facts_version: Literal["ignition-facts/v1"]
    document: DocumentFacts
    invoice: InvoiceFacts
    period: Period
    measurement: MeasurementFacts
    usage: UsageFacts
    savings: SavingsFacts
    fee: FeeFacts
    exports: tuple[ExportFacts, ...]
    limits: tuple[Sentence, ...]
    evidence_digest: Sha256
    measurement_statement_sha256: Sha256
    sufficiency: tuple[SufficiencyFacts, ...] = ()

    @model_validator(mode="after")
    def _one_currency(self) -> ReportFacts:
        if self.savings.currency != self.fee.currency:
            raise ValueError(
                f"savings are in {self.savings.currency} but the fee is in {self.fee.currency}"
            )
        lines = sum((Decimal(line.amount) for line in self.fee.lines), Decimal(0))
        if lines != Decimal(self.fee.net):
            raise ValueError(f"fee lines sum to {lines}, but net says {self.fee.net}")
        if Decimal(self.fee.net) + Decimal(self.fee.tax) != Decimal(self.fee.total):
            raise ValueError(
                f"net {self.fee.net} + tax {self.fee.tax} is not the total {self.fee.total}"
            )
        return self

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | str | bytes) -> ReportFacts:
        """Validate a JSON object or its text. Raises ReportError naming each wrong field."""
        return validated(cls, document)

    def to_json(self) -> dict[str, Any]:
        document = self.model_dump(mode="json")
        if not self.sufficiency:
            del document["sufficiency"]
        return document

    def to_bytes(self) -> bytes:
        """RFC 8785 bytes: the same facts always give the same bytes."""
        return canonical_json(self.to_json())
