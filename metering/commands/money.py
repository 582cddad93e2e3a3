"""Commands of the money half: ``fee``, ``usage``, ``export``, ``validate``.

In: files named on the command line.
Out: JSON or text on standard output, exported files, and an exit status: 0 done, 1 the answer is
no (usage with incidents, a file that does not hold), 2 wrong use with one clear line.
Never here: a formula; a file overwritten without being asked for by name.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path

from metering import canonical
from metering.contract import Contract, LedgerState, VerifiedSavings, fee
from metering.decimals import to_text
from metering.export import (
    Manifest,
    beancount_text,
    focus_csv,
    journal_csv,
    ubl_xml,
    validate,
)
from metering.fields import Fields, parse_instant
from metering.ledger import Invoice
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import EventBatch, UsageTotals, aggregate, read_events
from metering.usage.aggregate import FATES

__all__ = ["register"]

DONE, NO, WRONG_USE = 0, 1, 2
CASE_SCHEMA = "ignition.fee-case.v1"
_NO_FATES = ("conflict", "malformed", "negative", "future", "unmatched")

Handler = Callable[[argparse.Namespace], int]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("fee", help="compute the fee of one period from a case file")
    command.add_argument("case", type=Path, metavar="CASE.json", help="see docs/contracts.md")
    command.set_defaults(handler=_answered(_fee))

    usage = subparsers.add_parser("usage", help="read and check usage events")
    actions = usage.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = actions.add_parser("check", help="total a file of CloudEvents, one per line")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--period", metavar="YYYY-MM", help="default: the whole file")
    command.add_argument("--zone", default="UTC", help="the contract's IANA zone (default UTC)")
    command.add_argument("--cutoff", metavar="TIME", help="events received later are late")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_answered(_usage_check))

    command = subparsers.add_parser("export", help="write issued documents for finance")
    command.add_argument("invoices", type=Path, nargs="+", metavar="INVOICE.json")
    command.add_argument("--format", required=True, choices=sorted(_WRITERS))
    command.add_argument("--out", type=Path, required=True, metavar="FILE")
    command.set_defaults(handler=_answered(_export))

    command = subparsers.add_parser("validate", help="check a file this room wrote, to the cent")
    command.add_argument("file", type=Path, metavar="FILE")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_answered(_validate))


def _answered(handler: Handler) -> Handler:
    """Turn refusals and unreadable files into one line and exit status 2."""

    @wraps(handler)
    def answer(arguments: argparse.Namespace) -> int:
        try:
            return handler(arguments)
        except Refusal as refusal:
            message = str(refusal)
        except OSError as error:
            message = f"{error.filename or 'file'}: {error.strerror or error}"
        print(f"metering {arguments.command}: {message}", file=sys.stderr)
        return WRONG_USE

    return answer


def _fee(arguments: argparse.Namespace) -> int:
    fields = Fields(_load(arguments.case), "case")
    fields.text("schema", [CASE_SCHEMA])
    state = fields.any("state")
    breakdown = fee(
        Contract.from_json(fields.any("contract")),
        LedgerState() if state is None else LedgerState.from_json(state),
        VerifiedSavings.from_json(fields.any("verified")),
    )
    fields.finish()
    sys.stdout.write(canonical.pretty(breakdown.to_json()))
    return DONE


def _usage_check(arguments: argparse.Namespace) -> int:
    with arguments.file.open("rb") as lines:
        batch = read_events(lines)
    zone = arguments.zone
    period = Period.month(arguments.period, zone) if arguments.period else _whole(batch, zone)
    cutoff = parse_instant(arguments.cutoff, "--cutoff") if arguments.cutoff else None
    totals = aggregate(batch, period, zone, cutoff=cutoff)
    if arguments.json:
        sys.stdout.write(canonical.pretty(totals.to_json()))
    else:
        _print_totals(totals)
    return NO if any(totals.count(fate) for fate in _NO_FATES) else DONE


def _whole(batch: EventBatch, zone: str) -> Period:
    """A period that holds every event of the file."""
    times: list[datetime] = [event.occurred_at for event in batch.events]
    if not times:
        raise Refusal("file", f"{batch.rows} rows, none an event", "at least one usage event")
    return Period("whole file", zone, min(times), max(times) + timedelta(microseconds=1))


def _print_totals(totals: UsageTotals) -> None:
    print(f"{totals.period.label} {totals.period.zone}: {totals.rows} rows")
    for fate in FATES:
        if totals.count(fate):
            print(f"  {fate:<10} {totals.count(fate)}")
    if totals.arrived_after_end:
        print(f"  of the accepted, {totals.arrived_after_end} arrived after the period had ended")
    for volume in totals.volumes:
        print(f"  {volume.model} on {volume.system}: {volume.samples} samples")
    for incident in totals.incidents:
        print(f"  line {incident.line}: {incident.fate}: {incident.reason}")
    print(f"  sum {totals.samples} samples, input sha256 {totals.input_sha256}")


def _export(arguments: argparse.Namespace) -> int:
    documents = [Invoice.from_json(_load(path)) for path in arguments.invoices]
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


def _load(path: Path) -> object:
    try:
        return canonical.loads(path.read_bytes())
    except Refusal as refusal:
        raise refusal.inside(str(path)) from refusal


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
