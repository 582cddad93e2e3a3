"""Reading what a language model answered: one fenced block, a schedule or a whole C kernel.

In: the text of an answer. Out: a `Schedule` that is in the space, the raw text of a kernel, or a
`ReplyError` with a reason that can go back to the model.
Never here: belief. Words around the block are not read at all.
"""

from __future__ import annotations

import re

from kernelgen.schedule import Schedule, ScheduleError, SearchSpace

REPLY_LIMIT = 96 << 10
"""Longest answer that is looked at, in characters."""

_FENCE = re.compile(r"^[ \t]{0,3}(`{3,})[ \t]*([A-Za-z0-9_+-]*)[ \t]*$", re.MULTILINE)
SCHEDULE_WORDS = ("schedule", "text", "")
C_WORDS = ("c", "C", "cpp")


class ReplyError(ValueError):
    """`reason` is one of `kernelgen.agent.proposals.ANSWER_REASONS`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_reply(text: str, space: SearchSpace, *, kernels: bool) -> Schedule | str:
    """The one proposal in an answer; text is a kernel, allowed only with `kernels`."""
    kind, body = fenced(text)
    if kind in C_WORDS:
        if not kernels:
            raise ReplyError("malformed_answer", "wanted a schedule block, got a C block")
        return body
    if kind not in SCHEDULE_WORDS:
        raise ReplyError("malformed_answer", f"a block of kind {kind!r}: wanted schedule or c")
    return _schedule(body, space)


def fenced(text: str) -> tuple[str, str]:
    """Kind and body of the only fenced block. Raises `ReplyError`."""
    if len(text) > REPLY_LIMIT:
        raise ReplyError("malformed_answer", f"{len(text)} characters, wanted {REPLY_LIMIT}")
    marks = list(_FENCE.finditer(text))
    if len(marks) != 2 or marks[1].group(2) or len(marks[1].group(1)) < len(marks[0].group(1)):
        raise ReplyError(
            "malformed_answer", f"{len(marks)} fence lines: wanted exactly one fenced block"
        )
    body = text[marks[0].end() + 1 : marks[1].start()]
    if not body.strip():
        raise ReplyError("malformed_answer", "the block is empty")
    return marks[0].group(2), body


def _schedule(body: str, space: SearchSpace) -> Schedule:
    lines = [line.strip() for line in body.strip().splitlines() if line.strip()]
    if len(lines) != 1:
        raise ReplyError("malformed_answer", f"a schedule of {len(lines)} lines, wanted one line")
    line = lines[0] if ": " in lines[0] else f"{space.operator}: {lines[0]}"
    try:
        schedule = Schedule.parse(line)
    except ScheduleError as error:
        raise ReplyError("illegal_schedule", str(error)[:500]) from None
    reason = space.legal(schedule)
    if reason is not None:
        raise ReplyError("illegal_schedule", reason[:500])
    return schedule
