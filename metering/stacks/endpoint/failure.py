"""The ways a remote system fails, each with a name.

In: what went wrong. Out: an exception that carries a kind from a fixed list, so that a report can
count them. The text of a server is quoted shortened and without control characters.
"""

from __future__ import annotations

from typing import Literal

from metering.stacks.system import StackError

Kind = Literal[
    "address",  # the rules do not let us connect there
    "connect",  # no connection, or no TLS
    "timeout",  # no answer, or not all of it, within the limit
    "dropped",  # the connection ended before the answer did
    "redirect",  # it wants us to ask elsewhere
    "status",  # an HTTP status other than 200
    "size",  # more bytes than the limit
    "form",  # not HTTP, not JSON, not the fields the protocol has
    "answer",  # well formed, and not an answer to what was asked
]

_QUOTED = 120


class EndpointError(StackError):
    """One failed request; ``kind`` is one of :data:`Kind`."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind: Kind = kind


def quoted(text: str | bytes) -> str:
    """Foreign text, at most 120 characters, printable ASCII only."""
    if isinstance(text, bytes):
        text = text[: 4 * _QUOTED].decode("utf-8", "replace")
    shown = "".join(mark if " " <= mark <= "~" else "?" for mark in text[: _QUOTED + 1])
    return shown if len(shown) <= _QUOTED else f"{shown[:_QUOTED]}..."
