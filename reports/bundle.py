"""From evidence and facts to the sealed bundle: assemble, let the auditor sign, seal.

In: an evidence folder, facts, the countersigned measurement statement, exports, keys. Out: a
staging folder, then one zip. Three steps by two parties: `assemble` (platform: PDF certified,
billing statement signed), `auditor_sign` (the auditor's own tool: recompute first, then sign),
`seal` (platform: signs the list, logs it, packs). Nothing is signed before its contents were
checked, and no step ever holds both sides' private keys.

    report.pdf  facts.json  statement.dsse.json  billing.dsse.json  evidence/**  exports/*
    VERIFY.txt  SHA256SUMS  SHA256SUMS.sig  SHA256SUMS.auditor.sig  report.tlog-proof
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from reports import envelope, manifest, pdfsign, sshsig
from reports.archive import files_under, require_safe_name, write
from reports.canonical import canonical_document
from reports.contents import Checks, check_contents
from reports.errors import ReportError
from reports.facts import MeasurementFacts, ReportFacts
from reports.keys import KeySet, load_keys, write_private_file
from reports.log import TransparencyLog
from reports.pdf import render, renderer
from reports.recount import recount_measurement
from reports.statement import (
    MEASUREMENT_TYPE,
    billing_statement,
    measurement_statement,
    read_statement,
)
from reports.trust import TrustStore, load_trust

REPORT, FACTS = "report.pdf", "facts.json"
STATEMENT, BILLING = "statement.dsse.json", "billing.dsse.json"


def assemble(
    staging: Path,
    *,
    evidence: Path,
    facts: ReportFacts,
    measurement_envelope: bytes,
    exports: Mapping[str, bytes],
    keys: KeySet,
    now: datetime | None = None,
) -> Path:
    """Build the staging folder: everything the platform signs before the auditor does.

    Raises ReportError, before any key is used, when evidence, facts, statements and exports do
    not agree, the figures do not recompute, or the report is dated later than `now` (the clock's
    time when None). An older staging folder is replaced as a whole.
    """
    present = (now or datetime.now(UTC)).astimezone(UTC)
    if datetime.fromisoformat(facts.document.issued_at) > present:
        raise ReportError(
            f"document.issued_at is {facts.document.issued_at}, but it is only "
            f"{present.isoformat(timespec='seconds')}; a report is not dated ahead"
        )
    part = staging.with_name(f".{staging.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    for name in files_under(evidence):
        target = part / "evidence" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(evidence / name, target)
    (part / "exports").mkdir(exist_ok=True)
    for name, data in exports.items():
        (part / "exports" / require_safe_name(name)).write_bytes(data)
    (part / FACTS).write_bytes(facts.to_bytes())
    (part / STATEMENT).write_bytes(measurement_envelope)
    (part / "VERIFY.txt").write_bytes(verify_text().encode("ascii"))
    billing = billing_statement(part / "evidence", facts, exports, renderer())
    measurement, _ = envelope.read(measurement_envelope)
    checks = Checks()
    check_contents(part, measurement, billing, checks)
    checks.require("signing the report")
    (part / BILLING).write_bytes(envelope.sign(billing, keys.statement))
    (part / REPORT).write_bytes(pdfsign.certify(render(facts), keys))
    shutil.rmtree(staging, ignore_errors=True)
    part.replace(staging)
    return staging


def sign_statement(
    data: bytes,
    auditor_keys_dir: Path,
    *,
    evidence: Path,
    trust: Path | None = None,
    passphrase: str | None = None,
) -> bytes:
    """The auditor's tool, first signature: recompute a measurement from `evidence`, then sign.

    `data` is the envelope the platform signed; `trust` holds the platform's public keys (default:
    a folder `trust` beside the auditor's). Raises ReportError when anything does not hold.
    """
    store = load_trust(trust or auditor_keys_dir.parent / "trust")
    payload = envelope.verify(data, store.statement_keys, ("platform",))
    statement = read_statement(payload, MEASUREMENT_TYPE)
    facts = MeasurementFacts.from_json(statement.predicate["facts"])
    if measurement_statement(evidence, facts) != payload:
        raise ReportError(
            f"the statement is not about the measured files in {evidence}; nothing was signed. "
            "Get the evidence this statement names, or ask for a statement on this evidence."
        )
    recount_measurement(evidence, facts)
    keys = load_keys(auditor_keys_dir, "auditor", passphrase)
    return envelope.add(data, keys.statement)


def auditor_sign(
    staging: Path,
    auditor_keys_dir: Path,
    *,
    trust: Path | None = None,
    passphrase: str | None = None,
) -> Path:
    """The auditor's tool, second time: check and recompute all, countersign, sign the list.

    Idempotent: a folder that is signed already comes back as it is. `trust` as in
    `sign_statement`. Raises ReportError naming every check that failed; then nothing was signed.
    """
    store = load_trust(trust or auditor_keys_dir.parent / "trust")
    report, billing = (staging / REPORT).read_bytes(), (staging / BILLING).read_bytes()
    if (staging / manifest.AUDITOR_SIGNATURE).exists():
        if manifest.build(staging) != (staging / manifest.NAME).read_bytes():
            raise ReportError(f"{staging} was changed after it was signed; assemble it again")
        return staging
    checks = Checks()
    measured = checks.run(
        "measurement-statement",
        lambda: envelope.verify((staging / STATEMENT).read_bytes(), store.statement_keys),
        lambda _: "signed by platform and auditor",
    )
    roles = ("platform",) if len(envelope.read(billing)[1]) == 1 else ("platform", "auditor")
    billed = checks.run(
        "billing-statement",
        lambda: envelope.verify(billing, store.statement_keys, roles),
        lambda _: f"signed by {' and '.join(roles)}",
    )
    checks.require("countersigning")
    facts = check_contents(staging, measured or b"", billed or b"", checks)
    checks.require("countersigning")
    if facts is None or not report.startswith(render(facts)):
        raise ReportError("the PDF is not the one these facts give; nothing was signed")
    countersigned = _countersigned(report, store)
    keys = load_keys(auditor_keys_dir, "auditor", passphrase)
    # Either may be there already when this tool was killed half-way.
    if not countersigned:
        _replace(staging / REPORT, pdfsign.countersign(report, keys))
    _replace(staging / BILLING, envelope.add(billing, keys.statement))
    listing = manifest.build(staging)
    _replace(staging / manifest.NAME, listing)
    _replace(staging / manifest.AUDITOR_SIGNATURE, sshsig.sign(keys.manifest, listing))
    return staging


def seal(staging: Path, keys: KeySet, log: TransparencyLog, out: Path) -> Path:
    """Sign the list for the platform, log its digest, pack the zip to `out`; returns `out`.

    Raises ReportError when the auditor has not signed or a file changed since they did.
    Sealing the same folder again gives an entry the log already holds.
    """
    if keys.role != "platform":
        raise ReportError(f"the {keys.role} may not seal a bundle; the platform does")
    if not (staging / manifest.AUDITOR_SIGNATURE).exists():
        raise ReportError(f"{staging} has no {manifest.AUDITOR_SIGNATURE}; the auditor signs first")
    listing = (staging / manifest.NAME).read_bytes()
    if manifest.build(staging) != listing:
        raise ReportError(f"{staging} was changed after the auditor signed; assemble it again")
    facts = ReportFacts.from_json(canonical_document((staging / FACTS).read_bytes()))
    _replace(staging / manifest.PLATFORM_SIGNATURE, sshsig.sign(keys.manifest, listing))
    entry = manifest.log_entry(listing, facts.document.number)
    log.append(entry)
    proof = log.prove(entry, log.checkpoint(keys.note))
    _replace(staging / manifest.LOG_PROOF, proof.text().encode())
    write(staging, out)
    return out


def verify_text() -> str:
    """VERIFY.txt: how a stranger checks the bundle with tools that are not ours."""
    return f"""\
HOW TO CHECK THIS BUNDLE WITHOUT TRUSTING THE PLATFORM

You need: sha256sum (coreutils), ssh-keygen (openssh-client), pdfsig (poppler-utils), and the
trust folder with the public keys. Get that folder from your contract, never from this bundle,
and compare its fingerprints by phone or on paper. Unpack, go into the folder, then:

TRUST=/path/to/trust
sha256sum --strict -c SHA256SUMS
ssh-keygen -Y verify -f "$TRUST/allowed_signers" -I platform -n {sshsig.NAMESPACE} \
-s SHA256SUMS.sig < SHA256SUMS
ssh-keygen -Y verify -f "$TRUST/allowed_signers" -I auditor -n {sshsig.NAMESPACE} \
-s SHA256SUMS.auditor.sig < SHA256SUMS
pdfsig -nocert report.pdf

Good is: every file OK, two times "Good", and in the PDF two times "Signature is Valid", the last
one with "Total document signed". pdfsig ends with 0 for a changed file too: read what it prints.
These commands do not see a file that nobody listed, and the certificates in the PDF are only
judged with an NSS folder (the trust folder's README.txt shows how). This sees all of it, and
recomputes the uplift and the fee from the evidence:

python -m reports verify BUNDLE.zip --trust "$TRUST"
"""


def _countersigned(report: bytes, store: TrustStore) -> bool:
    """Whether the auditor's signature is on the PDF; the platform's must be, or ReportError."""
    try:
        pdfsign.check(report, store.roots)
    except ReportError:
        pdfsign.check(report, store.roots, ("platform",))
        return False
    return True


def _replace(path: Path, data: bytes) -> None:
    write_private_file(path, data, 0o644)
