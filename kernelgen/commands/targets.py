"""`targets`: for which hardware this machine can compile, run, verify, cost and measure, and why
not.

In: `--json`. Out: one row per target. Every yes for the CPU is tried here and now: a kernel is
compiled and judged.
Never here: a capability from a table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelgen.commands import show
from kernelgen.judge import Candidate, JudgeError, judge
from kernelgen.judge.sandbox import protection
from kernelgen.machine import Machine, describe
from kernelgen.ops import MeanPool
from kernelgen.targets.cpu import compile_shared, compiler_version

NAME = "targets"
HELP = "what this machine can compile, run, verify, cost and measure, and why not"

_PROBE_DIMS = {"n": 2, "tokens": 9}


@dataclass(frozen=True)
class Target:
    """`why_not` says what is missing for every capability that is false."""

    name: str
    compile: bool
    run: bool
    verify: bool
    static_cost: bool
    measure: bool
    toolchain: str
    sandbox: str
    why_not: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    machine = describe(measure=False)
    found = [_cpu(machine), *_gpus(machine)]
    if arguments.json:
        show.document({"targets": [asdict(target) for target in found]})
        return 0
    for target in found:
        able = [
            name
            for name in ("compile", "run", "verify", "static_cost", "measure")
            if getattr(target, name)
        ]
        print(f"{target.name}: {', '.join(able) or 'nothing'}")
        show.pairs({"  toolchain": target.toolchain, "  sandbox": target.sandbox})
        if target.why_not:
            print(f"  why not: {target.why_not}")
    return 0


def _cpu(machine: Machine) -> Target:
    name = f"cpu-{machine.architecture}"
    no_cost = "static_cost: no static cost model is built in"
    try:
        version = compiler_version()
    except FileNotFoundError as error:
        return Target(name, False, False, False, False, False, "none", "none", str(error))
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        from kernelgen.emit import flags, source
        from kernelgen.schedule import space

        operator = MeanPool(64)
        schedule = space(operator, machine).default()
        text, options = source(operator, schedule), flags(machine, schedule)
        outcome = compile_shared(text, options, Path(folder) / "probe.so")
        if outcome.path is None:
            return Target(
                name, False, False, False, False, False, version, "none", outcome.stderr[:500]
            )
        try:
            verdict = judge(
                Candidate("probe", outcome.path, (text,), options),
                operator,
                _PROBE_DIMS,
                incumbent=None,
                seed_bytes=os.urandom(32),
                machine=machine,
                core=min(os.sched_getaffinity(0)),
            )
        except JudgeError as error:
            return Target(name, True, False, False, False, False, version, "none", str(error))
    trouble = "" if verdict.accepted else f"verify: {verdict.reason}: {verdict.detail}; "
    measured = verdict.time_ns is not None
    return Target(
        name=name,
        compile=True,
        run=measured,
        verify=verdict.accepted,
        static_cost=False,
        measure=measured,
        toolchain=version,
        sandbox=protection().text(),
        why_not=trouble + no_cost,
    )


def _gpus(machine: Machine) -> list[Target]:
    reason = "no emitter for GPUs in this version"
    if not machine.gpus:
        reason += "; and no GPU is visible here"
    names = [gpu.name for gpu in machine.gpus] or ["gpu"]
    return [
        Target(name, False, False, False, False, False, "none", "none", reason) for name in names
    ]
