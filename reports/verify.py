"""Is this bundle what it says? One answer, made of named checks, offline.

In: a zip from a stranger and a trust folder from elsewhere. Out: `Verification`. The zip is read
by streaming under caps, the keys come from the trust folder alone, both recomputations use the
evidence alone. Everything must hold: a bundle that fails one check is not believed at all.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reports import envelope, manifest, pdfsign, sshsig
from reports.archive import unpack
from reports.bundle import BILLING, FACTS, REPORT, STATEMENT
from reports.canonical import strict_json
from reports.contents import Check, Checks, check_contents
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.merkle import includes, leaf_hash
from reports.note import Checkpoint, LogProof, verify_note
from reports.pdf import render, renderer
from reports.statement import BILLING_TYPE, read_statement
from reports.trust import TrustStore, load_trust

__all__ = ["Check", "Verification", "verify"]


@dataclass(frozen=True)
class Verification:
    """The answer: `ok` only if every check holds."""

    ok: bool
    checks: tuple[Check, ...]
    report_number: str | None = None

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(check.name for check in self.checks if not check.ok)

    def to_json(self) -> dict[str, Any]:
        return {
            "checks": [
                {"detail": check.detail, "name": check.name, "ok": check.ok}
                for check in self.checks
            ],
            "failed": list(self.failed),
            "ok": self.ok,
            "report_number": self.report_number,
        }


def verify(bundle: Path, trust: Path) -> Verification:
    """Check `bundle` against the keys in `trust`. Never raises for what is in either of them."""
    checks = Checks()
    number: str | None = None
    store = checks.run(
        "trust",
        lambda: load_trust(trust),
        lambda value: f"{len(value.statement_keys)} statement keys, two roots, one log",
    )
    with tempfile.TemporaryDirectory(prefix="ignition-verify-") as temporary:
        folder = Path(temporary)
        names = checks.run(
            "archive",
            lambda: unpack(bundle, folder),
            lambda value: f"{len(value)} files, container in its one exact form",
        )
        if store is not None and names is not None:
            number = _verify_folder(folder, names, store, checks)
    return Verification(checks.ok, tuple(checks.done), number)


def _verify_folder(
    folder: Path, names: tuple[str, ...], store: TrustStore, checks: Checks
) -> str | None:
    def data(name: str) -> bytes:
        return (folder / name).read_bytes()

    digests = checks.run(
        "listing",
        lambda: _listing(data(manifest.NAME), names),
        lambda value: f"{len(value)} files listed, none unlisted",
    )
    if digests is not None:
        listed = digests
        checks.run(
            "digests",
            lambda: manifest.require_same_digests(listed, folder),
            lambda _: "every file is the one listed",
        )

    def signed(role: str, name: str) -> str:
        return sshsig.verify(
            data(name),
            data(manifest.NAME),
            allowed_signers=store.allowed_signers,
            identity=role,
            revoked_keys=store.revoked_keys,
            at=_issue_time(data(FACTS)),
        )

    checks.run("manifest-platform", lambda: signed("platform", manifest.PLATFORM_SIGNATURE), str)
    checks.run("manifest-auditor", lambda: signed("auditor", manifest.AUDITOR_SIGNATURE), str)
    measured = checks.run(
        "measurement-statement",
        lambda: envelope.verify(data(STATEMENT), store.statement_keys),
        lambda _: "signed by two distinct keys, platform and auditor",
    )
    billed = checks.run(
        "billing-statement",
        lambda: envelope.verify(data(BILLING), store.statement_keys),
        lambda _: "signed by two distinct keys, platform and auditor",
    )
    checks.run(
        "pdf-signatures",
        lambda: pdfsign.check(data(REPORT), store.roots),
        lambda found: "; ".join(f"{item.field}: {item.signer}, {item.signed_at}" for item in found),
    )
    facts: ReportFacts | None = None
    if measured is not None and billed is not None:
        facts = check_contents(folder, measured, billed, checks)
    if facts is not None:
        known = facts
        checks.run("pdf-rendered", lambda: _rendered(data(REPORT), known, billed or b""), str)
        checks.run(
            "log-proof",
            lambda: _logged(data(manifest.LOG_PROOF), data(manifest.NAME), known, store),
            str,
        )
    return facts.document.number if facts is not None else None


def _listing(data: bytes, names: tuple[str, ...]) -> dict[str, str]:
    digests = manifest.parse(data)
    manifest.require_same_files(digests, names)
    missing = {REPORT, FACTS, STATEMENT, BILLING, "VERIFY.txt"} - set(digests)
    if missing:
        raise ReportError(f"{manifest.NAME} does not list {', '.join(sorted(missing))}")
    return digests


def _issue_time(facts: bytes) -> str:
    """When keys are judged: the time the report states for itself, as ssh-keygen wants it."""
    stated = strict_json(facts)["document"]["issued_at"]
    return datetime.fromisoformat(stated).astimezone(UTC).strftime("%Y%m%d%H%M%S")


def _rendered(report: bytes, facts: ReportFacts, billing: bytes) -> str:
    """The PDF's unsigned revision must be what these facts give with the renderer they name."""
    named = read_statement(billing, BILLING_TYPE).predicate["renderer"]
    if named != renderer():
        # The PDF is under the signed list all the same; only the byte comparison has to wait.
        return f"not compared: drawn with {named}, this is {renderer()}"
    if not report.startswith(render(facts)):
        raise ReportError("the PDF before signing is not what facts.json gives")
    return f"re-rendered from facts.json, same bytes ({named})"


def _logged(proof_data: bytes, listing: bytes, facts: ReportFacts, store: TrustStore) -> str:
    proof = LogProof.parse(proof_data)
    text, signers = verify_note(proof.checkpoint_note, [store.log, *store.witnesses])
    if store.log.name not in signers:
        raise ReportError("the checkpoint is not signed by the log's own key")
    checkpoint = Checkpoint.parse(text)
    if checkpoint.origin != store.log.name:
        raise ReportError(f"the checkpoint is of the log {checkpoint.origin}, not {store.log.name}")
    # The entry is rebuilt from the bundle; what the proof was made for is never asked of the proof.
    leaf = leaf_hash(manifest.log_entry(listing, facts.document.number))
    if not includes(leaf, proof.index, checkpoint.size, proof.path, checkpoint.root):
        raise ReportError("the log's checkpoint does not cover this bundle's list of digests")
    witnesses = ", ".join(sorted(signers - {store.log.name})) or "none"
    return (
        f"entry {proof.index} of {checkpoint.size} in {checkpoint.origin}; witnesses: {witnesses}"
    )
