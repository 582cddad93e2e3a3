"""Command ``lines``: render an accuracy set of text lines, with the text of each, into one file.

In: a seed and a count. Out: a query sample library for the task ``text_recognition``, and its
digest. Exit status: 0 done, 2 wrong use with one clear line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from metering.commands.measure import DONE, WrongUse, print_json
from metering.datasets.text_lines import TextLinesError, text_lines, write_text_lines
from metering.loadgen.files import sha256_file

MOST = 10_000


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's command; it sets ``handler(arguments) -> exit status``."""
    command = subparsers.add_parser("lines", help="render lines of text with known words")
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--count", type=int, required=True)
    command.add_argument("--out", type=Path, required=True, metavar="LINES.npz")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_lines)


def _lines(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out
    if out.suffix != ".npz" or out.exists():
        raise WrongUse(f"--out: got {out}, wanted a new file whose name ends in .npz")
    if arguments.count > MOST:
        raise WrongUse(f"--count: got {arguments.count}, wanted at most {MOST}, some 3 GB")
    try:
        write_text_lines(text_lines(arguments.seed, arguments.count), out)
    except TextLinesError as error:
        raise WrongUse(str(error)) from error
    except OSError as error:
        raise WrongUse(f"--out: {out}: {error.strerror}") from error
    digest = sha256_file(out)
    if arguments.json:
        print_json({"samples_sha256": digest, "lines": arguments.count, "seed": arguments.seed})
    else:
        print(f"{arguments.count} lines of seed {arguments.seed}, SHA-256 {digest}")
    return DONE
