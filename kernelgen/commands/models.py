"""`models`: fetch every pinned model into a cache, once; offline ever after.

In: `--cache`. Out: one line per file.
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
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    files = {name: str(fetch(name, arguments.cache)) for name in sorted(PINS)}
    if arguments.json:
        show.document({"models": files})
        return 0
    for name, path in files.items():
        print(f"{name}: {path}")
    return 0
