"""What the demonstration hands over: the bundle, the exports, summary.json and the closing table.

In: an issued report. Out: files under `var/demo`, each written whole. Every figure is copied from
stored rows and documents; amounts stay text.
"""

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from metering.decimals import to_text
from metering.money import quantize
from metering.savings import SavingsLine
from portal.billing.exports import FILE_NAMES, export_path
from portal.billing.models import Export, Invoice
from portal.billing.savings import frozen_sufficiency
from portal.demo.parties import demo_folder, trust_dir
from portal.documents.models import Report
from portal.runs.baseline_rows import configuration_words
from portal.runs.models import Baseline, Measurement
from portal.workspace import absolute, write
from reports.verify import Verification, verify

SUMMARY = "summary.json"
BUNDLE = "bundle.zip"
DELIVERED = (Export.Format.FOCUS, Export.Format.UBL, Export.Format.JOURNAL)


def verify_delivered(report: Report) -> Verification:
    """Hand the bundle over and verify it as its reader does: offline, with the trust folder."""
    target = demo_folder() / BUNDLE
    write(target, absolute(report.bundle.path).read_bytes())
    return verify(target, trust_dir())


def deliver_exports(invoice: Invoice) -> dict[str, str]:
    """Copy the export files to `var/demo/exports`; returns the path by format."""
    paths = {}
    for file_format in DELIVERED:
        target = demo_folder() / "exports" / invoice.number / FILE_NAMES[file_format]
        write(target, export_path(invoice, file_format).read_bytes())
        paths[str(file_format.value)] = str(target)
    return paths


def write_summary(
    *, elapsed_s: float, report: Report, verified: bool, exports: Mapping[str, str]
) -> dict[str, Any]:
    """Write and return `summary.json`."""
    invoice, measured = report.invoice, report.measurement
    baseline = measured.baseline
    document = {
        "elapsed_s": round(elapsed_s, 1),
        "system": _system(measured),
        "model": measured.contract_version.mix.model.name,
        "baseline": {
            "stack": baseline.stack,
            "version": baseline.stack_version,
            "threads": baseline.threads,
            "samples_per_second": str(baseline.document["samples_per_second"]),
        },
        "as_found": found_document(baseline),
        "aa": {name: measured.aa[name] for name in ("lo", "hi", "passed")},
        "uplift": {
            **{name: measured.uplift[name] for name in ("point", "lo", "hi", "lower_95")},
            "pairs": measured.uplift["n"],
            "kept": measured.kept,
        },
        "accuracy": measured.accuracy,
        "search": {
            "trials": measured.package.tuning.trials,
            "seconds": str(measured.package.tuning.seconds),
            "cost": str(measured.package.tuning.cost),
        },
        "savings": _money(invoice.savings.billable, invoice.currency),
        "fee": str(invoice.document["fee"]),
        "currency": invoice.currency,
        "invoice_number": invoice.number,
        "bundle": str(demo_folder() / BUNDLE),
        "exports": dict(exports),
        "verified": verified,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    write(demo_folder() / SUMMARY, text.encode())
    return document


def found_document(baseline: Baseline) -> dict[str, object] | None:
    """The customer's own configuration and its rate; None when none was stated."""
    row = baseline.document.get("as_found")
    if row is None:
        return None
    return {"samples_per_second": row["samples_per_second"], **row["sut"]}


def _money(amount: Decimal, currency: str) -> str:
    """An amount at its minor unit, as text."""
    return to_text(quantize(amount, currency))


def _system(measured: Measurement) -> dict[str, object]:
    system = measured.contract_version.system
    return {
        "name": system.name,
        "revision": system.revision,
        "cpu": system.machine["cpu_model"],
        "cores": len(measured.contract_version.plan["cores"]),
        "fingerprint": system.fingerprint,
    }


def found_words(found: Mapping[str, Any] | None) -> str:
    """The line of the closing table about what was found."""
    if found is None:
        return "not stated; billing uses the baseline"
    rate = found["samples_per_second"]
    told = "no rate" if rate is None else f"{Decimal(rate):.1f} sentences/s"
    return f"{found['stack']}, {configuration_words(found)}: {told}; billing uses the baseline"


def table(document: Mapping[str, Any], report: Report) -> list[tuple[str, str]]:
    """The closing table in words a person understands."""
    invoice, measured = report.invoice, report.measurement
    line = SavingsLine.from_json(invoice.savings.document["lines"][0])
    uplift, money = document["uplift"], invoice.currency
    rows = [
        ("Model", f"{document['model']} on {document['system']['cpu']}"),
        (
            "Baseline",
            f"{measured.baseline.stack} {measured.baseline.stack_version},"
            f" {measured.baseline.threads} threads:"
            f" {measured.baseline.samples_per_second:.1f} sentences/s",
        ),
        ("As found", found_words(document["as_found"])),
        (
            "Uplift",
            f"{float(uplift['point']):+.1%}, 95 % from {float(uplift['lo']):+.1%} to"
            f" {float(uplift['hi']):+.1%}; lower bound {float(uplift['lower_95']):+.1%}",
        ),
        (
            "Cost per million",
            f"{line.cost_per_million_before:.4f} {money} before,"
            f" {line.cost_per_million_after_bound:.4f} {money} after (at the billed bound)",
        ),
        ("Period", f"{invoice.period.label} ({invoice.period.zone}), {line.volume} sentences"),
        ("Savings", f"{document['savings']} {money} on the lower bound"),
        (
            "Fee",
            f"{document['fee']} {money}; invoice {invoice.number},"
            f" payable {_money(invoice.gross, money)} {money} with VAT and less the holdback",
        ),
    ]
    if not measured.kept:
        rows.append(("Why no fee", measured.reason))
    for item in frozen_sufficiency(invoice.savings):
        rows += [("Sufficiency", line) for line in item.verdict.printed]
    rows += [
        ("Bundle", document["bundle"]),
        *((f"Export {name}", path) for name, path in document["exports"].items()),
        ("Summary", str(demo_folder() / SUMMARY)),
        ("Verified", "yes, offline" if document["verified"] else "NO"),
    ]
    return rows
