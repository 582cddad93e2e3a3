"""Commands that have parts, such as ``baseline show`` and ``baseline due``.

In: a command's name. Out: how to add a part to it, each with ``--json`` and a handler.
Never here: what a part does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

Handler = Callable[[argparse.Namespace], int]
AddPart = Callable[[str, Handler, str], argparse.ArgumentParser]


def command_with_parts(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str
) -> AddPart:
    """Add the command; the answer adds a part: ``(name, handler, help)``, its parser comes back."""
    command = subparsers.add_parser(name, help=help_)
    parts = command.add_subparsers(dest="part", required=True, metavar="PART")

    def add(part: str, handler: Handler, about: str) -> argparse.ArgumentParser:
        found = parts.add_parser(part, help=about)
        found.add_argument("--json", action="store_true")
        found.set_defaults(handler=handler)
        return found

    return add
