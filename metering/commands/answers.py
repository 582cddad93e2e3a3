"""How a command of the money half answers: exit statuses, one clear line, files read as JSON.

In: a handler, a path. Out: the handler's status, or 2 with one line on standard error.
Never here: a command; a traceback at a user.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

from metering import canonical
from metering.refusal import Refusal

__all__ = ["DONE", "NO", "WRONG_USE", "answered", "load"]

DONE, NO, WRONG_USE = 0, 1, 2

Handler = Callable[[argparse.Namespace], int]


def answered(handler: Handler) -> Handler:
    """Turn refusals and unreadable files into one line and exit status 2."""

    @wraps(handler)
    def answer(arguments: argparse.Namespace) -> int:
        try:
            return handler(arguments)
        except Refusal as refusal:
            message = str(refusal)
        except BrokenPipeError:
            # The reader went away: __main__ ends quietly.
            raise
        except OSError as error:
            message = f"{error.filename or 'file'}: {error.strerror or error}"
        print(f"metering {arguments.command}: {message}", file=sys.stderr)
        return WRONG_USE

    return answer


def load(path: Path) -> object:
    """The JSON value of a file; a refusal names the file."""
    try:
        return canonical.loads(path.read_bytes())
    except Refusal as refusal:
        raise refusal.inside(str(path)) from refusal
