"""The judge: runs a candidate kernel in a sandboxed child and decides alone whether it is correct
and faster.

In: a shared object, the operator it claims to implement, sizes, a secret seed. Out: a `Verdict`.
Never here: trust. The candidate's process owns no clock, no oracle, no seed and no verdict; what it
prints is data.

Contract with a kernel: inputs and outputs are aligned to their element size only and may touch
unmapped memory at either end; packed data and scratch are aligned to 64 bytes; inputs, packed data
and weights are read-only; nothing is known about the contents of outputs and scratch; after
loading, no system call is possible.
"""

from kernelgen.judge.trial import judge
from kernelgen.judge.verdict import Candidate, JudgeError, Verdict

__all__ = ["Candidate", "JudgeError", "Verdict", "judge"]
