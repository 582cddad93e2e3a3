"""The command ``usage``: what a file of usage adds up to; a counter scraped and delivered.

In: a file of CloudEvents, one JSON object per line, or a CSV file with one event per row; the
address of a metrics endpoint, of a portal, and IGNITION_TOKEN.
Out: JSON or text on standard output and an exit status: 0 done, 1 the answer is no (usage with
incidents, a delivery that was not taken), 2 wrong use with one clear line.
Never here: a rule of counting; a usage file changed.
"""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

from metering import canonical
from metering.commands.answers import DONE, NO, answered
from metering.fields import Fields, parse_instant
from metering.plan import Period
from metering.refusal import Refusal
from metering.usage import EventBatch, UsageTotals, aggregate, read_csv, read_decisions, read_events
from metering.usage.batch import moment
from metering.usage.collector import Collected
from metering.usage.prometheus import scrape
from metering.usage.totals import FATES

__all__ = ["register"]

DELIVERY = 1_000
TIMEOUT_S = 30.0
_NO_FATES = ("conflict", "malformed", "negative", "future", "unmatched")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    usage = subparsers.add_parser("usage", help="read and check usage events")
    actions = usage.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = actions.add_parser("check", help="total a file of CloudEvents, one per line, or CSV")
    command.add_argument("file", type=Path, metavar="FILE", help="JSON lines; CSV when named .csv")
    command.add_argument("--period", metavar="YYYY-MM", help="default: the whole file")
    command.add_argument("--zone", default="UTC", help="the contract's IANA zone (default UTC)")
    command.add_argument(
        "--decisions", type=Path, metavar="FILE",
        help="which of several contents counts under a key, as decisions.json of the evidence",
    )  # fmt: skip
    command.add_argument("--cutoff", metavar="TIME", help="events received later are late")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=answered(_check))

    command = actions.add_parser("scrape", help="read a Prometheus counter, deliver its growth")
    command.add_argument("url", metavar="URL", help="the metrics endpoint")
    command.add_argument("--counter", required=True, metavar="NAME", help="counts accepted samples")
    command.add_argument("--source", required=True, metavar="NAME", help="source of the events")
    command.add_argument("--state", type=Path, required=True, metavar="FILE")
    command.add_argument("--model-label", default="model", metavar="LABEL")
    command.add_argument("--system-label", default="system", metavar="LABEL")
    command.add_argument(
        "--deliver", metavar="URL", help="usage endpoint; the token is read from IGNITION_TOKEN"
    )
    command.set_defaults(handler=answered(_scrape))


def _check(arguments: argparse.Namespace) -> int:
    with arguments.file.open("rb") as stream:
        is_csv = arguments.file.suffix.lower() == ".csv"
        batch = read_csv(stream) if is_csv else read_events(stream)
    zone = arguments.zone
    period = Period.month(arguments.period, zone) if arguments.period else _whole(batch, zone)
    cutoff = parse_instant(arguments.cutoff, "--cutoff") if arguments.cutoff else None
    path: Path | None = arguments.decisions
    decisions = read_decisions(canonical.loads(path.read_bytes())) if path else None
    totals = aggregate(batch, period, zone, cutoff=cutoff, decisions=decisions)
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


def _scrape(arguments: argparse.Namespace) -> int:
    path: Path = arguments.state
    held = Collected.load(path, arguments.source)
    scraped = scrape(
        _http(arguments.url).decode("utf-8"),
        datetime.now(UTC),
        held.state,
        counter=arguments.counter,
        model=arguments.model_label,
        system=arguments.system_label,
    )
    held = held.add(scraped)
    held.save(path)
    for note in scraped.notes:
        print(f"{note.kind}: {note.series}: {note.text}", file=sys.stderr)
    delivered = 0
    while arguments.deliver and held.pending:
        part = held.pending[:DELIVERY]
        receipt = Fields(canonical.loads(_http(arguments.deliver, list(part))), "receipt")
        fates = receipt.items("fates")
        if len(fates) != len(part):
            raise Refusal("receipt.fates", len(fates), f"{len(part)} fates", "run it again")
        for item in fates:
            fate = Fields(item, "fate")
            if fate.text("fate") not in ("stored", "duplicate"):
                print(f"{fate.text('fate')}: {fate.any('reason')}", file=sys.stderr)
        held = held.delivered(len(part))
        held.save(path)
        delivered += len(part)
    print(f"{len(scraped.events)} new, {delivered} delivered, {len(held.pending)} waiting")
    return DONE


def _http(url: str, events: list[object] | None = None) -> bytes:
    """The body of one answer; a delivery when there are `events`."""
    if not url.startswith(("http://", "https://")):
        raise Refusal("URL", url, "http:// or https://")
    request = urllib.request.Request(url)  # noqa: S310 - the scheme was checked
    if events is not None:
        request.data = canonical.dumps(events)
        request.add_header("Content-Type", "application/cloudevents-batch+json")
        request.add_header("Authorization", f"Bearer {os.environ.get('IGNITION_TOKEN', '')}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            return bytes(answer.read())
    except (OSError, http.client.HTTPException) as error:
        raise Refusal(url, str(error), "an answer", "run it again: nothing is lost") from error
