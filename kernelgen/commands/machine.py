"""`machine`: what this machine is, its fingerprint, its measured peaks.

In: `--no-measure`, `--json`. Out: the `Machine` record. Never here: reading the machine.
"""

from __future__ import annotations

import argparse

from kernelgen.commands import show
from kernelgen.machine import describe

NAME = "machine"
HELP = "describe this machine: stable facts, fingerprint, measured peaks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")
    parser.add_argument("--no-measure", action="store_true", help="leave the peaks out")


def main(arguments: argparse.Namespace) -> int:
    found = describe(measure=not arguments.no_measure).to_dict()
    if arguments.json:
        show.document(found)
        return 0
    isa = found["isa"]
    words = " ".join(isa) if isinstance(isa, list) else str(isa)
    show.pairs({**found, "isa": words})
    return 0
