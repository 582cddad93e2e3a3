"""One report from evidence to bundle, as the portal tells it: facts, money, both sides' steps.

The measured evidence is a recording of real LoadGen runs (`record_evidence.py`); everything
about money is computed here from it, with the metering engine.
"""

from __future__ import annotations

import json
import math
import shutil
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from metering import canonical
from metering.baseline import Baseline, load
from metering.contract import Contract, LedgerState, Party, fee, flat_share
from metering.evidence import recompute
from metering.ledger import build_invoice
from metering.loadgen.days import run_days
from metering.plan import MeasurementPlan, Period, PriceBook
from metering.savings import (
    Override,
    Sufficiency,
    demands_sufficiency,
    evidence_of,
    savings_line,
    verified_savings,
)
from metering.uplift.pairs import load_paired
from metering.usage import Coverage, TrafficShare, generate_month, metered, read_events
from reports import envelope, manifest, pdfsign, sshsig
from reports.archive import write
from reports.bundle import BILLING, FACTS, REPORT, STATEMENT, verify_text
from reports.canonical import sha256_bytes, sha256_file, strict_json
from reports.energy import energy_facts
from reports.facts import MeasurementFacts, ReportFacts
from reports.keys import LOG_ORIGIN as ORIGIN
from reports.keys import KeySet
from reports.log import TransparencyLog
from reports.pdf import render, renderer
from reports.recount import savings_document
from reports.statement import billing_statement, evidence_digest, measurement_statement
from reports.sufficiency import REMEASURED, sufficiency_facts
from tests.reports.parties import Sides

RECORDING = Path(__file__).parent / "recorded_evidence.tar.xz"
# Recorded under the method that examines sufficiency; the other one is of the first method.
EXAMINED_RECORDING = Path(__file__).parent / "recorded_examined.tar.xz"
MODEL, SYSTEM = "paraphrase-MiniLM-L3-v2", "edge-box-7 revision B"
LABEL = "2026-11"
NUMBER = "INV-2026-0007"
ISSUED = datetime(2026, 12, 2, 9, 30, tzinfo=UTC)
EXPORTS = {"journal.csv": b"account,debit,credit\nreceivables,1.00,\nrevenue,,1.00\n"}


@dataclass(frozen=True)
class Story:
    """Evidence with its money part, and what is stated about it."""

    evidence: Path
    facts: ReportFacts
    payload: bytes


def unpack_recording(evidence: Path, recording: Path = RECORDING) -> None:
    evidence.mkdir(parents=True)
    with tarfile.open(recording) as packed:
        packed.extractall(evidence, filter="data")


def tell(
    evidence: Path, *, samples: int = 2_000_000_000, overrides: Sequence[Override] = ()
) -> Story:
    """Measured facts, then usage, savings, fee and invoice into `evidence`, then all facts."""
    measured = measured_facts(evidence)
    payload = measurement_statement(evidence, measured)
    facts = money(evidence, measured, payload, samples, overrides)
    return Story(evidence, facts, payload)


def measured_facts(evidence: Path) -> MeasurementFacts:
    found = recompute(evidence)
    texts = found.to_dict()
    plan = MeasurementPlan.from_json(strict_json((evidence / "plan.json").read_bytes()))
    system = json.loads((evidence / "system.json").read_text())["machine"]
    lengths = json.loads((evidence / "mix.json").read_text())["length_histogram"]
    uplift = texts["uplift"]

    def ratios(part: str) -> list[str]:
        return [f"{math.exp(ratio):.9f}" for ratio in load_paired(evidence / part).log_ratios()]

    sut = found.baseline.sut
    words = f"{sut.threads} thread, {sut.arrangement}, batch {sut.batch}, {sut.graph_optimization}"
    return MeasurementFacts.from_json(
        {
            "measurement_id": "m-0001",
            "method_version": plan.method_version,
            "organisation": {"name": "M\u00fcller & S\u00f6hne GmbH", "reference": "ORG-0031"},
            "auditor": {"name": "Northlight Assurance", "reference": "AUD-0004"},
            "measured_at": "2026-11-30T08:00:00Z",
            "system": {
                "name": SYSTEM,
                "fingerprint": system["fingerprint"],
                "processor": system["cpu_model"],
                "cores": str(system["cores"]),
                "memory_bytes": str(system["memory_bytes"]),
                "accelerators": [],
            },
            "mix": {
                "model": MODEL,
                "model_sha256": found.baseline.model_sha256,
                "samples": str(sum(lengths.values())),
                "samples_sha256": found.baseline.samples_sha256,
                "traffic": [
                    {"tokens": length, "samples": str(lengths[length])}
                    for length in sorted(lengths, key=int)
                ],
            },
            "plan": {
                "plan_id": plan.plan_id,
                "digest": plan.digest,
                "option": plan.option,
                "scenario": plan.scenario,
                "precision": plan.precision,
                "cores": str(len(plan.cores)),
                "run_seconds": str(plan.run_seconds),
                "pairs": str(plan.pairs),
                "aa_pairs": str(plan.aa_pairs),
                "minimum_effect": str(plan.minimum_effect),
                "accuracy_floor_cosine": str(plan.accuracy_floor_cosine),
                "short_run": plan.short_run,
            },
            "baseline": {
                "stack": found.baseline.stack,
                "version": found.baseline.version,
                "configuration": words,
                "samples_per_second": str(found.baseline_samples_per_second),
                "frozen_at": found.baseline.to_dict()["frozen_at"],
                "sha256": sha256_file(evidence / "baseline" / "baseline.json"),
                "sweep": [
                    {
                        "stack": row.sut.stack,
                        "version": found.baseline.version,
                        "configuration": f"{row.sut.arrangement}, batch {row.sut.batch}",
                        "samples_per_second": str(row.samples_per_second),
                        "state": row.state,
                        "chosen": row.sut == sut,
                    }
                    for row in found.baseline.table
                ],
            },
            "aa": {
                "passed": found.aa.passed,
                "lo": texts["aa"]["lo"],
                "hi": texts["aa"]["hi"],
                "pairs": str(plan.aa_pairs),
                "ratios": ratios("aa"),
                "reason": texts["aa"]["reason"] or "holds zero, narrower than half the claim",
            },
            "uplift": {
                "kept": found.decision.kept,
                "reason": "; ".join(found.decision.reasons) or "gate, accuracy and bound hold",
                "point": uplift["point"],
                "lo": uplift["lo"],
                "hi": uplift["hi"],
                "lower_95": uplift["lower_95"],
                "pairs": str(found.pairs),
                "ratios": ratios("uplift"),
                "optimised_samples_per_second": str(
                    round(found.baseline_samples_per_second * (1 + Decimal(uplift["point"])), 2)
                ),
                "energy": energy_facts(found.energy.to_dict()).model_dump(exclude_none=True),
            },
            "accuracy": {
                "passed": found.accuracy.passed,
                "samples": str(found.accuracy.samples),
                "min_cosine": texts["accuracy"]["min_cosine"],
                "mean_cosine": texts["accuracy"]["mean_cosine"],
                "max_abs_error": texts["accuracy"]["max_abs_error"],
                "floor_cosine": texts["accuracy"]["floor"],
            },
            "search": {
                "trials": "12",
                "accepted": "2",
                "rejected": [{"reason": "slower than the incumbent", "trials": "10"}],
                "seconds": "10",
                "cost": "0.0001",
                "currency": "EUR",
                "package_manifest_sha256": sha256_file(evidence / "kernel" / "manifest.json"),
            },
        }
    )


def contract() -> Contract:
    """20 % of the savings on the lower bound, 10 % held back, 19 % VAT."""
    return Contract(
        contract_id="C-2026-004",
        version=1,
        provider=Party("ignition", "Ignition", "DE", tax_id="DE999999999"),
        customer=Party("mueller", "M\u00fcller & S\u00f6hne GmbH", "DE", tax_id="DE123456789"),
        auditor="Northlight Assurance",
        currency="EUR",
        zone="Europe/Berlin",
        valid_from=datetime(2026, 1, 1, tzinfo=UTC),
        tiers=flat_share("0.20"),
        holdback=Decimal("0.10"),
        vat=Decimal("0.19"),
    )


def examined(
    evidence: Path, cover: Coverage, baseline: Baseline, overrides: Sequence[Override]
) -> tuple[Sufficiency, ...]:
    """What the portal examines under the plan's method: nothing under the first two."""
    plan = MeasurementPlan.from_json(strict_json((evidence / "plan.json").read_bytes()))
    if not demands_sufficiency(plan.method_version):
        return ()
    terms = contract()
    days = list(run_days(evidence / "baseline" / "runs", baseline.runs, terms.zone))
    again = sorted((evidence / REMEASURED).glob("*/baseline"))
    for folder in again:
        days += run_days(folder / "runs", load(folder).runs, terms.zone)
    found = evidence_of(
        cover, days, contract=terms, meter_zone=plan.zone,
        remeasured=[sha256_file(folder / "baseline.json") for folder in again],
    )  # fmt: skip
    return (Sufficiency(cover.model, cover.system, found, tuple(overrides)),)


def money(
    evidence: Path,
    measured: MeasurementFacts,
    payload: bytes,
    samples: int,
    overrides: Sequence[Override],
) -> ReportFacts:
    terms = contract()
    plan = MeasurementPlan.from_json(strict_json((evidence / "plan.json").read_bytes()))
    book = PriceBook("EUR", Decimal("0.048"), datetime(2026, 1, 1, tzinfo=UTC), "price list 2026")
    period = Period.month(LABEL, terms.zone)
    events = generate_month([TrafficShare(MODEL, SYSTEM)], period, samples=samples, seed=3)
    data = "".join(f"{line}\n" for line in events).encode()
    totals, (cover,) = metered(
        read_events(data.splitlines(keepends=True)),
        period,
        terms.zone,
        [(MODEL, SYSTEM)],
        known={(MODEL, SYSTEM)},
        not_before=terms.valid_from,
    )
    found = recompute(evidence)
    sufficiency = examined(evidence, cover, found.baseline, overrides)
    line = savings_line(
        model=MODEL,
        system=SYSTEM,
        period=period,
        volume=totals.volume(MODEL, SYSTEM),
        baseline_samples_per_second=str(found.baseline_samples_per_second),
        cores=len(plan.cores),
        price_book=book,
        uplift_point=measured.uplift.point,
        uplift_lower_95=measured.uplift.lower_95,
        baseline_id=measured.baseline.sha256,
        uplift_id=measured.measurement_id,
        evidence_digest=sha256_bytes(payload),
        method_version=plan.method_version,
        kept=found.decision.kept,
        not_kept_reason="; ".join(found.decision.reasons),
        gate="; ".join(filter(None, (item.verdict.gate for item in sufficiency))),
    )
    verified = verified_savings([line], evidence_digest=sha256_bytes(payload))
    breakdown = fee(terms, LedgerState(), verified)
    noted = [text for item in sufficiency for text in item.verdict.noted]
    invoice = build_invoice(
        breakdown, contract=terms, plan=plan, number=NUMBER, series="INV-2026", issued_at=ISSUED,
        notes=noted,
    )  # fmt: skip
    inputs = {"known": [[MODEL, SYSTEM]], "not_before": "2026-01-01T00:00:00Z", "cutoff": None}
    parts = {
        "contract.json": canonical.dumps(terms.to_json()),
        "pricebook.json": canonical.dumps(book.to_json()),
        f"usage/{LABEL}/events.jsonl": data,
        f"usage/{LABEL}/totals.json": canonical.dumps(totals.to_json()),
        f"usage/{LABEL}/inputs.json": canonical.dumps(inputs),
        f"savings/{LABEL}.json": savings_document([line], LedgerState(), breakdown, sufficiency),
        f"invoice/{NUMBER}.json": canonical.dumps(invoice.to_json()),
    }
    for name, part in parts.items():
        (evidence / name).parent.mkdir(parents=True, exist_ok=True)
        (evidence / name).write_bytes(part)

    def text(value: Decimal, places: str = "0.000001") -> str:
        return f"{value.quantize(Decimal(places)):f}"

    return ReportFacts.from_json(
        {
            "facts_version": "ignition-facts/v1",
            "document": {
                "number": "R-2026-0007",
                "version": "1",
                "title": "Measured savings report",
                "status": "issued",
                "issued_at": "2026-12-02T09:30:00Z",
            },
            "invoice": {
                "number": NUMBER,
                "status": "issued",
                "issued_on": invoice.issued_on.isoformat(),
                "due_on": invoice.due_on.isoformat(),
            },
            "period": {
                "label": "November 2026",
                "zone": period.zone,
                "start": period.to_json()["start"],
                "end": period.to_json()["end"],
            },
            "measurement": measured.to_json(),
            "usage": {
                **{
                    name: str(getattr(totals, name))
                    for name in (
                        *("samples", "accepted", "duplicates", "conflicts"),
                        *("late", "early", "rejected"),
                    )
                },
                "rows": [
                    {"model": v.model, "system": v.system, "samples": str(v.samples)}
                    for v in totals.volumes
                ],
            },
            "savings": {
                "currency": "EUR",
                "volume_samples": str(line.volume),
                "price_per_core_hour": "0.048",
                "cores": str(line.cores),
                "baseline_samples_per_second": str(line.baseline_samples_per_second),
                "baseline_cost_per_sample": text(
                    line.cost_per_million_before / 1_000_000, "0.000000000000000001"
                ),
                "uplift_point": str(line.uplift_point),
                "uplift_lower_95": str(line.uplift_lower_95),
                **{
                    name: text(getattr(line, name))
                    for name in ("counterfactual", "point", "bound", "billable")
                },
                "reason": line.reason or None,
            },
            "fee": {
                "contract": "C-2026-004 version 1",
                "currency": "EUR",
                "lines": [
                    *(
                        {"label": item.description, "amount": str(item.amount)}
                        for item in invoice.lines
                    ),
                    {"label": "Holdback, released after review", "amount": f"-{invoice.holdback}"},
                ],
                "net": str(invoice.net),
                "tax": str(invoice.tax),
                "total": str(invoice.payable),
            },
            "exports": [
                {
                    "name": name,
                    "format": "debit and credit",
                    "sha256": sha256_bytes(data),
                    "size_bytes": str(len(data)),
                }
                for name, data in EXPORTS.items()
            ],
            "limits": [
                "Short-run plan: each run lasted about a second.",
                "MLPerf LoadGen based, not verified by MLCommons.",
                "Software keys: the signing keys are files, not held in a hardware module.",
                "Self-asserted time: no independent time stamp was taken.",
                "SQLite mode: the database has no roles.",
                "Missing witness: no second party cosigned the log's checkpoint.",
            ],
            "evidence_digest": evidence_digest(evidence),
            "measurement_statement_sha256": sha256_bytes(payload),
            "sufficiency": [
                item.model_dump(mode="json") for item in sufficiency_facts(sufficiency)
            ],
        }
    )


def forge(
    story: Story,
    sides: Sides,
    folder: Path,
    out: Path,
    *,
    change: Callable[[dict[str, Any]], None] = lambda facts: None,
    platform: KeySet | None = None,
    auditor: KeySet | None = None,
    log: TransparencyLog | None = None,
) -> Path:
    """A bundle that both sides sign without looking: what only recomputing can catch.

    `change` alters the facts before everything is signed over them; the evidence is taken as it
    lies in `story.evidence`. `platform` and `auditor` sign in the place of the right ones.
    """
    by_platform, by_auditor = platform or sides.platform, auditor or sides.auditor
    facts_json = story.facts.to_json()
    change(facts_json)
    payload = measurement_statement(
        story.evidence, MeasurementFacts.from_json(facts_json["measurement"])
    )
    facts_json["measurement_statement_sha256"] = sha256_bytes(payload)
    facts_json["evidence_digest"] = evidence_digest(story.evidence)
    facts = ReportFacts.from_json(facts_json)
    shutil.copytree(story.evidence, folder / "evidence")
    (folder / "exports").mkdir()
    for name, data in EXPORTS.items():
        (folder / "exports" / name).write_bytes(data)
    (folder / FACTS).write_bytes(facts.to_bytes())
    (folder / "VERIFY.txt").write_text(verify_text())
    billing = billing_statement(folder / "evidence", facts, EXPORTS, renderer())
    for name, data in ((STATEMENT, payload), (BILLING, billing)):
        signed = envelope.add(envelope.sign(data, by_platform.statement), by_auditor.statement)
        (folder / name).write_bytes(signed)
    certified = pdfsign.certify(render(facts), by_platform)
    (folder / REPORT).write_bytes(pdfsign.countersign(certified, by_auditor))
    seal_again(folder, by_platform, by_auditor, log or TransparencyLog(out.parent / "log", ORIGIN))
    write(folder, out)
    return out


def seal_again(folder: Path, platform: KeySet, auditor: KeySet, log: TransparencyLog) -> None:
    """List, both signatures over it, log entry and proof, for whatever lies in `folder`."""
    for name in manifest.UNLISTED:
        (folder / name).unlink(missing_ok=True)
    listing = manifest.build(folder)
    (folder / manifest.NAME).write_bytes(listing)
    (folder / manifest.AUDITOR_SIGNATURE).write_bytes(sshsig.sign(auditor.manifest, listing))
    (folder / manifest.PLATFORM_SIGNATURE).write_bytes(sshsig.sign(platform.manifest, listing))
    number = json.loads((folder / FACTS).read_bytes())["document"]["number"]
    entry = manifest.log_entry(listing, number)
    log.append(entry)
    proof = log.prove(entry, log.checkpoint(platform.note))
    (folder / manifest.LOG_PROOF).write_bytes(proof.text().encode())
