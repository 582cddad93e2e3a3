"""Commands ``export`` and ``validate``: issued documents as files, and files held to the cent.

In: files named on the command line.
Out: exported files with a manifest beside them, findings as text or JSON, and an exit status: 0
done, 1 the file does not hold, 2 wrong use with one clear line.
Never here: a formula; a file overwritten without being asked for by name.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from metering import canonical
from metering.commands.answers import DONE, NO, answered, load
from metering.decimals import to_text
from metering.export import FORMATS, export_documents, validate
from metering.ledger import Invoice
from metering.refusal import Refusal

__all__ = ["register"]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("export", help="write issued documents for finance")
    command.add_argument("invoices", type=Path, nargs="+", metavar="INVOICE.json")
    command.add_argument("--format", required=True, choices=tuple(FORMATS))
    command.add_argument(
        "--out", type=Path, metavar="FILE", help="default: the format's own name, if it is free"
    )
    command.set_defaults(handler=answered(_export))

    command = subparsers.add_parser("validate", help="check a file this room wrote, to the cent")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=answered(_validate))


def _export(arguments: argparse.Namespace) -> int:
    documents = [Invoice.from_json(load(path)) for path in arguments.invoices]
    out = arguments.out or _free(Path(FORMATS[arguments.format].file_name))
    data, record = export_documents(arguments.format, documents)
    if out.resolve() in {path.resolve() for path in arguments.invoices}:
        raise Refusal("--out", out, "another file than the documents", "name a new file")
    out.write_bytes(data)
    print(f"{out}: {len(documents)} document(s), {len(data)} bytes")
    beside = out.with_name(out.name + ".manifest.json")
    beside.write_text(canonical.pretty(record.to_json()), encoding="utf-8")
    sums = ", ".join(f"{to_text(amount)} {code}" for code, amount in record.sums.items())
    print(f"{beside}: {record.rows} rows, sum {sums or '0'}")
    return DONE


def _free(path: Path) -> Path:
    if path.exists():
        raise Refusal("--out", f"nothing, and {path} is there", "a name", "say --out FILE")
    return path


def _validate(arguments: argparse.Namespace) -> int:
    found, findings = validate(arguments.file)
    if arguments.json:
        told: list[object] = [{"where": item.where, "what": item.what} for item in findings]
        report = {"file": str(arguments.file), "format": found, "findings": told}
        sys.stdout.write(canonical.pretty(report))
    else:
        print(f"{arguments.file}: {found}: {'sound' if not findings else 'does not hold'}")
        for finding in findings:
            print(f"  {finding}")
    return NO if findings else DONE
