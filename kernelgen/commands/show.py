"""How every command prints: JSON for machines, lines for people, progress only where somebody
watches.

In: results. Out: stdout and stderr. Never here: what a result means.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping


def document(data: Mapping[str, object]) -> None:
    """One JSON document on stdout."""
    print(json.dumps(data, indent=1, sort_keys=True, allow_nan=False, default=str))


def pairs(data: Mapping[str, object]) -> None:
    """Aligned `name  value` lines on stdout."""
    width = max((len(name) for name in data), default=0)
    for name, value in data.items():
        print(f"{name:<{width}}  {value}")


def progress(line: str) -> None:
    """A progress line on stderr; silent in a pipe."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
