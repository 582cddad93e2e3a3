"""The judge's words: what is judged (`Candidate`) and what is said about it (`Verdict`).

In: nothing. Out: frozen records with stable reason codes. Never here: how a verdict is reached.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

JUDGE_VERSION = "2"
"""Part of every record's key: a timing made by another judge is not comparable."""

ACCEPTED = "accepted"

REASONS = {
    ACCEPTED: "correct in every round, and faster than the incumbent where there was one",
    "not_compiled": "the compiler refused the source",
    "forbidden_source": "the text asks the compiler for more than code (files, less checking)",
    "not_loadable": "the shared object cannot be opened or has no kernel in it",
    "constructor": "code would run while the object is loaded",
    "forbidden_symbol": "the object asks for a function that is not on the allow-list",
    "unsafe_object": "the object would weaken the process that loads it (stack, code or tables)",
    "package_refused": "a package that is not what its manifest says, or carries what none needs",
    "claimed_isa": "the binary holds no instruction of a set it is named for",
    "crashed": "the kernel ended its process by a signal",
    "out_of_bounds": "the kernel read or wrote outside a buffer",
    "input_written": "the kernel wrote to a read-only buffer",
    "forbidden_syscall": "the kernel made a system call",
    "time_limit": "the kernel did not come back within the wall limit",
    "ended_early": "the process ended without an answer",
    "handshake": "the answer did not carry the judge's nonce",
    "returned_error": "the kernel returned a code other than 0",
    "state_changed": "the kernel left the processor in another mode (rounding, denormals)",
    "too_large": "packed data or scratch are larger than the limit",
    "not_written": "part of the output still holds the poison the judge put there",
    "not_finite": "the output holds NaN or infinity where the oracle does not",
    "wrong_output": "an error is larger than honest float32 arithmetic can make",
    "sanitizer": "the sanitizer build reported undefined behaviour or a memory error",
    "slower": "not faster than the incumbent beyond doubt (interval and sign test)",
    "above_roofline": "faster than this machine can compute or move the data",
    "clock_mismatch": "wall time and CPU time of the process disagree",
}
"""Every reason a verdict may carry. Codes are stable: records, fixtures and reports quote them."""


class JudgeError(RuntimeError):
    """The judge cannot work here (no compiler, no sandbox, a test set that proves nothing); says
    nothing about a kernel.
    """


@dataclass(frozen=True)
class Candidate:
    """A compiled kernel. `sources` and `flags` rebuild it under the sanitizers; both belong to its
    key in the records. `claims` are instruction sets (words of `Machine.isa`) it is named for; each
    must be found in its code.
    """

    name: str
    library: Path
    sources: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """One judgement.

    `max_error_ratio` is the largest error over its allowed bound (accepted kernels stay at or below
    1). Times are nanoseconds per call with fresh inputs at fresh addresses. `ratio_vs_incumbent` is
    incumbent time over candidate time with a 95 % bootstrap interval. `sandbox` names what confined
    the run and what it did not protect.
    """

    accepted: bool
    reason: str
    detail: str
    max_error_ratio: float
    time_ns: float | None
    ratio_vs_incumbent: float | None
    ratio_lo: float | None
    ratio_hi: float | None
    roofline_fraction: float | None
    rounds: int
    timed_calls: int
    prepare_ns: float | None
    packed_bytes: int
    scratch_bytes: int
    sandbox: str
    seconds: float
    judge_version: str = JUDGE_VERSION

    def to_dict(self) -> dict[str, object]:
        return asdict(self)
