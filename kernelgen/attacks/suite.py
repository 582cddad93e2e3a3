"""Takes every fixture the way its kind comes in, and asks the judge about each.

In: fixtures. Out: a `Report`. Kernels are compiled like a search's own, so that the judge alone has
to see through them; replies go through the intake for text nobody has read; bridge fixtures through
the inspection of packages. A new attack is a new file; nothing else changes.
Never here: special treatment of a fixture by the judge.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelgen.attacks import fixtures
from kernelgen.attacks.bridge import run_bridge
from kernelgen.attacks.fixtures import Case, FixtureError, Kind, operator_of
from kernelgen.judge import Candidate, judge
from kernelgen.judge.intake import compile_untrusted
from kernelgen.judge.session import Refusal
from kernelgen.machine import Machine
from kernelgen.targets.cpu import compile_shared

CALL_LIMIT_S = 2.0
"""Short, so that an endless loop costs little; the slowest honest fixture needs a tenth of it."""

__all__ = [
    "Case",
    "FixtureError",
    "Report",
    "Result",
    "discover",
    "folder",
    "operator_of",
    "run_all",
    "run_one",
]


@dataclass(frozen=True)
class Result:
    """What the judge said. `right` is whether that is one of the expected reasons."""

    name: str
    kind: Kind
    honest: bool
    expect: tuple[str, ...]
    reason: str
    detail: str
    right: bool
    seconds: float


@dataclass(frozen=True)
class Report:
    """`attacks` cheats of which `caught` were refused for an expected reason; `honest` likewise
    `accepted`.
    """

    attacks: int
    caught: int
    honest: int
    accepted: int
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        return self.attacks == self.caught > 0 and self.honest == self.accepted > 0

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def folder() -> Path:
    """`tests/attacks` of the checkout this package runs from."""
    found = Path(__file__).resolve().parents[2] / "tests" / "attacks"
    if not (found / "cheats").is_dir():
        raise FixtureError(
            f"attack fixtures: {found} is not there; they come with a source checkout, "
            "run the command from one"
        )
    return found


def discover(place: Path | None = None) -> tuple[Case, ...]:
    """Every fixture below `place`, by default those of this checkout. Raises `FixtureError`."""
    return fixtures.discover(place or folder())


def run_one(case: Case, machine: Machine, core: int, work: Path) -> Result:
    """Take in and judge one fixture; `work` is a folder of its own."""
    began = time.monotonic()
    run = run_bridge if case.kind == "bridge" else _run_kernel
    reason, detail = run(case, machine, core, work)
    right = reason in case.expect
    seconds = time.monotonic() - began
    return Result(case.name, case.kind, case.honest, case.expect, reason, detail, right, seconds)


def _run_kernel(case: Case, machine: Machine, core: int, work: Path) -> tuple[str, str]:
    if not case.source:
        return "not_compiled", "no block of C that defines a kernel"
    library = work / f"{case.name}.so"
    try:
        if case.kind == "reply":
            outcome = compile_untrusted(case.source, case.flags, library)
        else:
            outcome = compile_shared(case.source, case.flags, library)
    except Refusal as refusal:
        return refusal.reason, refusal.detail
    if outcome.path is None:
        return "not_compiled", outcome.stderr[-2000:]
    verdict = judge(
        Candidate(case.name, outcome.path, (case.source,), case.flags, case.claims),
        case.operator,
        case.dims,
        incumbent=None,
        seed_bytes=secrets.token_bytes(32),
        machine=machine,
        core=core,
        limit_s=CALL_LIMIT_S,
    )
    return verdict.reason, verdict.detail


def run_all(
    machine: Machine,
    *,
    core: int = 0,
    place: Path | None = None,
    on_result: Callable[[Result], None] | None = None,
) -> Report:
    """Judge every fixture with fresh secret seeds."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as work:
        for case in discover(place):
            results.append(run_one(case, machine, core, Path(work)))
            if on_result is not None:
                on_result(results[-1])
    cheats = [result for result in results if not result.honest]
    honest = [result for result in results if result.honest]
    return Report(
        attacks=len(cheats),
        caught=sum(result.right for result in cheats),
        honest=len(honest),
        accepted=sum(result.right for result in honest),
        results=tuple(results),
    )
