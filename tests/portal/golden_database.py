"""A case file settled through the portal's services, and read back from its rows.

In: a case file of `metering.cases`, the cast, and their keys. Out: what the database holds, in the
form of an answer, so that the golden cases can be read from it by name. No amount is computed
here: facts become verified savings in the engine, everything else is a service and a row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kernelgen.agent.ledger import Booking, Ledger
from metering.cases import Case
from metering.cases.verified import baseline_history, verify
from metering.contract import Contract
from metering.decimals import to_text
from metering.ledger import Invoice as InvoiceDocument
from metering.money import allocate, to_minor_units
from metering.plan import Period, PriceBook, Seeds, short_run_plan
from portal.audits.models import Review
from portal.audits.services import auditor_key_register, review_approve, review_open
from portal.billing.corrections import audit_settle, credit_issue, dispute_open, dispute_release
from portal.billing.models import BillingPeriod, Invoice, SavingsRecord
from portal.billing.recoupment import search_cost_book
from portal.billing.savings import savings_verify
from portal.billing.services import invoice_issue, period_open
from portal.contracts.agreement import signed_bytes
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft, party_key_register, plan_sign
from portal.registry.models import ModelMix, System
from portal.registry.models import PriceBook as PriceBookRow
from portal.registry.services import price_book_publish
from portal.runs.models import Measurement, Tuning
from portal.runs.services import (
    BaselineFigures,
    MeasuredFigures,
    baseline_freeze,
    measurement_open,
    measurement_record,
    package_store,
    tuning_open,
)
from reports.canonical import canonical_json
from reports.envelope import add, sign
from reports.keys import key_id, public_pem
from tests.portal.conftest import Cast, Keys

Json = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """What every contract of these tests stands on."""

    cast: Cast
    keys: Keys
    home: Path
    system: System
    mix: ModelMix
    book: PriceBookRow


@pytest.fixture
def stage(cast: Cast, keys: Keys, home: Path, system: System, mix: ModelMix) -> Stage:
    """Two cores of one machine, one model, one price book, and everybody's keys."""
    book = price_book_publish(
        actor=cast.owner,
        organisation=cast.organisation,
        document=PriceBook("EUR", Decimal("0.05"), datetime(2023, 1, 1, tzinfo=UTC), "agreement"),
    )
    return Stage(cast, keys, home, system, mix, book)


class Settled:
    """One contract on the stage: signed by all three, with an approved measurement."""

    def __init__(
        self, stage: Stage, contracts: tuple[Contract, ...], name: str, option: Any = "B"
    ) -> None:
        self.stage, self.name, self.option = stage, name, option
        self.versions = [self._agree(replace(each, contract_id=name)) for each in contracts]
        self.measurement = self._approved(self.versions[0])

    def document(self, number: int) -> Invoice:
        """The contract's invoice or release of that number, as a case counts them."""
        rows = Invoice.objects.filter(period__contract_id=self.name).exclude(kind="credit_note")
        return rows.order_by("sequence")[number - 1]

    def contract(self, period: Period) -> ContractVersion:
        """The version in force at a period's start, or the first one."""
        started = [
            version
            for version in self.versions
            if Contract.from_json(version.contract).valid_from <= period.start
        ]
        return max(started or self.versions[:1], key=lambda version: version.version)

    def _agree(self, contract: Contract) -> ContractVersion:
        stage = self.stage
        version = contract_draft(
            actor=stage.cast.owner,
            organisation=stage.cast.organisation,
            contract=contract,
            plan=replace(
                short_run_plan(
                    f"P-{self.name}", cores=(0, 1), zone=contract.zone, seeds=Seeds(1, 2, 3, 4)
                ),
                option=self.option,
            ),
            system=stage.system,
            mix=stage.mix,
            price_book=stage.book,
        )
        actors = {
            "provider": stage.cast.platform,
            "customer": stage.cast.owner,
            "auditor": stage.cast.auditor,
        }
        for party, actor in actors.items():
            key = getattr(stage.keys, party)
            party_key_register(
                actor=actor,
                organisation=stage.cast.organisation,
                party=party,
                public_key_pem=public_pem(key.public_key()).decode(),
            )
            plan_sign(
                actor=actor,
                contract_version=version,
                party=party,
                key_id=key_id(key.public_key()),
                signature_b64=base64.b64encode(key.sign(signed_bytes(version))).decode(),
            )
        return version

    def _book_search(self, tuning: Tuning, contract: Contract) -> None:
        """An hour of search on a core whose price makes it cost what the contract recoups."""
        if contract.recoupment is None:
            return
        path: Path = self.stage.home / "ledgers" / f"{self.name}.jsonl"
        ledger = Ledger(
            path, contract.recoupment.amount, contract.currency, customer="lumen", model=self.name
        )
        ledger.book(Booking("gemm", "judge", "wrong", 1200.0))
        ledger.book(Booking("gemm", "compile", "done", 2400.0))
        search_cost_book(
            actor=self.stage.cast.platform, tuning=tuning, ledger=path.read_text("utf-8")
        )

    def _approved(self, version: ContractVersion) -> Measurement:
        """A measurement of this contract under the auditor's signature."""
        stage = self.stage
        evidence: Path = stage.home / "evidence" / self.name
        (evidence / "baseline").mkdir(parents=True)
        document = evidence / "baseline" / "baseline.json"
        document.write_text('{"stack": "onnxruntime"}')
        baseline = baseline_freeze(
            actor=stage.cast.platform,
            contract_version=version,
            figures=BaselineFigures(
                stack="onnxruntime",
                stack_version="1.24",
                threads=2,
                arrangement="single",
                batch=1,
                samples_per_second=Decimal(400),
                frozen_at=datetime(2026, 1, 1, tzinfo=UTC),
                document={"stack": "onnxruntime", "samples_per_second": "400"},
            ),
            document_file=document,
            evidence=evidence,
        )
        package_dir: Path = stage.home / "packages" / self.name
        package_dir.mkdir(parents=True)
        tuning = tuning_open(
            actor=stage.cast.platform, baseline=baseline, seed=1, budget_s=Decimal(10)
        )
        self._book_search(tuning, Contract.from_json(version.contract))
        package = package_store(
            actor=stage.cast.platform,
            tuning=tuning,
            manifest={"isa": "avx512"},
            manifest_sha256="cd" * 32,
            model_gate={"correct": True},
            operators=[],
            path=package_dir,
        )
        measured = measurement_record(
            actor=stage.cast.platform,
            measurement=measurement_open(
                actor=stage.cast.platform,
                contract_version=version,
                baseline=baseline,
                package=package,
                evidence=evidence,
            ),
            figures=MeasuredFigures(
                aa={"lo": "-0.004", "hi": "0.003", "passed": True, "reason": "", "pairs": 6},
                uplift={"point": "0.25", "lo": "0.19", "hi": "0.31", "lower_95": "0.2", "n": 6},
                pairs=[],
                accuracy={"min_cosine": "0.999999", "passed": True},
                uplift_point=Decimal("0.25"),
                uplift_lower_95=Decimal("0.20"),
                kept=True,
                reason="",
            ),
            evidence=evidence,
        )
        statement = canonical_json({"measurement": str(measured.pk), "uplift": "0.25"})
        envelope = sign(statement, stage.keys.provider)
        review: Review = review_open(
            actor=stage.cast.platform,
            measurement=measured,
            statement=statement,
            envelope=envelope,
        )
        auditor_key_register(
            actor=stage.cast.auditor,
            organisation=stage.cast.organisation,
            public_key_pem=public_pem(stage.keys.auditor.public_key()).decode(),
        )
        review_approve(
            actor=stage.cast.auditor,
            review=review,
            envelope=add(review.envelope.encode(), stage.keys.auditor),
        )
        return Measurement.objects.get(pk=measured.pk)


def settle(
    stage: Stage, value: Json, name: str, billed: Callable[[BillingPeriod], None] | None = None
) -> Json:
    """Do every step of a case through the services; answer from the rows.

    `billed` is called with each period right after its invoice is issued.
    """
    case = Case.from_json(value)
    settled = Settled(stage, case.contracts, name)
    anchor = value.get("periods")
    start = date.fromisoformat(anchor["start"]) if isinstance(anchor, dict) else None
    periods = {
        period.label: period_open(
            actor=stage.cast.finance,
            contract_version=settled.contract(period),
            label=period.label,
            anchor=start,
        )
        for period in case.periods
    }
    told: list[Json] = []
    for step in case.steps:
        if step.kind == "bill":
            told.append(_bill(settled, case, periods[step.period]))
            if billed is not None:
                billed(periods[step.period])
            continue
        number = int(step.document.rsplit("-", 1)[1])
        invoice = settled.document(number)
        if step.kind == "dispute":
            told.append(_dispute(settled, invoice, list(step.lines or ())))
        elif step.kind == "resolve":
            dispute_release(actor=stage.cast.finance, invoice=invoice)
        elif step.kind == "credit":
            credit_issue(
                actor=stage.cast.finance, invoice=invoice, reason=step.reason, amounts=step.lines
            )
        else:
            told.append(_audit(settled, case, invoice, step.savings))
    rows = Invoice.objects.filter(period__contract_id=name)
    return {
        "periods": [_period(row) for row in sorted(periods.values(), key=lambda r: r.starts_at)],
        "baselines": _baselines(settled, case),
        "steps": told,
        "documents": [_document(row, case) for row in rows.order_by("created_at")],
    }


def _verified(settled: Settled, case: Case, label: str, stated: Any = None) -> Any:
    savings, error = verify(case, case.period(label, "period"), stated)
    return replace(savings, evidence_digest=settled.measurement.evidence_sha256), error


def _bill(settled: Settled, case: Case, period: BillingPeriod) -> Json:
    verified, error = _verified(settled, case, period.label)
    cast = settled.stage.cast
    record = savings_verify(
        actor=cast.auditor,
        period=period,
        measurement=settled.measurement,
        verified=verified,
        standard_error=error,
    )
    invoice_issue(actor=cast.finance, savings=record)
    stored = SavingsRecord.objects.get(pk=record.pk).document
    return {
        "step": "bill",
        "breakdown": stored["breakdown"],
        "standard_error": stored["standard_error"],
    }


def _dispute(settled: Settled, invoice: Invoice, lines: list[str]) -> Json:
    row = dispute_open(
        actor=settled.stage.cast.owner, invoice=invoice, lines=lines, reason="wrong volume"
    )
    row.refresh_from_db()
    amounts = {
        name: to_text(getattr(row, name).quantize(Decimal("0.01")))
        for name in ("collectible", "disputed")
    }
    return {"step": "dispute", "dispute": amounts}


def _audit(settled: Settled, case: Case, invoice: Invoice, stated: Any) -> Json:
    verified, _ = _verified(settled, case, invoice.period.label, stated)
    correction = audit_settle(
        actor=settled.stage.cast.auditor,
        invoice=invoice,
        measurement=settled.measurement,
        verified=verified,
    )
    correction.refresh_from_db()
    return {"step": "audit", "outcome": correction.details["outcome"]}


def _period(row: BillingPeriod) -> Json:
    row.refresh_from_db()
    period = Period(row.label, row.zone, row.starts_at, row.ends_at)
    return {"label": period.label, "hours": to_text(period.hours)}


def _baselines(settled: Settled, case: Case) -> list[Json]:
    stored = ContractVersion.objects.get(pk=settled.versions[-1].pk)
    policy = Contract.from_json(stored.contract).baseline_policy
    return [
        {"effective": to_text(item.effective)}
        for model, system in sorted({(cost.model, cost.system) for cost in case.costs})
        for item in baseline_history(case.costs, policy, model, system)
    ]


def _document(row: Invoice, case: Case) -> Json:
    """A stored document; its columns must be those of its frozen bytes."""
    document = InvoiceDocument.from_json(row.document)
    assert document.digest == row.sha256
    assert (document.kind, document.net, document.tax, document.payable) == (
        row.kind, row.net, row.tax, row.gross,
    )  # fmt: skip
    told: Json = {
        "document": row.document,
        "payable_minor_units": to_minor_units(row.gross, row.currency),
    }
    if case.allocation is not None:
        parts = allocate(row.gross, list(case.allocation.values()), row.currency)
        told["allocation"] = dict(zip(case.allocation, map(to_text, parts), strict=True))
    return told
