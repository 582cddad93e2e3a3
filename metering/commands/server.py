"""Command ``server``: compare two systems by the rate each holds within a plan's latency bound.

In: files named on the command line. Out: an interval for people or, with ``--json``, for programs.
Exit status: 0 a higher rate is shown, 1 it is not or the evidence does not hold, 2 wrong use with
one clear line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from metering import loadgen, stacks
from metering.commands.measure import DONE, NO, WrongUse, print_json, read_object
from metering.commands.parts import command_with_parts
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan
from metering.uplift.pairs import PairsRefused
from metering.uplift.server import NOT_BILLED, ServerComparison, measure_server, recompute_server

_FIELDS = ("plan", "model", "samples", "base", "other")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's command; each part sets ``handler(arguments) -> exit status``."""
    part = command_with_parts(subparsers, "server", "compare the rates two systems hold in Server")
    found = part("measure", _measure, "climb a ladder of rates with both, pair by pair")
    found.add_argument(
        "spec",
        type=Path,
        metavar="SPEC.json",
        help='{"plan": {...}, "model": path, "samples": path, "base": {...}, "other": {...}}',
    )
    found.add_argument("--out", type=Path, required=True, help="new folder")
    found = part("show", _show, "work a comparison out again from its logs")
    found.add_argument("folder", type=Path, metavar="DIR")


def _measure(arguments: argparse.Namespace) -> int:
    request = read_object(arguments.spec)
    if sorted(request) != sorted(_FIELDS):
        raise WrongUse(f"{arguments.spec}: got the fields {sorted(request)}, wanted {_FIELDS}")
    if arguments.out.exists():
        raise WrongUse(f"{arguments.out} is there already; choose another --out")

    def told(pair: int, arm: str, rate: float | None) -> None:
        if not arguments.json:
            held = "none held" if rate is None else f"{rate:g} queries/s held"
            print(f"pair {pair} {arm}: {held}", flush=True)

    folder = arguments.spec.resolve().parent
    try:
        found = measure_server(
            MeasurementPlan.from_json(request["plan"]),
            SutSpec.from_dict(request["base"]),
            SutSpec.from_dict(request["other"]),
            model=folder / str(request["model"]),
            samples=folder / str(request["samples"]),
            out=arguments.out,
            on_climb=told,
        )
    except (loadgen.CalibrationError, loadgen.EvidenceError) as error:
        print(f"not measurable: {error}", file=sys.stderr)
        return NO
    except (loadgen.RunRefused, PairsRefused, stacks.StackError, ValueError, TypeError) as error:
        raise WrongUse(str(error)) from error
    return _answer(arguments, found)


def _show(arguments: argparse.Namespace) -> int:
    try:
        found = recompute_server(arguments.folder)
    except loadgen.EvidenceError as error:
        if arguments.json:
            print_json({"shown": False, "reasons": [f"evidence: {error}"]})
        print(f"evidence does not hold: {error}", file=sys.stderr)
        return NO
    return _answer(arguments, found)


def _answer(arguments: argparse.Namespace, found: ServerComparison) -> int:
    if arguments.json:
        print_json(found.to_dict())
    else:
        bound = f"p{float(found.percentile) * 100:g} within {found.target_latency_ns / 1e6:g} ms"
        for name, rate in (("A/A", found.aa), ("held rate", found.held)):
            words = "broke off"
            if rate is not None:
                words = f"{rate.point:+.2%} [{rate.lo:.2%}, {rate.hi:.2%}], {rate.n} pairs"
            print(f"{name:10}{words}, {bound}")
        print(f"accuracy  {found.accuracy.words}")
        print("shown" if found.shown else "not shown")
        for reason in found.reasons:
            print(f"  {reason}")
        print(NOT_BILLED)
    return DONE if found.shown else NO
