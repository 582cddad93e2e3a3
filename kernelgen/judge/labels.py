"""What a package's manifest says of the model and of each operator: every field that is used later,
held against its range and against the source it is about.

In: a manifest that is an object of the right format, digests by file name. Out: nothing, or a
`Refusal` (`package_refused`). One operator's name, its sizes, its schedule and its source say the
same thing four times; a label changed alone is seen. Never here: files other than sources, the
library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgen.judge import screen
from kernelgen.judge.session import Refusal
from kernelgen.ops import from_spec
from kernelgen.ops.operator import Operator, bytes_of
from kernelgen.package.manifest import MANIFEST
from kernelgen.schedule import Schedule, ScheduleError
from kernelgen.targets.cpu import BASE_FLAGS

MOST: Mapping[str, int] = {"hidden": 1 << 16, "vocabulary": 1 << 24, "max_tokens": 1 << 20}
"""Largest value of each whole number that describes a model."""

MOST_OPERATORS = 1000
MOST_OPERATOR_BYTES = 16 << 30
TRIAL_SIZE = 64
"""Every size that varies, when an operator's memory is estimated."""

MOST_CHARACTERS = 400

_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def refusal(text: str) -> Refusal:
    """A `package_refused` in one line of plain characters: names and values are a stranger's."""
    return Refusal("package_refused", plain(text))


def plain(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text` in one line of printable ASCII, cut to `most` characters."""
    line = " ".join(text.split())
    safe = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in line[:most])
    return safe if len(line) <= most else f"{safe}..."


def check(package: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Refuse labels that are missing, out of range, or contradict each other or their source."""
    model = manifest.get("model")
    if not isinstance(model, dict):
        raise refusal(f"{MANIFEST}: model: got {model!r}, wanted an object")
    for field, most in MOST.items():
        value = model.get(field)
        if type(value) is not int or not 1 <= value <= most:
            raise refusal(f"{MANIFEST}: model.{field}: got {_shown(value)}, wanted 1 to {most}")
    digest = model.get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise refusal(f"{MANIFEST}: model.sha256: got {digest!r}, wanted 64 hex digits")
    check_flags(manifest.get("flags"))
    operators = manifest.get("operators")
    if not isinstance(operators, list) or len(operators) > MOST_OPERATORS:
        raise refusal(f"{MANIFEST}: operators: wanted a list of at most {MOST_OPERATORS}")
    for entry in operators:
        _check_width(_operator(package, entry, files), model)


def check_flags(flags: object) -> None:
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        raise refusal(f"{MANIFEST}: flags: got {flags!r}, wanted a list of words")
    words: Sequence[str] = [flag for flag in flags if flag not in BASE_FLAGS]
    try:
        screen.check_flags(words)
    except Refusal as refused:
        raise refusal(refused.detail) from refused


def _operator(package: Path, entry: object, files: Mapping[str, str]) -> Operator:
    if not isinstance(entry, dict):
        raise refusal(f"{MANIFEST}: operators: got {entry!r}, wanted objects")
    name, source, spec = entry.get("name"), entry.get("source"), entry.get("spec")
    if not isinstance(name, str) or not _LABEL.fullmatch(name):
        raise refusal(f"{MANIFEST}: operators: name: got {name!r}, wanted a plain word")
    check_flags(entry.get("flags"))
    if not isinstance(source, str) or source not in files:
        raise refusal(f"{name}: source {source!r} is no file of the package")
    try:
        operator = from_spec(spec if isinstance(spec, dict) else {})
        room = bytes_of(operator.tensors, dict.fromkeys(operator.dims, TRIAL_SIZE))
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        # Sizes of a stranger's choice go through every family's own arithmetic here.
        raise refusal(f"{name}: {error}") from error
    if not 0 < room <= MOST_OPERATOR_BYTES:
        raise refusal(f"{name}: {_shown(room)} bytes, wanted 1 to {MOST_OPERATOR_BYTES}")
    if operator.name != name:
        raise refusal(f"{name}: its sizes are those of {operator.name}")
    _check_schedule(name, entry.get("schedule"), package / source)
    return operator


def _check_schedule(name: str, text: object, source: Path) -> None:
    """The schedule on the label must be the one that the source itself names."""
    try:
        schedule = Schedule.parse(str(text))
    except (ScheduleError, ValueError) as error:
        raise refusal(f"{name}: schedule {text!r}: {error}") from error
    if schedule.operator != name:
        raise refusal(f"{name}: its schedule is of {schedule.operator}")
    if str(text) not in source.read_text(encoding="utf-8", errors="replace"):
        raise refusal(f"{name}: {source.name} was not made from the schedule on the label")


def _check_width(operator: Operator, model: Mapping[str, Any]) -> None:
    """A caller makes room for as many numbers as the manifest says, and the kernel fills them."""
    for field in ("hidden", "vocabulary"):
        value = getattr(operator, field, None) if operator.family == "embed_layernorm" else None
        if value is not None and value != model[field]:
            raise refusal(f"{MANIFEST}: model.{field}: got {model[field]}, its table has {value}")


def _shown(value: object) -> str:
    """A number may have more digits than Python is willing to print."""
    if type(value) is int and abs(value) >= 1 << 63:
        return f"a number of {value.bit_length()} bits"
    return repr(value)
