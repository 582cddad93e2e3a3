"""Finds and reads the fixtures: one file each, three kinds, nothing to register.

In: a folder with `cheats/*.c` and `honest/*.c` (kernels), `replies/*.md` (answers of a language
model) and `bridge/*.py` (what can be done to a package). Out: `Case` records. The head of a fixture
is its data:
operator: a family and its sizes      dims: the timed sizes      expect: the judge's reason(s)
flags: compiler flags (optional)      claims: instruction sets (optional)      about: one line
Never here: judging.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelgen.attacks.scale import Scale
from kernelgen.attacks.small import SMALL
from kernelgen.judge.verdict import ACCEPTED, REASONS
from kernelgen.ops import from_spec
from kernelgen.ops.operator import Operator

DEFAULT_FLAGS = ("-O2", "-fno-math-errno")
Kind = Literal["kernel", "reply", "bridge"]

_FIELD = re.compile(
    r'^[\s/*#<!"-]*(operator|dims|expect|flags|claims|about):\s*(.+?)\s*(?:\*/|-->)?$', re.M
)
_BLOCK = re.compile(r"^```(?:c|C|cpp|h)?[ \t]*\n(.*?)^```", re.M | re.S)
_INCLUDE = '#include "kernel.h"'


class FixtureError(ValueError):
    """Fixtures are missing or one cannot be read; names the file and what was wanted."""


@dataclass(frozen=True)
class Case:
    """One fixture and the reasons the judge may give for it. A bridge case has no kernel of its
    own: `source` is what it does to a package.
    """

    name: str
    kind: Kind
    about: str
    operator: Operator
    dims: dict[str, int]
    expect: tuple[str, ...]
    flags: tuple[str, ...]
    source: str
    claims: tuple[str, ...] = ()

    @property
    def honest(self) -> bool:
        return self.expect == (ACCEPTED,)


def discover(base: Path) -> tuple[Case, ...]:
    """Every fixture below `base`: kernels, replies, bridge, each by name. Raises `FixtureError`."""
    prelude = (base / "kernel.h").read_text(encoding="ascii")
    cases = []
    for kind in ("cheats", "honest"):
        for path in sorted((base / kind).glob("*.c")):
            case = _read(path, path.read_text(encoding="ascii"), "*/", "kernel", prelude)
            if case.honest != (kind == "honest"):
                raise FixtureError(f"{path.name}: expect: {case.expect} does not fit the folder")
            cases.append(case)
    for path in sorted((base / "replies").glob("*.md")):
        cases.append(_read(path, path.read_text(encoding="utf-8"), "-->", "reply", prelude))
    for path in sorted((base / "bridge").glob("*.py")):
        cases.append(_bridge(path))
    if not cases:
        raise FixtureError(f"attack fixtures: no .c file in {base}/cheats or {base}/honest")
    return tuple(cases)


def code_of(reply: str) -> str:
    """The C text in a reply: its fenced blocks that define a kernel, the last one if there are
    several; empty when there is none. Nothing else in a reply has a meaning.
    """
    blocks = [block for block in _BLOCK.findall(reply) if re.search(r"\bkernel\s*\(", block)]
    return str(blocks[-1]) if blocks else ""


def _fields(path: Path, head: str, wanted: Sequence[str]) -> dict[str, str]:
    fields = dict(_FIELD.findall(head))
    for name in wanted:
        if name not in fields:
            raise FixtureError(f"{path.name}: the first comment has no line '{name}: ...'")
    return fields


def _expected(path: Path, fields: Mapping[str, str]) -> tuple[str, ...]:
    expect = tuple(fields["expect"].replace(",", " ").split())
    unknown = [reason for reason in expect if reason not in REASONS]
    if unknown:
        raise FixtureError(f"{path.name}: expect: got {unknown}, wanted reasons of kernelgen.judge")
    return expect


def _read(path: Path, text: str, end: str, kind: Kind, prelude: str) -> Case:
    head, _, body = text.partition(end)
    fields = _fields(path, head, ("operator", "dims", "expect", "about"))
    expect = _expected(path, fields)
    family, *sizes = fields["operator"].split()
    source = code_of(body) if kind == "reply" else text
    return Case(
        name=path.stem,
        kind=kind,
        about=fields["about"],
        operator=operator_of(family, _numbers(path, sizes)),
        dims=_dims(path, fields["dims"].split()),
        expect=expect,
        flags=tuple(fields["flags"].split()) if "flags" in fields else DEFAULT_FLAGS,
        source=source.replace(_INCLUDE, prelude),
        claims=tuple(fields.get("claims", "").split()),
    )


def _bridge(path: Path) -> Case:
    text = path.read_text(encoding="ascii")
    fields = _fields(path, text.partition('"""\n')[0], ("expect", "about"))
    if "def tamper(package: Path) -> None:" not in text:
        raise FixtureError(f"{path.name}: wanted a function tamper(package: Path) -> None")
    expect = _expected(path, fields)
    return Case(path.stem, "bridge", fields["about"], Scale(), {}, expect, (), text)


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
