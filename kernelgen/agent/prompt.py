"""What a language model is told: the task, the operator, the machine, the best so far, what failed.

In: the operator, its sizes, the machine, the search space, the history. Out: chat messages. The
same facts give the same text, so a recorded answer finds its question again.
Never here: a secret, a path of this machine, anything of the judge (seeds, tolerances as numbers to
aim at, the oracle's data) beyond what a repair needs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence

from kernelgen.agent.endpoint import Message
from kernelgen.agent.proposals import Proposal, Written
from kernelgen.agent.proposers import History
from kernelgen.agent.records import Trial
from kernelgen.emit import source
from kernelgen.judge.contest import Point
from kernelgen.judge.terms import ATTRIBUTES, PRELUDE
from kernelgen.judge.verdict import REASONS
from kernelgen.machine import Machine
from kernelgen.ops.operator import Operator
from kernelgen.schedule import ScheduleError, SearchSpace

SOURCE_LIMIT = 24_000
"""Characters of the best source that are shown."""

COMPLAINT_LIMIT = 3_000
"""Characters of compiler errors or evidence that are shown."""

TRIALS_SHOWN = 12

_RULES = """\
You write one inference kernel for one machine. A judge in another process compiles it, tests it on
secret inputs against a float64 oracle, and times it against the best kernel so far. Only a correct
and faster kernel counts. You cannot speak to the judge.

Answer with exactly one fenced block and nothing else that matters.
{schedule_rule}{kernel_rule}"""

_SCHEDULE_RULE = """\
A schedule: a block that opens with ```schedule and holds one line `axis=value axis=value ...` with
every legal axis, each with one of its values.
"""

_KERNEL_RULE = """\
Or a whole kernel: a block that opens with ```c and holds one C file (GNU C11, ASCII) that defines
  EXPORT size_t packed_bytes(const int64_t *dim);
  EXPORT int prepare(const void *const *weight, const int64_t *dim, void *packed);
  EXPORT size_t scratch_bytes(const int64_t *dim);
  EXPORT int kernel(const void *const *in, void *const *out, const int64_t *dim,
                    const void *packed, void *scratch);
`weight`, `in`, `out` and `dim` follow the order given below; the functions return 0. `packed` and
`scratch` are 64-byte aligned; everything else is aligned to its element only, and may end at
unmapped memory. Nothing is kept between calls. No system call, no other library, no inline
assembly, no file but these declarations, which are already there:
{prelude}Attributes allowed: {attributes}.
"""


def messages(
    operator: Operator,
    points: Sequence[Point],
    machine: Machine,
    space: SearchSpace,
    history: History,
    *,
    kernels: bool,
) -> list[Message]:
    """The first question about this operator, given what is known by now."""
    parts = [
        _operator(operator, points),
        _machine(machine),
        _axes(space),
        _best(operator, history),
        _tried(history),
    ]
    return [
        {"role": "system", "content": rules(kernels=kernels)},
        {"role": "user", "content": "\n\n".join(part for part in parts if part)},
    ]


def rules(*, kernels: bool) -> str:
    kernel = _KERNEL_RULE.format(prelude=PRELUDE, attributes=", ".join(sorted(ATTRIBUTES)))
    return _RULES.format(schedule_rule=_SCHEDULE_RULE, kernel_rule=kernel if kernels else "")


def follow_up(trial: Trial) -> str:
    """What came of the model's own proposal, with the evidence to repair it."""
    reason = REASONS.get(trial.reason, trial.reason)
    lines = [f"Your proposal was refused: {trial.reason} ({reason})."]
    if trial.detail:
        lines.append(cut(trial.detail, COMPLAINT_LIMIT))
    if trial.evidence:
        lines.append(cut(trial.evidence, COMPLAINT_LIMIT))
    if trial.ratio is not None:
        lines.append(
            f"Speed against the best so far: {trial.ratio:.3f}x "
            f"[{trial.ratio_lo or 0.0:.3f}, {trial.ratio_hi or 0.0:.3f}]; {_timing(trial)}."
        )
    lines.append("Answer with one corrected or better proposal, in one fenced block.")
    return "\n".join(lines)


def cut(text: str, limit: int) -> str:
    """Head and tail of a long text; says what is missing."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"


def _operator(operator: Operator, points: Sequence[Point]) -> str:
    meaning = inspect.cleandoc(type(operator).__doc__ or operator.family)
    lines = [
        f"Operator {operator.name}",
        f"Meaning: {meaning}",
        f"Fixed sizes: {json.dumps(operator.spec(), sort_keys=True)}",
        f"dim[]: {', '.join(operator.dims)}",
    ]
    for role in ("input", "weight", "output"):
        shown = [f"{t.name} {t.dtype}{list(t.shape)}" for t in operator.by_role(role)]
        lines.append(f"{role}s in order: {'; '.join(shown) or 'none'}")
    if operator.constants:
        lines.append(f"Constants: {json.dumps(dict(operator.constants), sort_keys=True)}")
    for point in points:
        flops, moved = operator.flops(point.dims), operator.bytes_moved(point.dims)
        lines.append(
            f"Timed at {json.dumps(dict(point.dims), sort_keys=True)} (weight {point.weight:g}): "
            f"{flops} flops, {moved} bytes, {flops / max(1, moved):.2f} flops a byte"
        )
    lines.append(
        "Accuracy: honest float32 with any order of sums; lower precision is refused. Other sizes "
        "of dim[] must be correct too."
    )
    return "\n".join(lines)


def _machine(machine: Machine) -> str:
    peaks = (
        ""
        if machine.peak_gflops_per_core is None or machine.peak_gbps_per_core is None
        else f"; measured peaks of one core {machine.peak_gflops_per_core:.0f} GFLOP/s and "
        f"{machine.peak_gbps_per_core:.1f} GB/s"
    )
    return (
        f"Machine: {machine.cpu_model}, {machine.architecture}, one core; caches "
        f"{machine.l1d_bytes}, {machine.l2_bytes}, {machine.l3_bytes} bytes{peaks}\n"
        f"Instruction sets: {' '.join(machine.isa)}"
    )


def _axes(space: SearchSpace) -> str:
    rows = [f"  {axis}: {' '.join(str(v) for v in values)}" for axis, values in space.axes.items()]
    return "Legal schedule axes (some combinations are refused with a reason):\n" + "\n".join(rows)


def _best(operator: Operator, history: History) -> str:
    if history.best is None:
        return ""
    timed = [
        t
        for t in history.trials
        if t.schedule == history.best.text() and t.accepted and t.time_ns is not None
    ]
    head = f"Best so far: {history.best.text()}"
    if timed:
        head += f"; {_timing(timed[-1])}"
    text = _source(operator, history.best)
    return f"{head}\nIts source:\n{cut(text, SOURCE_LIMIT)}" if text else head


def _source(operator: Operator, best: Proposal) -> str:
    if isinstance(best, Written):
        return best.source
    try:
        return source(operator, best)
    except ScheduleError:
        return ""  # a recorded landscape of an operator that has no emitter


def _timing(trial: Trial) -> str:
    time = "not timed" if trial.time_ns is None else f"{trial.time_ns:.0f} ns a call"
    if trial.roofline_fraction is None:
        return time
    return f"{time}, {trial.roofline_fraction:.2f} of the roofline"


def _tried(history: History) -> str:
    rows = [
        f"  {trial.reason} {'' if trial.ratio is None else f'{trial.ratio:.3f}x '}"
        f"{trial.schedule.partition(': ')[2]}"
        for trial in history.trials[-TRIALS_SHOWN:]
    ]
    return (
        "Latest trials (ratio against the best at that time):\n" + "\n".join(rows) if rows else ""
    )
