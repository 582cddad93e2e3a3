"""Commands ``export`` and ``validate``: issued documents as files, and files held to the cent.

In: files named on the command line.
Out: exported files with a manifest beside them, findings as text or JSON, and an exit status: 0
done, 1 the file does not hold, 2 wrong use with one clear line.
Never here: a formula; a file overwritten without being asked for by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from metering import canonical
from metering.commands.answers import DONE, NO, answered, load
from metering.decimals import to_text
from metering.export import Manifest, beancount_text, focus_csv, journal_csv, ubl_xml, validate
from metering.ledger import Invoice
from metering.refusal import Refusal

__all__ = ["register"]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("export", help="write issued documents for finance")
    command.add_argument("invoices", type=Path, nargs="+", metavar="INVOICE.json")
    command.add_argument("--format", required=True, choices=sorted(_WRITERS))
    command.add_argument("--out", type=Path, required=True, metavar="FILE")
    command.set_defaults(handler=answered(_export))

    command = subparsers.add_parser("validate", help="check a file this room wrote, to the cent")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=answered(_validate))


def _export(arguments: argparse.Namespace) -> int:
    documents = [Invoice.from_json(load(path)) for path in arguments.invoices]
    data, record = _WRITERS[arguments.format](documents)
    arguments.out.write_bytes(data)
    print(f"{arguments.out}: {len(documents)} document(s), {len(data)} bytes")
    if record is not None:
        beside = arguments.out.with_name(arguments.out.name + ".manifest.json")
        beside.write_text(canonical.pretty(record.to_json()), encoding="utf-8")
        sums = ", ".join(f"{to_text(amount)} {code}" for code, amount in record.sums.items())
        print(f"{beside}: {record.rows} rows, sum {sums or '0'}")
    return DONE


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


def _focus(documents: Sequence[Invoice]) -> tuple[bytes, Manifest | None]:
    text, record = focus_csv(documents)
    return text.encode(), record


def _journal(documents: Sequence[Invoice]) -> tuple[bytes, Manifest | None]:
    text, record = journal_csv(documents)
    return text.encode(), record


def _beancount(documents: Sequence[Invoice]) -> tuple[bytes, Manifest | None]:
    return beancount_text(documents).encode(), None


def _ubl(documents: Sequence[Invoice]) -> tuple[bytes, Manifest | None]:
    if len(documents) != 1:
        raise Refusal("INVOICE.json", len(documents), "one document", "UBL holds one per file")
    return ubl_xml(documents[0]), None


_WRITERS: dict[str, Callable[[Sequence[Invoice]], tuple[bytes, Manifest | None]]] = {
    "beancount": _beancount,
    "focus": _focus,
    "journal": _journal,
    "ubl": _ubl,
}
