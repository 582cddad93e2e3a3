"""`targets`: for which hardware this machine can compile, run, verify, cost and measure, and why
not; with `--prove`, one operator proven on one of them.

In: `--json`, or `--prove OP --target NAME`. Out: one row per target, or one proof per instance.
Every yes is tried here and now: a kernel is compiled, run and checked. Exit code 1 when a proof
does not hold (a static one, of code that cannot run here, holds with `--static` only).
Never here: a capability from a table.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from kernelgen.commands import show
from kernelgen.judge import Candidate, JudgeError, judge
from kernelgen.judge.sandbox import protection
from kernelgen.machine import Machine, describe
from kernelgen.ops import FAMILIES, MeanPool, Operator, from_spec
from kernelgen.targets.ability import NAMES, Abilities, Ability, Name, abilities
from kernelgen.targets.compiler import compiler_version
from kernelgen.targets.cpu import compile_shared
from kernelgen.targets.hardware import TARGETS, find

NAME = "targets"
HELP = "what this machine can compile, run, verify, cost and measure, and why not"

_PROBE_DIMS = {"n": 2, "tokens": 9}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prove", metavar="OP", help="prove an operator family on --target")
    parser.add_argument("--target", choices=list(TARGETS), help="hardware to prove it on")
    parser.add_argument(
        "--shape",
        nargs="+",
        default=[],
        metavar="NAME=NUMBER",
        help="sizes of --prove (default: the family's examples)",
    )
    parser.add_argument("--schedule", help="choices to prove, as a schedule text prints them")
    parser.add_argument("--static", action="store_true", help="do not run it: compile and read")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    if arguments.prove is not None:
        return _prove(arguments)
    alone = {"--target": arguments.target, "--schedule": arguments.schedule}
    for name, value in {**alone, "--shape": arguments.shape, "--static": arguments.static}.items():
        if value:
            raise ValueError(f"{name}: wanted together with --prove OP")
    found = [_cpu(describe(measure=False))]
    for target in TARGETS.values():
        show.progress(f"trying {target.name}")
        found.append(abilities(target))
    rows = [*(each.to_dict() for each in found), *_gpus(describe(measure=False))]
    if arguments.json:
        show.document({"targets": rows})
        return 0
    _table(rows)
    return 0


def _table(rows: Sequence[Mapping[str, object]]) -> None:
    width = max(len(str(row["name"])) for row in rows)
    print(f"{'target':<{width}}  " + "  ".join(NAMES) + "  toolchain, runs on")
    for row in rows:
        marks = ("yes" if row[name] else "-" for name in NAMES)
        cells = "  ".join(f"{mark:<{len(name)}}" for name, mark in zip(NAMES, marks, strict=True))
        runs_on = row["runs_on"]
        where = f", {', '.join(runs_on)}" if isinstance(runs_on, list) and runs_on else ""
        print(f"{row['name']:<{width}}  {cells}  {row['toolchain']}{where}")
    for row in rows:
        lacking: dict[str, list[str]] = {}
        reasons = row["why_not"]
        if isinstance(reasons, Mapping):
            for name, found in reasons.items():
                lacking.setdefault(found["reason"], []).append(name)
        for reason, names in lacking.items():
            print(f"{row['name']}: no {', '.join(names)}: {reason}")


def _prove(arguments: argparse.Namespace) -> int:
    from kernelgen.schedule import Schedule
    from kernelgen.targets.proof import STATIC_ONLY, default_schedule, prove

    if arguments.target is None:
        raise ValueError(f"--target: wanted one of {', '.join(TARGETS)}")
    target = find(arguments.target)
    proofs = []
    for operator, dims in _instances(arguments.prove, arguments.shape):
        schedule = default_schedule(operator, target)
        if arguments.schedule is not None:
            choices = arguments.schedule.rpartition(":")[2]
            schedule = Schedule.parse(f"{operator.name}: {choices}")
        show.progress(f"{operator.name} on {target.name}")
        proofs.append(prove(operator, schedule, target, dims, run=not arguments.static))
    if arguments.json:
        show.document({"proofs": [proof.to_dict() for proof in proofs]})
    else:
        for proof in proofs:
            _print(proof.to_dict())
    wanted = {STATIC_ONLY} if arguments.static else set()
    return 0 if all(proof.accepted or proof.reason in wanted for proof in proofs) else 1


def _print(proof: Mapping[str, object]) -> None:
    skipped = {"figures", "instructions", "accepted", "source_sha256", "library_sha256"}
    show.pairs({name: value for name, value in proof.items() if name not in skipped})
    instructions, figures = proof["instructions"], proof["figures"]
    if isinstance(instructions, Mapping):
        found = ", ".join(f"{count} {name}" for name, count in list(instructions.items())[:8])
        print(f"vector instructions: {found or 'none'}")
    if isinstance(figures, list):
        for figure in figures:
            print(f"{figure['value']:.6g} {figure['unit']} ({figure['class']}, {figure['basis']})")
    print()


def _instances(family: str, shape: Sequence[str]) -> list[tuple[Operator, Mapping[str, int]]]:
    """What to prove: the operator that `shape` gives, or the family's examples."""
    if family not in FAMILIES:
        raise ValueError(f"--prove: got {family!r}, wanted one of {', '.join(sorted(FAMILIES))}")
    if not shape:
        found = [(each.operator, each.dims) for each in FAMILIES[family].examples()]
        if not found:
            raise ValueError(f"--prove: {family} has no examples, wanted --shape")
        return found
    sizes: dict[str, float] = {}
    for word in shape:
        name, _, value = word.partition("=")
        try:
            sizes[name] = int(value) if value.lstrip("-").isdigit() else float(value)
        except ValueError:
            raise ValueError(f"--shape: got {word!r}, wanted NAME=NUMBER") from None
    own = {item.name for item in fields(FAMILIES[family])}
    given = {name: value for name, value in sizes.items() if name in own}
    operator = from_spec({"family": family, **given})
    dims = {name: int(value) for name, value in sizes.items() if name not in own}
    if set(dims) != set(operator.dims):
        raise ValueError(
            f"--shape: got sizes {sorted(dims)}, {family} wants {sorted(operator.dims)} "
            f"besides {sorted(own)}"
        )
    return [(operator, dims)]


def _cpu(machine: Machine) -> Abilities:
    """This machine with everything it has, timed as the judge times."""
    name = f"cpu-{machine.architecture}"
    no_cost = Ability(False, "the named levels below have one", ())
    try:
        version = compiler_version()
    except FileNotFoundError as error:
        nothing = Ability(False, str(error), ("gcc", "libc6-dev"))
        return _row(name, machine, dict.fromkeys(NAMES, nothing), "none", ())
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        from kernelgen.emit import flags, source
        from kernelgen.schedule import space

        operator = MeanPool(64)
        schedule = space(operator, machine).default()
        text, options = source(operator, schedule), flags(machine, schedule)
        outcome = compile_shared(text, options, Path(folder) / "probe.so")
        if outcome.path is None:
            nothing = Ability(False, outcome.stderr[:500])
            return _row(name, machine, dict.fromkeys(NAMES, nothing), version, ())
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
            each: dict[Name, Ability] = dict.fromkeys(NAMES, Ability(False, str(error)))
            return _row(name, machine, each | {"compile": Ability(True)}, version, ())
    trouble = f"{verdict.reason}: {verdict.detail}"
    timed = Ability(verdict.time_ns is not None, trouble)
    return _row(
        name,
        machine,
        {
            "compile": Ability(True),
            "run": timed,
            "verify": Ability(verdict.accepted, trouble),
            "static_cost": no_cost,
            "measure": timed,
        },
        version,
        ("this machine",),
    )


def _row(
    name: str,
    machine: Machine,
    each: Mapping[Name, Ability],
    version: str,
    runs_on: tuple[str, ...],
) -> Abilities:
    return Abilities(name, machine.cpu_model, each, version, runs_on, protection().text())


def _gpus(machine: Machine) -> list[dict[str, object]]:
    reason = "no emitter for GPUs in this version"
    if not machine.gpus:
        reason += "; and no GPU is visible here"
    names = [gpu.name for gpu in machine.gpus] or ["gpu"]
    each = dict.fromkeys(NAMES, Ability(False, reason))
    return [Abilities(name, "", each, "none", (), "none").to_dict() for name in names]
