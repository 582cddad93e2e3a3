"""`models`: fetch the pinned models into a cache, once; offline ever after.

In: `--cache`, and the optional extras whose models are wanted too. Out: one line per file.
Never here: a download address; the pins are in `kernelgen.zoo`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelgen.commands import show
from kernelgen.zoo import PINS, fetch

NAME = "models"
HELP = "fetch the pinned models into a cache, checked by digest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", type=Path, required=True, help="folder of the model files")
    parser.add_argument(
        "--extra",
        action="append",
        default=[],
        choices=sorted({pin.extra for pin in PINS.values() if pin.extra}),
        help="also the models that only this optional extra needs",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    wanted = {"", *arguments.extra}
    names = sorted(name for name, pin in PINS.items() if pin.extra in wanted)
    files = {name: str(fetch(name, arguments.cache)) for name in names}
    if arguments.json:
        show.document({"models": files})
        return 0
    for name, path in files.items():
        print(f"{name}: {path}")
    return 0
