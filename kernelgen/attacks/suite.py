"""Finds the fixtures, compiles them like any candidate, and asks the judge about each.

In: a folder with `cheats/*.c`, `honest/*.c` and `kernel.h`. The first comment of a fixture is its
data: operator: a family and its sizes      dims: the timed sizes expect:   the judge's reason(s)
flags: compiler flags (optional)    about: one line
Out: a `Report`. A new cheat is a new file; nothing else changes.
Never here: special treatment of a fixture by the judge.
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelgen.attacks.scale import Scale
from kernelgen.attacks.small import SMALL
from kernelgen.judge import Candidate, judge
from kernelgen.judge.verdict import ACCEPTED, REASONS
from kernelgen.machine import Machine
from kernelgen.ops import from_spec
from kernelgen.ops.operator import Operator
from kernelgen.targets.cpu import compile_shared

DEFAULT_FLAGS = ("-O2", "-fno-math-errno")
CALL_LIMIT_S = 2.0
"""Short, so that an endless loop costs little; the slowest honest fixture needs a tenth of it."""

_FIELD = re.compile(r"^\s*/?\*?\s*(operator|dims|expect|flags|about):\s*(.+?)\s*$", re.M)


class FixtureError(ValueError):
    """Fixtures are missing or one cannot be read; names the file and what was wanted."""


@dataclass(frozen=True)
class Case:
    """One fixture: a kernel and the reasons the judge may give for it."""

    name: str
    about: str
    operator: Operator
    dims: dict[str, int]
    expect: tuple[str, ...]
    flags: tuple[str, ...]
    source: str

    @property
    def honest(self) -> bool:
        return self.expect == (ACCEPTED,)


@dataclass(frozen=True)
class Result:
    """What the judge said. `right` is whether that is one of the expected reasons."""

    name: str
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
    """Every fixture, cheats first, by name. Raises `FixtureError`."""
    base = place or folder()
    prelude = (base / "kernel.h").read_text(encoding="ascii")
    cases = [
        _read(path, prelude, honest=kind == "honest")
        for kind in ("cheats", "honest")
        for path in sorted((base / kind).glob("*.c"))
    ]
    if not cases:
        raise FixtureError(f"attack fixtures: no .c file in {base}/cheats or {base}/honest")
    return tuple(cases)


def _read(path: Path, prelude: str, *, honest: bool) -> Case:
    text = path.read_text(encoding="ascii")
    fields = dict(_FIELD.findall(text.partition("*/")[0]))
    for wanted in ("operator", "dims", "expect", "about"):
        if wanted not in fields:
            raise FixtureError(f"{path.name}: the first comment has no line '{wanted}: ...'")
    expect = tuple(fields["expect"].replace(",", " ").split())
    unknown = [reason for reason in expect if reason not in REASONS]
    if unknown:
        raise FixtureError(f"{path.name}: expect: got {unknown}, wanted reasons of kernelgen.judge")
    if honest != (expect == (ACCEPTED,)):
        raise FixtureError(f"{path.name}: expect: {expect} does not fit the folder it is in")
    family, *sizes = fields["operator"].split()
    return Case(
        name=path.stem,
        about=fields["about"],
        operator=operator_of(family, _numbers(path, sizes)),
        dims=_dims(path, fields["dims"].split()),
        expect=expect,
        flags=tuple(fields["flags"].split()) if "flags" in fields else DEFAULT_FLAGS,
        source=text.replace('#include "kernel.h"', prelude),
    )


def _numbers(path: Path, words: Sequence[str]) -> dict[str, int | float]:
    found: dict[str, int | float] = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = int(value) if value.isdigit() else float(value)
        except ValueError:
            raise FixtureError(f"{path.name}: got {word!r}, wanted name=number") from None
    return found


def _dims(path: Path, words: Sequence[str]) -> dict[str, int]:
    found = _numbers(path, words)
    if any(value != int(value) for value in found.values()):
        raise FixtureError(f"{path.name}: dims: got {found}, wanted whole numbers")
    return {name: int(value) for name, value in found.items()}


def operator_of(family: str, sizes: Mapping[str, int | float]) -> Operator:
    """A fixture operator or one of the compiler's own. Raises `ValueError` naming what is wrong."""
    if family == Scale.family:
        return Scale()
    if family in SMALL:
        return SMALL[family](**sizes)
    return from_spec({"family": family, **sizes})


def run_one(case: Case, machine: Machine, core: int, work: Path) -> Result:
    """Compile and judge one fixture in `work`."""
    outcome = compile_shared(case.source, case.flags, work / f"{case.name}.so")
    if outcome.path is None:
        return _result(case, "not_compiled", outcome.stderr[-2000:], outcome.seconds)
    verdict = judge(
        Candidate(case.name, outcome.path, (case.source,), case.flags),
        case.operator,
        case.dims,
        incumbent=None,
        seed_bytes=secrets.token_bytes(32),
        machine=machine,
        core=core,
        limit_s=CALL_LIMIT_S,
    )
    return _result(case, verdict.reason, verdict.detail, verdict.seconds + outcome.seconds)


def _result(case: Case, reason: str, detail: str, seconds: float) -> Result:
    right = reason in case.expect
    return Result(case.name, case.honest, case.expect, reason, detail, right, seconds)


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
