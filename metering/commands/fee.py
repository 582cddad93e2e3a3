"""Commands ``fee`` and ``break-even``: amounts from a case file, before anything is issued.

In: case files, changed assumptions, the price of a search, all named on the command line.
Out: JSON on standard output and an exit status: 0 done, 1 the search does not pay, 2 wrong use.
Never here: a formula; anything written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from metering import canonical
from metering.cases import Case, play, schema_text, what_if
from metering.commands.answers import DONE, NO, answered, load
from metering.contract import break_even
from metering.decimals import parse_decimal
from metering.refusal import Refusal

__all__ = ["register"]


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("fee", help="compute every amount of a case file")
    command.add_argument(
        "case", type=Path, nargs="*", metavar="CASE.json", help="see docs/contracts.md"
    )
    command.add_argument("--schema", action="store_true", help="print the JSON Schema of a case")
    command.add_argument(
        "--what-if", type=Path, metavar="CHANGES.json",
        help='values by place, such as {"savings.0.point": "900"}: which amounts would move',
    )  # fmt: skip
    command.set_defaults(handler=answered(_fee))

    command = subparsers.add_parser(
        "break-even", help="price, gain and months to pay back of a search, before it starts"
    )
    command.add_argument("case", type=Path, metavar="CASE.json", help="its first contract counts")
    command.add_argument("--price", required=True, metavar="AMOUNT", help="what the search costs")
    command.add_argument(
        "--savings", required=True, metavar="AMOUNT", help="savings expected in a month"
    )
    command.set_defaults(handler=answered(_break_even))


def _fee(arguments: argparse.Namespace) -> int:
    """One case: its answer. Several: the list of their answers, or none when one is refused."""
    if arguments.schema:
        sys.stdout.write(schema_text())
        return DONE
    if not arguments.case:
        raise Refusal("CASE.json", "nothing", "a case file", "--schema prints its format")
    if arguments.what_if is not None:
        return _what_if(arguments)
    answers: list[object] = [play(Case.from_json(load(path))).to_json() for path in arguments.case]
    sys.stdout.write(canonical.pretty(answers[0] if len(answers) == 1 else answers))
    return DONE


def _what_if(arguments: argparse.Namespace) -> int:
    if len(arguments.case) != 1:
        raise Refusal("CASE.json", len(arguments.case), "one case file with --what-if")
    changes = load(arguments.what_if)
    if not isinstance(changes, Mapping):
        raise Refusal(str(arguments.what_if), type(changes).__name__, "values by place in the case")
    found = what_if(load(arguments.case[0]), cast("Mapping[str, object]", changes))
    sys.stdout.write(canonical.pretty(found.to_json()))
    return DONE


def _break_even(arguments: argparse.Namespace) -> int:
    contract = Case.from_json(load(arguments.case)).contracts[0]
    forecast = break_even(
        contract,
        parse_decimal(arguments.price, "--price"),
        parse_decimal(arguments.savings, "--savings"),
    )
    sys.stdout.write(canonical.pretty(forecast.to_json()))
    return DONE if forecast.worth_it else NO
