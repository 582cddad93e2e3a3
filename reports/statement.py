"""Statements: what was measured, and what is billed for it, bound to files by digest.

In: an evidence folder and facts. Out: RFC 8785 bytes of an in-toto Statement v1, to be signed in
a DSSE envelope by the platform and the auditor. The measurement statement exists before any
money does; the billing statement names its digest. Together their subjects are every evidence
file, each exactly once, so that no file can be added, swapped or left out.
Never state a figure here that is not in the facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.uplift.energy import METER
from reports.archive import files_under
from reports.canonical import canonical_document, canonical_json, sha256_bytes, sha256_file
from reports.errors import ReportError
from reports.facts import MeasurementFacts, ReportFacts

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
MEASUREMENT_TYPE = "https://ignition.example/measurement/v1"
BILLING_TYPE = "https://ignition.example/billing/v1"

# The part of the evidence that exists once a measurement is done. All else is about money.
MEASUREMENT_FILES = ("plan.json", "system.json", "mix.json", METER)
MEASUREMENT_FOLDERS = ("baseline/", "aa/", "uplift/", "cache/", "accuracy/", "kernel/")


@dataclass(frozen=True)
class Statement:
    """A read statement: SHA-256 (hex) by file name, and the predicate's JSON."""

    predicate_type: str
    subjects: Mapping[str, str]
    predicate: Mapping[str, Any]


def is_measurement_file(name: str) -> bool:
    """True for an evidence file (name relative to the evidence folder) fixed by measuring."""
    return name in MEASUREMENT_FILES or name.startswith(MEASUREMENT_FOLDERS)


def evidence_digests(evidence: Path) -> dict[str, str]:
    """SHA-256 of every evidence file, by its name in the bundle (`evidence/...`)."""
    return {f"evidence/{name}": sha256_file(evidence / name) for name in files_under(evidence)}


def evidence_digest(evidence: Path) -> str:
    """One digest for a whole evidence folder: SHA-256 of its `sha256sum` listing."""
    return listing_digest(evidence_digests(evidence))


def listing_digest(digests: Mapping[str, str]) -> str:
    lines = "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))
    return sha256_bytes(lines.encode("ascii"))


def measurement_statement(evidence: Path, facts: MeasurementFacts) -> bytes:
    """Canonical bytes that bind these facts to the measured part of `evidence`."""
    subjects = {
        name: digest
        for name, digest in evidence_digests(evidence).items()
        if is_measurement_file(name.removeprefix("evidence/"))
    }
    if not subjects:
        raise ReportError(f"{evidence} holds no measured evidence; run the measurement first")
    return _statement(subjects, MEASUREMENT_TYPE, {"facts": facts.to_json()})


def billing_statement(
    evidence: Path, facts: ReportFacts, exports: Mapping[str, bytes], renderer: str
) -> bytes:
    """Canonical bytes that bind usage, savings, fee, invoice, exports and the printed facts.

    `renderer` names what draws the PDF, so that a later reader knows whether to expect its bytes.
    """
    subjects = {
        name: digest
        for name, digest in evidence_digests(evidence).items()
        if not is_measurement_file(name.removeprefix("evidence/"))
    }
    subjects["facts.json"] = sha256_bytes(facts.to_bytes())
    for name, data in exports.items():
        subjects[f"exports/{name}"] = sha256_bytes(data)
    return _statement(subjects, BILLING_TYPE, billing_predicate(facts, renderer))


def billing_predicate(facts: ReportFacts, renderer: str) -> dict[str, Any]:
    """What the billing statement says of these facts."""
    printed = facts.to_json()
    parts = ("document", "invoice", "period", "usage", "sufficiency", "savings", "fee")
    return {
        **{part: printed[part] for part in parts if part in printed},
        "measurement_statement_sha256": facts.measurement_statement_sha256,
        "renderer": renderer,
    }


def read_statement(payload: bytes, predicate_type: str) -> Statement:
    """Read a payload that must be a statement of exactly this predicate type.

    Raises ReportError for another type, bytes that are not canonical, unknown fields, digests
    other than SHA-256, or a subject that is named twice.
    """
    document = canonical_document(payload)
    if not isinstance(document, dict) or set(document) != {
        *("_type", "predicate", "predicateType", "subject"),
    }:
        raise ReportError("statement must hold _type, subject, predicateType, predicate only")
    if document["_type"] != STATEMENT_TYPE:
        raise ReportError(f"statement type is {document['_type']!r:.80}, wanted {STATEMENT_TYPE}")
    if document["predicateType"] != predicate_type:
        raise ReportError(
            f"predicate type is {document['predicateType']!r:.80}, wanted {predicate_type}"
        )
    subjects: dict[str, str] = {}
    for entry in document["subject"]:
        try:
            name, digest = entry["name"], entry["digest"]["sha256"]
            closed = set(entry) == {"name", "digest"} and set(entry["digest"]) == {"sha256"}
        except (TypeError, KeyError) as error:
            raise ReportError("a subject must hold a name and a sha256 digest") from error
        if not closed or not isinstance(name, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ReportError(f"subject {name!r:.80} must hold a sha256 digest and nothing else")
        if name in subjects:
            raise ReportError(f"subject {name!r:.80} is named twice")
        subjects[name] = digest
    predicate = document["predicate"]
    if not isinstance(predicate, dict):
        raise ReportError("statement predicate must be a JSON object")
    return Statement(predicate_type, subjects, predicate)


def _statement(subjects: Mapping[str, str], kind: str, predicate: Mapping[str, Any]) -> bytes:
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "predicate": predicate,
            "predicateType": kind,
            "subject": [
                {"digest": {"sha256": subjects[name]}, "name": name} for name in sorted(subjects)
            ],
        }
    )
