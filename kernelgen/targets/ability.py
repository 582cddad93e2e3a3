"""What this machine can do for a target, tried here and now, and what brings the rest.

In: a target. Out: `Abilities`. Never here: a yes from a table; compiling, running, verifying and
costing are each done once on a small operator before they are claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernelgen.judge.verdict import ACCEPTED, JudgeError
from kernelgen.ops import MeanPool
from kernelgen.targets import toolchain
from kernelgen.targets.cost import missing_to_cost
from kernelgen.targets.emulate import missing_to_run
from kernelgen.targets.figures import Static
from kernelgen.targets.hardware import Target
from kernelgen.targets.proof import (
    NATIVE,
    STATIC_ONLY,
    Proof,
    default_schedule,
    prove,
    runs_here,
)
from kernelgen.targets.toolchain import Tool

Name = Literal["compile", "run", "verify", "static_cost", "measure"]
NAMES: tuple[Name, ...] = ("compile", "run", "verify", "static_cost", "measure")

_OPERATOR = MeanPool(64)
_DIMS = {"n": 2, "tokens": 9}


@dataclass(frozen=True)
class Ability:
    """`why_not` says what is missing when `able` is false; `packages` would bring it (Debian
    names), none where no package can.
    """

    able: bool
    why_not: str = ""
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abilities:
    """One ability per name in `NAMES`; `toolchain` is the compiler's first line, `runs_on` the
    processors code ran on while this was found out, real or emulated.
    """

    target: str
    about: str
    each: Mapping[Name, Ability]
    toolchain: str
    runs_on: tuple[str, ...]
    sandbox: str

    def able(self, name: Name) -> bool:
        return self.each[name].able

    def to_dict(self) -> dict[str, object]:
        """JSON-able: a flag per ability, and under `why_not` the reason and packages of each that
        is missing.
        """
        return {
            "name": self.target,
            "about": self.about,
            **{name: self.able(name) for name in NAMES},
            "toolchain": self.toolchain,
            "runs_on": list(self.runs_on),
            "sandbox": self.sandbox,
            "why_not": {
                name: {"reason": found.why_not, "packages": list(found.packages)}
                for name, found in self.each.items()
                if not found.able
            },
        }


def abilities(target: Target) -> Abilities:
    """Try everything `target` allows here; takes one compilation and a fraction of a second per
    emulated processor.
    """
    lacking = toolchain.missing(target)
    if lacking:
        return _none(target, _without(lacking), "none")
    version = toolchain.toolchain(target).version
    refused = toolchain.probe(target)
    if refused is not None:
        return _none(target, Ability(False, refused), version)
    try:
        proof = prove(_OPERATOR, default_schedule(_OPERATOR, target), target, _DIMS)
    except JudgeError as error:
        return _none(target, Ability(False, str(error)), version)
    return Abilities(
        target=target.name,
        about=target.about,
        each={
            "compile": Ability(proof.reason != "not_compiled", proof.detail),
            "run": _run(target, proof),
            "verify": Ability(proof.accepted, f"{proof.reason}: {proof.detail}"),
            "static_cost": _cost(target, proof),
            "measure": _measure(target, proof),
        },
        toolchain=version,
        runs_on=proof.processors,
        sandbox=proof.sandbox,
    )


def _without(tools: tuple[Tool, ...]) -> Ability:
    return Ability(
        False,
        "; ".join(tool.text() for tool in tools),
        tuple(dict.fromkeys(tool.package for tool in tools)),
    )


def _none(target: Target, why: Ability, version: str) -> Abilities:
    return Abilities(target.name, target.about, dict.fromkeys(NAMES, why), version, (), "none")


def _run(target: Target, proof: Proof) -> Ability:
    if proof.processors:
        return Ability(True)
    if not target.processors or runs_here(target):
        return Ability(False, proof.detail)
    tools = missing_to_run(target)
    return _without(tools) if tools else Ability(False, f"{proof.reason}: {proof.detail}")


def _cost(target: Target, proof: Proof) -> Ability:
    if any(isinstance(figure, Static) for figure in proof.figures):
        return Ability(True)
    why = missing_to_cost(target)
    packages = ("llvm-19",) if target.cores else ()
    return Ability(False, why or "the scheduling model reads no loop of the probe", packages)


def _measure(target: Target, proof: Proof) -> Ability:
    if NATIVE in proof.processors and proof.reason == ACCEPTED:
        return Ability(True)
    if proof.reason == STATIC_ONLY and not target.processors:
        return Ability(False, proof.detail)
    return Ability(False, "wanted a device of this kind; time under emulation is no time")
