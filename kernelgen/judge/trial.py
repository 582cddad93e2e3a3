"""One judgement from start to end."""

from __future__ import annotations

from collections.abc import Mapping

from kernelgen.judge.verdict import Candidate, Verdict
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator


def judge(
    candidate: Candidate,
    operator: Operator,
    dims: Mapping[str, int],
    *,
    incumbent: Candidate | None,
    seed_bytes: bytes,
    machine: Machine,
    core: int,
) -> Verdict:
    """Decide whether `candidate` is a correct kernel for `operator`, and faster than `incumbent` at `dims`."""
    raise NotImplementedError
