"""Do a report's parts say the same thing? The checks that need no key.

In: a folder with `evidence/`, `facts.json`, both statements' payloads and `exports/`. Out: named
checks, each a yes or a no with a reason. The platform runs them before it signs, the auditor
before they sign, and `verify` for everyone after. A check that meets anything unexpected fails;
none is ever skipped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from reports.canonical import canonical_document, sha256_bytes
from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.recount import recount_measurement, recount_money
from reports.statement import (
    BILLING_TYPE,
    MEASUREMENT_TYPE,
    Statement,
    billing_predicate,
    evidence_digests,
    is_measurement_file,
    listing_digest,
    read_statement,
)

T = TypeVar("T")

# What a report prints fits in a hundredth of this; a stranger's must not keep Typst busy for ever.
MAX_FACTS_BYTES = 4 << 20


@dataclass(frozen=True)
class Check:
    """One named question and its answer."""

    name: str
    ok: bool
    detail: str


@dataclass
class Checks:
    """Runs checks and keeps their answers, in order."""

    done: list[Check] = field(default_factory=list)

    def run(self, name: str, question: Callable[[], T], detail: Callable[[T], str]) -> T | None:
        """Ask; a value means yes, any exception means no. Returns the value, or None for no."""
        try:
            answer = question()
            self.done.append(Check(name, True, detail(answer)))
        except Exception as error:
            # What a stranger's file can make a parser raise has no end; each of it is a no.
            kind = "" if isinstance(error, ReportError) else f"{type(error).__name__}: "
            self.done.append(Check(name, False, f"{kind}{error}"))
            return None
        return answer

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.done)

    def require(self, doing: str) -> None:
        """Raise ReportError with every failed check, unless all hold."""
        failed = [f"{check.name}: {check.detail}" for check in self.done if not check.ok]
        if failed:
            raise ReportError(f"{doing} refused; " + "; ".join(failed))


def check_contents(
    folder: Path, measurement_payload: bytes, billing_payload: bytes, checks: Checks
) -> ReportFacts | None:
    """Add the content checks of an unpacked report to `checks`; returns its facts if they read."""
    facts = checks.run(
        "facts",
        lambda: _facts(folder, measurement_payload),
        lambda value: f"report {value.document.number} for {value.period.label}",
    )
    measurement = checks.run(
        "measurement-statement-content",
        lambda: read_statement(measurement_payload, MEASUREMENT_TYPE),
        lambda value: f"{len(value.subjects)} subjects",
    )
    billing = checks.run(
        "billing-statement-content",
        lambda: read_statement(billing_payload, BILLING_TYPE),
        lambda value: f"{len(value.subjects)} subjects",
    )
    if facts is None or measurement is None or billing is None:
        return facts
    checks.run(
        "subjects",
        lambda: _subjects(folder, measurement, billing, facts),
        lambda count: f"{count} evidence files, each under exactly one statement",
    )
    checks.run(
        "statements-agree",
        lambda: _agree(measurement, billing, facts),
        lambda _: "facts, measurement and billing statement say the same",
    )
    checks.run("exports", lambda: _exports(folder, facts), lambda count: f"{count} exports")
    check_recount(folder / "evidence", facts, checks)
    return facts


def check_recount(evidence: Path, facts: ReportFacts, checks: Checks) -> None:
    """Add the two recomputations, of uplift and of money, from the evidence alone."""
    measured = checks.run(
        "uplift-recomputed",
        lambda: recount_measurement(evidence, facts.measurement),
        lambda value: value.detail,
    )
    if measured is not None:
        checks.run(
            "fee-recomputed",
            lambda: recount_money(evidence, facts, measured),
            lambda value: value,
        )
    else:
        checks.run("fee-recomputed", _no_uplift, lambda _: "")


def _no_uplift() -> None:
    raise ReportError("cannot be recomputed without the uplift")


def _facts(folder: Path, measurement_payload: bytes) -> ReportFacts:
    path = folder / "facts.json"
    if path.stat().st_size > MAX_FACTS_BYTES:
        raise ReportError(f"facts.json has {path.stat().st_size} bytes, at most {MAX_FACTS_BYTES}")
    data = path.read_bytes()
    canonical_document(data)
    facts = ReportFacts.from_json(data)
    if facts.to_bytes() != data:
        raise ReportError("facts.json is not in its exact form; its bytes were changed")
    digest = sha256_bytes(measurement_payload)
    if facts.measurement_statement_sha256 != digest:
        raise ReportError(
            f"facts name the measurement statement {facts.measurement_statement_sha256}, "
            f"but this one is {digest}"
        )
    if facts.document.status != "issued":
        raise ReportError(f"the report is a {facts.document.status}, not issued")
    return facts


def _subjects(folder: Path, measurement: Statement, billing: Statement, facts: ReportFacts) -> int:
    digests = evidence_digests(folder / "evidence")
    if listing_digest(digests) != facts.evidence_digest:
        raise ReportError("the evidence digest printed on the report is not that of the evidence")
    for name, digest in digests.items():
        owner = measurement if is_measurement_file(name.removeprefix("evidence/")) else billing
        if owner.subjects.get(name) != digest:
            raise ReportError(f"{name} is not the file that the signed statement is about")
    stated = set(measurement.subjects) | set(billing.subjects)
    others = {"facts.json"} | {f"exports/{item.name}" for item in facts.exports}
    _require_equal(stated - set(digests), others, "files under a statement but not evidence")
    if set(measurement.subjects) & set(billing.subjects):
        raise ReportError("a file is under both statements")
    return len(digests)


def _agree(measurement: Statement, billing: Statement, facts: ReportFacts) -> None:
    printed = facts.to_json()
    _require_equal(measurement.predicate, {"facts": printed["measurement"]}, "measured facts")
    drawn_with = billing.predicate.get("renderer")
    if not isinstance(drawn_with, str):
        raise ReportError("the billing statement does not name what drew the PDF")
    _require_equal(billing.predicate, billing_predicate(facts, drawn_with), "billing facts")
    if billing.subjects["facts.json"] != sha256_bytes(facts.to_bytes()):
        raise ReportError("facts.json is not the file that the billing statement is about")
    for item in facts.exports:
        if billing.subjects[f"exports/{item.name}"] != item.sha256:
            raise ReportError(f"exports/{item.name}: facts and billing statement name two digests")


def _exports(folder: Path, facts: ReportFacts) -> int:
    present = folder / "exports"
    names = {path.name for path in present.iterdir()} if present.is_dir() else set()
    _require_equal(names, {item.name for item in facts.exports}, "export files")
    for item in facts.exports:
        data = (present / item.name).read_bytes()
        if sha256_bytes(data) != item.sha256 or str(len(data)) != item.size_bytes:
            raise ReportError(f"exports/{item.name} is not the file the report names")
    return len(names)


def _require_equal(got: object, wanted: object, what: str) -> None:
    if got == wanted:
        return
    if isinstance(got, Mapping) and isinstance(wanted, Mapping):
        names = sorted(name for name in {*got, *wanted} if got.get(name) != wanted.get(name))
        raise ReportError(f"{what} differ in {', '.join(names)}")
    if isinstance(got, set) and isinstance(wanted, set):
        raise ReportError(
            f"{what} differ; not expected: {', '.join(sorted(got - wanted)) or 'none'}; "
            f"missing: {', '.join(sorted(wanted - got)) or 'none'}"
        )
    raise ReportError(f"{what} differ: {got!r:.200} is not {wanted!r:.200}")
