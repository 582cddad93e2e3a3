"""Steps "prepare", "seal" and "verify": from an issued invoice to a bundle a stranger can check.

In: an invoice with its approved measurement. Out: first a staging folder that the platform has
signed; then, once the auditor has countersigned it with their own tool, the sealed bundle, its
verification and one Report row. The money part of the evidence is copied beside the measured
part, so that the measured folder never changes after its digest was signed.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from django.db import connection

from metering import canonical
from metering.contract import Contract, LedgerState, fee
from metering.fields import instant_text
from metering.savings import SavingsLine, verified_savings
from metering.usage import decisions_document
from portal.accounts.access import Actor
from portal.audits.models import Review
from portal.billing.exports import export_files
from portal.billing.models import Invoice
from portal.billing.savings import frozen_sufficiency
from portal.billing.sufficiency import remeasured
from portal.billing.usage import period_lines
from portal.billing.usage_keys import period_decisions
from portal.documents.models import Report
from portal.documents.services import report_issue
from portal.keystore import platform_keys, transparency_log, trust_store
from portal.runs.pipeline.facts import limits_of, report_facts
from portal.workspace import WorkspaceError, absolute, home, write
from reports import bundle
from reports.canonical import canonical_document, sha256_bytes
from reports.envelope import read
from reports.facts import ReportFacts
from reports.manifest import AUDITOR_SIGNATURE
from reports.note import LogProof
from reports.recount import savings_document
from reports.sufficiency import REMEASURED
from reports.verify import verify


def report_folder(invoice: Invoice) -> Path:
    """Where everything about an invoice's report lies."""
    return home() / "documents" / "reports" / invoice.number


def staging_folder(invoice: Invoice) -> Path:
    """What the auditor takes, checks with their own tool, countersigns and brings back."""
    return report_folder(invoice) / "staging"


def approved_review(invoice: Invoice) -> Review:
    """The review behind an invoice; DoesNotExist when nothing was approved."""
    return Review.objects.select_related("auditor_key").get(
        measurement=invoice.measurement, state=Review.State.APPROVED
    )


def prepare(*, invoice: Invoice) -> Path:
    """Return the staging folder, built and signed by the platform when it is not there yet."""
    staging = staging_folder(invoice)
    if Report.objects.filter(invoice=invoice).exists() or (staging / bundle.REPORT).is_file():
        return staging
    review = approved_review(invoice)
    evidence = _period_evidence(invoice)
    exports = export_files(invoice)
    # What the report says in a part of its own is not said again among its limits.
    examined = frozen_sufficiency(invoice.savings)
    said = {line for item in examined for line in item.verdict.noted}
    notes = [
        note for note in invoice.document["notes"] if note not in said and "short-run" not in note
    ]
    notes += _decided(invoice)
    facts = report_facts(
        invoice=invoice,
        review=review,
        evidence=evidence,
        exports=exports,
        limits=limits_of(invoice, sqlite=connection.vendor == "sqlite", notes=notes),
    )
    bundle.assemble(
        staging,
        evidence=evidence,
        facts=facts,
        measurement_envelope=review.envelope.encode("ascii"),
        exports={name: data for name, (_, data) in exports.items()},
        keys=platform_keys(),
        now=invoice.issued_at,
    )
    # The staging folder holds its own copy now.
    shutil.rmtree(evidence)
    return staging


def _decided(invoice: Invoice) -> list[str]:
    """What a reader must know of the usage: people decided which content counts."""
    count = len(period_decisions(invoice.period, invoice.savings.usage_until))
    if not count:
        return []
    return [
        f"Conflicts of usage that a person decided: {count}; each stands with its contents and its"
        f" reason in usage/{invoice.period.label}/decisions.json of the evidence."
    ]


def _period_evidence(invoice: Invoice) -> Path:
    """The measured evidence plus this period's money, in a folder of its own."""
    folder = report_folder(invoice) / "evidence.tmp"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(
        absolute(invoice.measurement.evidence_path), folder, copy_function=_link_or_copy
    )
    version = invoice.measurement.contract_version
    contract = Contract.from_json(version.contract)
    savings, label = invoice.savings, invoice.period.label
    usage = folder / "usage" / label
    delivered = period_lines(invoice.period, savings.usage_until)
    write(usage / "events.jsonl", "".join(f"{line}\n" for line in delivered).encode())
    decisions = period_decisions(invoice.period, savings.usage_until)
    if decisions:
        write(usage / "decisions.json", canonical.dumps(decisions_document(decisions)))
    write(usage / "totals.json", canonical.dumps(savings.usage))
    write(
        usage / "inputs.json",
        canonical.dumps(
            {
                "known": [[version.mix.model.name, version.system.name]],
                "not_before": instant_text(contract.valid_from),
                "cutoff": None,
            }
        ),
    )
    lines = [SavingsLine.from_json(line) for line in savings.document["lines"]]
    before = LedgerState.from_json(savings.document["state_before"])
    verified = verified_savings(
        lines, evidence_digest=savings.document["breakdown"]["evidence_digest"]
    )
    examined = frozen_sufficiency(savings)
    data = savings_document(lines, before, fee(contract, before, verified), examined)
    if sha256_bytes(data) != savings.sha256:
        raise WorkspaceError(f"{savings}: its stored document no longer gives its digest")
    write(folder / "savings" / f"{label}.json", data)
    counted = {digest for item in examined for digest in item.evidence.remeasured}
    for entry in remeasured(version):
        if entry.baseline_sha256 in counted:
            _copy_baseline(absolute(entry.evidence_path), folder / REMEASURED / f"{entry.number}")
    write(folder / "invoice" / f"{invoice.number}.json", canonical.dumps(invoice.document))
    return folder


def _copy_baseline(source: Path, target: Path) -> None:
    """What a reader needs to work a re-measured baseline out again, and nothing else."""
    shutil.copytree(source / "baseline", target / "baseline", copy_function=_link_or_copy)
    for name in ("plan.json", "system.json", "mix.json"):
        _link_or_copy(str(source / name), str(target / name))


def _link_or_copy(source: str, target: str) -> str:
    """A hard link where the file system has them: the measured files never change."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return target


def countersigned(invoice: Invoice) -> bool:
    """Whether the auditor has signed the staging folder."""
    return (staging_folder(invoice) / AUDITOR_SIGNATURE).is_file()


def seal(*, actor: Actor, invoice: Invoice) -> Report:
    """Seal the countersigned folder, verify the bundle as a stranger would, issue the report.

    WorkspaceError when the auditor has not signed yet. A bundle that does not verify still gets
    its row, with the failed checks on it: a person has to see that.
    """
    staging = staging_folder(invoice)
    found: Report | None = Report.objects.filter(invoice=invoice).first()
    if found:
        # A run that was killed right after the row was written left the folder behind.
        shutil.rmtree(staging, ignore_errors=True)
        return found
    if not countersigned(invoice):
        raise WorkspaceError(
            f"{invoice}: the auditor has not countersigned; they run 'python -m reports"
            f" auditor-sign' on {staging}"
        )
    folder = report_folder(invoice)
    sealed = folder / "bundle.zip"
    bundle.seal(staging, platform_keys(), transparency_log(), sealed)
    review = approved_review(invoice)
    if review.auditor_key is None:
        raise WorkspaceError(f"{review}: approved without a key")
    trust = trust_store(review.auditor_key.key_id, public_files_of(review))
    checked = verify(sealed, trust.directory)
    facts_bytes = (staging / bundle.FACTS).read_bytes()
    facts = ReportFacts.from_json(canonical_document(facts_bytes))
    pdf = folder / "report.pdf"
    write(pdf, (staging / bundle.REPORT).read_bytes())
    billing, _ = read((staging / bundle.BILLING).read_bytes())
    proof = LogProof.parse((staging / "report.tlog-proof").read_bytes())
    report = report_issue(
        actor=actor,
        invoice=invoice,
        facts=json.loads(facts_bytes),
        facts_sha256=sha256_bytes(facts_bytes),
        statement_sha256=sha256_bytes(billing),
        pdf=pdf,
        bundle=sealed,
        log_index=proof.index,
        checkpoint=proof.checkpoint_note,
        verified=checked.ok and checked.report_number == facts.document.number,
        verification=checked.to_json(),
        issued_at=invoice.issued_at,
    )
    shutil.rmtree(staging)
    return report


def public_files_of(review: Review) -> Mapping[str, str]:
    """The registered public halves of the approving auditor, statement key included."""
    key = review.auditor_key
    if key is None:
        raise WorkspaceError(f"{review}: approved without a key")
    return {**key.public_files, "statement.pub.pem": key.public_key_pem}
