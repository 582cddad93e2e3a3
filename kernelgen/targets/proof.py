"""One operator proven on one kind of hardware: compiled, disassembled, run in every round, counted,
costed.

In: operator, schedule, target, a secret seed. Out: a `Proof`. The rounds, the bounds and the
harness are the judge's own; where the processor is not here, an emulator stands in for it.
Never here: a time. What an emulated kernel is worth only its own device can say.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from kernelgen.emit import flags, source
from kernelgen.judge import rounds, sandbox, symbols
from kernelgen.judge.compare import compare, poison_word, poisoned
from kernelgen.judge.quiet import one_blas_thread
from kernelgen.judge.session import Refusal, Region, Session, bytes_for
from kernelgen.judge.trial import PROVEN_ROUNDS
from kernelgen.judge.verdict import ACCEPTED, JudgeError
from kernelgen.machine import Machine, describe
from kernelgen.ops.operator import Array, Operator
from kernelgen.schedule import Schedule, space
from kernelgen.targets import toolchain
from kernelgen.targets.cost import missing_to_cost, static_cost
from kernelgen.targets.emulate import EmulatedSession, missing_to_run
from kernelgen.targets.figures import Figure
from kernelgen.targets.hardware import Target

NATIVE = "this machine"
STATIC_ONLY = "static_only"
CALL_LIMIT_S = 60.0
"""Emulation is 50 to 500 times slower than the processor."""

REASONS = {
    STATIC_ONLY: "compiled and read, not run: no such processor and no emulator of it here",
}
"""Reasons of a proof beyond those of a verdict."""

_ROOM = 8192


@dataclass(frozen=True)
class Proof:
    """`reason` is "accepted" when the kernel met the bound in every round on all `processors`,
    else one of `verdict.REASONS` or `REASONS`. `instructions` counts the target's vector
    instructions in the binary; none is no fault in a kernel that only moves bytes or whose example
    is smaller than a register. `max_error_ratio` is the largest error over its bound.
    """

    target: str
    operator: str
    schedule: str
    dims: Mapping[str, int]
    reason: str
    detail: str
    processors: tuple[str, ...]
    rounds: int
    max_error_ratio: float
    instructions: Mapping[str, int]
    figures: tuple[Figure, ...]
    compiler: str
    flags: tuple[str, ...]
    source_sha256: str
    library_sha256: str
    sandbox: str
    seconds: float

    @property
    def accepted(self) -> bool:
        return self.reason == ACCEPTED

    def to_dict(self) -> dict[str, object]:
        """JSON-able."""
        data: dict[str, object] = dict(vars(self))
        return data | {
            "accepted": self.accepted,
            "dims": dict(self.dims),
            "instructions": dict(self.instructions),
            "figures": [figure.to_dict() for figure in self.figures],
        }


@dataclass
class _Found:
    """What has been learnt so far; a refusal in the middle keeps it."""

    processors: list[str] = field(default_factory=list)
    rounds: int = 0
    error_ratio: float = 0.0
    instructions: dict[str, int] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    library_sha256: str = ""


def machine_of(target: Target) -> Machine:
    """A machine of the target's kind: this one cut down to the target's level where it has it,
    else a nominal one (its caches only steer the first schedule).
    """
    here = _here()
    if here.architecture == target.architecture:
        return replace(here, isa=tuple(sorted(target.isa)), gpus=())
    return Machine(
        cpu_model=f"nominal {target.name}",
        architecture=target.architecture,
        isa=tuple(sorted(target.isa)),
        cores=1,
        l1d_bytes=64 << 10,
        l2_bytes=1 << 20,
        l3_bytes=0,
        memory_bytes=4 << 30,
        kernel="",
        gpus=(),
        fingerprint="",
        peak_gflops_per_core=None,
        peak_gbps_per_core=None,
    )


@cache
def _here() -> Machine:
    return describe(measure=False)


def runs_here(target: Target) -> bool:
    """Whether this very processor executes the target's instructions."""
    return platform.machine() == target.architecture and set(target.isa) <= set(_here().isa)


def default_schedule(operator: Operator, target: Target) -> Schedule:
    """The schedule to begin with on `target`: its vectors one register wide where the operator's
    sizes allow.
    """
    found = space(operator, machine_of(target))
    usual = found.default()
    if "vector" not in usual.as_dict:
        return usual
    fitting = usual.with_choice("vector", target.vector)
    near = (
        fitting.with_choice(axis, value)
        for axis, values in found.axes.items()
        if axis != "vector"
        for value in values
    )
    legal = (s for s in (fitting, *near) if found.rule(s.as_dict) is None)
    return next(legal, usual)


def prove(
    operator: Operator,
    schedule: Schedule,
    target: Target,
    dims: Mapping[str, int],
    *,
    seed_bytes: bytes | None = None,
    processors: Sequence[str] | None = None,
    limit_s: float = CALL_LIMIT_S,
    run: bool = True,
) -> Proof:
    """Prove `operator` under `schedule` on `target`, with rounds at and around `dims`.

    `processors` picks from `target.processors`; by default all. With `run` false, or where the code
    cannot run, the proof is static only. Raises `FileNotFoundError` naming the packages that
    compiling lacks, `ScheduleError` for a schedule that does not fit, `JudgeError` when no proof is
    possible here.
    """
    return prove_text(
        source(operator, schedule),
        operator,
        target,
        dims,
        label=schedule.text(),
        options=flags(machine_of(target), schedule),
        seed_bytes=seed_bytes,
        processors=processors,
        limit_s=limit_s,
        run=run,
    )


def prove_text(
    text: str,
    operator: Operator,
    target: Target,
    dims: Mapping[str, int],
    *,
    label: str,
    options: Sequence[str] = ("-O3",),
    seed_bytes: bytes | None = None,
    processors: Sequence[str] | None = None,
    limit_s: float = CALL_LIMIT_S,
    run: bool = True,
) -> Proof:
    """`prove` for C text from anywhere behind the judged interface; `label` says where from."""
    began = time.monotonic()
    found = _Found()
    reason, detail = ACCEPTED, ""
    tools = toolchain.toolchain(target)
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        outcome = toolchain.build(target, text, options, Path(folder) / "kernel.so")
        if outcome.path is None:
            reason, detail = "not_compiled", outcome.stderr[:4000]
        else:
            try:
                reason, detail = _hold(
                    outcome.path,
                    operator,
                    target,
                    dims,
                    found,
                    seed_bytes or os.urandom(32),
                    target.processors if processors is None else processors,
                    limit_s,
                    run,
                )
            except Refusal as refusal:
                reason, detail = refusal.reason, refusal.detail
    return Proof(
        target=target.name,
        operator=operator.name,
        schedule=label,
        dims=dict(dims),
        reason=reason,
        detail=detail,
        processors=tuple(found.processors),
        rounds=found.rounds,
        max_error_ratio=found.error_ratio,
        instructions=found.instructions,
        figures=tuple(found.figures),
        compiler=tools.version,
        flags=(*(flag for flag in options if flag not in target.flags), *target.flags),
        source_sha256=hashlib.sha256(text.encode()).hexdigest(),
        library_sha256=found.library_sha256,
        sandbox=_confined(found),
        seconds=time.monotonic() - began,
    )


def _confined(found: _Found) -> str:
    text = sandbox.protection().text()
    emulated = set(found.processors) - {NATIVE}
    return f"{text}; the harness's system call filter kept by the emulator" if emulated else text


def _hold(
    library: Path,
    operator: Operator,
    target: Target,
    dims: Mapping[str, int],
    found: _Found,
    seed: bytes,
    processors: Sequence[str],
    limit_s: float,
    run: bool,
) -> tuple[str, str]:
    found.library_sha256 = hashlib.sha256(library.read_bytes()).hexdigest()
    symbols.check(library)
    found.instructions = toolchain.evidence(target, library)
    if missing_to_cost(target) is None:
        found.figures += static_cost(target, library)
    native = runs_here(target)
    if not run:
        return STATIC_ONLY, "running was not asked for"
    if not native and not target.processors:
        lacking = sorted(set(target.isa) - set(_here().isa))
        return STATIC_ONLY, f"this processor lacks {', '.join(lacking)}, and qemu emulates no such"
    if not native and missing_to_run(target):
        return STATIC_ONLY, "; ".join(tool.text() for tool in missing_to_run(target))
    plan = rounds.plan(operator, [dims], seed)
    for processor in (NATIVE,) if native else processors:
        with one_blas_thread():
            _rounds(library, operator, target, dims, found, seed, plan, processor, limit_s)
        found.processors.append(processor)
    return ACCEPTED, ""


def _rounds(
    library: Path,
    operator: Operator,
    target: Target,
    dims: Mapping[str, int],
    found: _Found,
    seed: bytes,
    plan: Sequence[rounds.Round],
    processor: str,
    limit_s: float,
) -> None:
    proven, told = 0, frozenset[str]()
    inward = max(bytes_for(operator, test.dims, ("input", "weight")) for test in plan)
    outward = max(bytes_for(operator, test.dims, ("output",)) for test in plan)
    with closing(Region(inward + _ROOM)) as inputs, closing(Region(outward + _ROOM)) as outputs:
        opened = (
            Session(library, operator, inputs, outputs, core=None, limit_s=limit_s)
            if processor == NATIVE
            else EmulatedSession(
                library,
                operator,
                inputs,
                outputs,
                target=target,
                processor=processor,
                limit_s=limit_s,
            )
        )
        with opened as session:
            for test in plan:
                proves, tells = _round(session, operator, test, seed, processor, found)
                proven += proves
                told |= tells
            if isinstance(session, EmulatedSession):
                first = rounds.arrays(operator, rounds.Round(0, dims, "nominal"), seed)
                _call(session, operator, dims, first, poison=0x7FC00001, left=False)
                found.figures += session.counts()[-1]
            session.finish()
    untold = [t.name for t in operator.by_role("output") if t.name not in told]
    if proven < PROVEN_ROUNDS or untold:
        raise JudgeError(
            f"{operator.name}: {proven} rounds refuse a no-op, a zero and a copy kernel, wanted "
            f"{PROVEN_ROUNDS}; outputs no round refuses as zeros: {', '.join(untold) or 'none'}; "
            "samples or bound prove too little"
        )


def _round(
    session: Session,
    operator: Operator,
    test: rounds.Round,
    seed: bytes,
    processor: str,
    found: _Found,
) -> tuple[bool, frozenset[str]]:
    """One test set at both guard pages, candidate first, then the oracle; drawn again when it would
    not refuse a cheat. Returns whether it would, and the outputs it would refuse as zeros.
    """
    found.rounds += 1
    told = frozenset[str]()
    for attempt in range(rounds.ATTEMPTS):
        sample = rounds.arrays(operator, test, seed, attempt)
        word = poison_word(rounds.generator(seed, "poison", test.number, attempt))
        results = [
            _call(session, operator, test.dims, sample, poison=word, left=left)
            for left in (False, True)
        ]
        want = operator.oracle(sample, test.dims)
        bound = operator.error_bound(sample, test.dims)
        exact = test.regime == "integer_exact"
        for got in results:
            result = compare(got, want, bound, poison=word, exact=exact)
            found.error_ratio = max(found.error_ratio, result.error_ratio)
            if result.reason is not None:
                where = f"{processor}, round {test.number} ({test.regime}, {dict(test.dims)})"
                raise Refusal(result.reason, f"{where}: {result.detail}")
        told |= rounds.tells(operator, want, bound, exact=exact)
        if rounds.proves(operator, sample, want, bound, exact=exact):
            return True, told
        if not any(array.size for array in want.values()):
            break  # an empty answer proves nothing, however often it is drawn
    return False, told


def _call(
    session: Session,
    operator: Operator,
    dims: Mapping[str, int],
    sample: Mapping[str, Array],
    *,
    poison: int,
    left: bool,
) -> dict[str, Array]:
    session.inputs.rewind()
    session.outputs.rewind()
    weights = [session.inputs.put(sample[t.name]) for t in operator.by_role("weight")]
    session.setup(dims, weights, left=left)
    sources = [session.inputs.put(sample[t.name]) for t in operator.by_role("input")]
    tensors = operator.by_role("output")
    places = [session.outputs.put(poisoned(t.sizes(dims), t.dtype, poison)) for t in tensors]
    session.call(sources, places, left=left)
    return {
        t.name: session.outputs.get(at, t.sizes(dims), t.dtype)
        for t, at in zip(tensors, places, strict=True)
    }
