"""``python -m metering``: both halves of the room on one command line.

In: arguments. Out: an exit status: 0 done, 1 the answer is no, 2 wrong use. A person's mistake is
one clear line on standard error, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from metering.commands import (
    baseline,
    export,
    fee,
    lines,
    measure,
    server,
    submission,
    usage,
)

NOT_DONE, WRONG_USE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m metering", description=(__doc__ or "").strip())
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    measure.register(subparsers)
    baseline.register(subparsers)
    lines.register(subparsers)
    fee.register(subparsers)
    usage.register(subparsers)
    export.register(subparsers)
    server.register(subparsers)
    submission.register(subparsers)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.handler(parsed))
    except measure.WrongUse as error:
        print(f"metering {parsed.command}: {error}", file=sys.stderr)
        return WRONG_USE
    except KeyboardInterrupt:
        print(f"metering {parsed.command}: interrupted; run it again to go on", file=sys.stderr)
        return NOT_DONE
    except BrokenPipeError:
        # The reader went away; say nothing, also not while the interpreter closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return WRONG_USE


if __name__ == "__main__":
    sys.exit(main())
