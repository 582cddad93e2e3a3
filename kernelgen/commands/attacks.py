"""`attacks`: the judge on trial by its fixtures. Exit 1 unless every cheat is caught and every
honest kernel accepted.

In: `--json`, `--core`. Out: {attacks, caught, honest, accepted} and one row per fixture. Never
here: a fixture.
"""

from __future__ import annotations

import argparse
import os

from kernelgen.attacks import Result, run_all
from kernelgen.commands import show
from kernelgen.machine import describe

NAME = "attacks"
HELP = "try every known cheat and every honest kernel on the judge"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--core", type=int, default=None, help="core the kernels run on")


def main(arguments: argparse.Namespace) -> int:
    core = min(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
    report = run_all(describe(), core=core, on_result=lambda result: show.progress(_line(result)))
    if arguments.json:
        show.document(report.to_dict())
    else:
        for result in report.results:
            if not result.right:
                print(_line(result))
        print(
            f"{report.caught} of {report.attacks} attacks caught, "
            f"{report.accepted} of {report.honest} honest kernels accepted"
        )
    return 0 if report.passed else 1


def _line(result: Result) -> str:
    mark = "ok   " if result.right else "WRONG"
    tail = "" if result.right else f" (wanted {' or '.join(result.expect)}) {result.detail[:200]}"
    return f"{mark} {result.name}: {result.reason}{tail}"
