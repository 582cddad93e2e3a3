"""The command ``usage``: what a file of usage adds up to, and what became of every line.

In: a file of CloudEvents, one JSON object per line, or a CSV file with one event per row.
Out: JSON or text on standard output and an exit status: 0 done, 1 the answer is no (usage with
incidents), 2 wrong use with one clear line.
Never here: a rule of counting; a file changed.
"""

from __future__ import annotations

import argparse
import sys
from datetime import timedelta
from pathlib import Path

from metering import canonical
from metering.commands.answers import DONE, NO, answered
from metering.fields import parse_instant
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import EventBatch, UsageTotals, aggregate, read_csv, read_events
from metering.usage.batch import moment
from metering.usage.totals import FATES

__all__ = ["register"]

_NO_FATES = ("conflict", "malformed", "negative", "future", "unmatched")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    usage = subparsers.add_parser("usage", help="read and check usage events")
    actions = usage.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = actions.add_parser("check", help="total a file of CloudEvents, one per line, or CSV")
    command.add_argument("file", type=Path, metavar="FILE", help="JSON lines; CSV when named .csv")
    command.add_argument("--period", metavar="YYYY-MM", help="default: the whole file")
    command.add_argument("--zone", default="UTC", help="the contract's IANA zone (default UTC)")
    command.add_argument("--cutoff", metavar="TIME", help="events received later are late")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=answered(_check))


def _check(arguments: argparse.Namespace) -> int:
    with arguments.file.open("rb") as stream:
        is_csv = arguments.file.suffix.lower() == ".csv"
        batch = read_csv(stream) if is_csv else read_events(stream)
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
    times = batch.columns.occurred
    if not len(times):
        raise Refusal("file", f"{batch.rows} rows, none an event", "at least one usage event")
    first, last = moment(int(times.min())), moment(int(times.max()))
    return Period("whole file", zone, first, last + timedelta(microseconds=1))


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
