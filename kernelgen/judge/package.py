"""A package directory from a stranger, looked at before anything in it is loaded, compiled or run.

In: a path. Out: the manifest, or a `Refusal` (`package_refused`) that says what is wrong. Digests
bind a package to its manifest and say nothing about who wrote that; so the rest is looked at as
closely: names, kinds of files, what the library would do on loading, flags, labels.
Never here: loading, and whether the kernels are right (that takes a judgement).
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from kernelgen.judge import claims, screen, symbols
from kernelgen.judge.session import Refusal
from kernelgen.ops import from_spec
from kernelgen.package.manifest import (
    FORMAT,
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    sha256_of,
)
from kernelgen.schedule import Schedule, ScheduleError
from kernelgen.targets.cpu import BASE_FLAGS

MOST_MANIFEST_BYTES = 16 << 20
MOST_FILES = 10_000

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONTAINERS = {
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"PK\x03\x04": "a zip archive",
    b"\x93NUMPY": "a NumPy file",
    b"\x7fELF": "a program",
}
_RUNNABLE = (
    ".py",
    ".pyc",
    ".pyd",
    ".pth",
    ".sh",
    ".pkl",
    ".pickle",
    ".pt",
    ".so",
    ".dylib",
    ".dll",
)


def inspect(package: Path, *, weights: bool = True) -> dict[str, Any]:
    """The manifest of `package` once everything that can be checked without running it is checked.

    `weights=False` as in `package.check_files`. Raises `Refusal`.
    """
    found = {name: path for name, path in _walk(package)}
    if MANIFEST not in found:
        raise _refusal(f"{package / MANIFEST}: no such file, wanted a kernel package directory")
    manifest = _manifest(found[MANIFEST])
    files = _files(manifest)
    _check_set(found, files, weights=weights)
    for name, wanted in sorted(files.items()):
        if name in found and sha256_of(found[name]) != wanted:
            raise _refusal(f"{name}: its sha256 is not the one in the manifest")
    if WEIGHTS in found:
        _check_raw(found[WEIGHTS])
    _check_labels(package, manifest, files)
    _check_library(found[LIBRARY], manifest)
    return manifest


def _refusal(text: str) -> Refusal:
    return Refusal("package_refused", text)


def _walk(package: Path) -> Iterator[tuple[str, Path]]:
    """Every file below `package`; links, devices and pipes are refused, not followed."""
    if package.is_symlink() or not package.is_dir():
        raise _refusal(f"{package}: not a directory of its own")
    open_folders = [package]
    seen = 0
    while open_folders:
        for path in sorted(open_folders.pop().iterdir()):
            seen += 1
            name = path.relative_to(package).as_posix()
            mode = path.lstat().st_mode
            if seen > MOST_FILES:
                raise _refusal(f"more than {MOST_FILES} files")
            if stat.S_ISDIR(mode):
                open_folders.append(path)
            elif not stat.S_ISREG(mode):
                raise _refusal(f"{name}: neither a file nor a directory (a link, pipe or device)")
            elif mode & (stat.S_ISUID | stat.S_ISGID):
                raise _refusal(f"{name}: runs under another user's name")
            else:
                yield name, path


def _manifest(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_MANIFEST_BYTES:
        raise _refusal(f"{MANIFEST}: larger than {MOST_MANIFEST_BYTES} bytes")
    try:
        data = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise _refusal(f"{MANIFEST}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise _refusal(f"{MANIFEST}: wanted format {FORMAT!r}")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Two values under one name would be one for us and the other for somebody else."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _files(manifest: Mapping[str, Any]) -> dict[str, str]:
    files = manifest.get("files")
    if not isinstance(files, dict) or LIBRARY not in files:
        raise _refusal(f"{MANIFEST}: files: wanted digests by path, {LIBRARY} among them")
    for name, digest in files.items():
        if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts or name == MANIFEST:
            raise _refusal(f"{MANIFEST}: file name {name!r} is not a plain path inside the package")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise _refusal(f"{MANIFEST}: {name}: got digest {digest!r}, wanted 64 hex digits")
    return files


def _check_set(found: Mapping[str, Path], files: Mapping[str, str], *, weights: bool) -> None:
    extra = sorted(set(found) - set(files) - {MANIFEST})
    if extra:
        raise _refusal(f"{extra[0]}: the manifest does not know this file")
    missing = sorted(set(files) - set(found) - (set() if weights else {WEIGHTS}))
    if missing:
        raise _refusal(f"{missing[0]}: the manifest names it, it is not there")
    for name in files:
        if name.endswith(_RUNNABLE) and name != LIBRARY:
            raise _refusal(f"{name}: nothing in a package runs but {LIBRARY}")


def _check_raw(path: Path) -> None:
    with path.open("rb") as stream:
        head = stream.read(8)
    for magic, what in _CONTAINERS.items():
        # Packed weights may begin with any two bytes; a pickle goes on with an opcode.
        if head.startswith(magic) and (len(magic) > 2 or head[2:3] in b"c}]()X\x8c\x95K"):
            raise _refusal(f"{path.name}: {what}, wanted raw packed weights")


def _check_labels(package: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> None:
    _check_flags(manifest.get("flags", ()))
    operators = manifest.get("operators")
    if not isinstance(operators, list):
        raise _refusal(f"{MANIFEST}: operators: wanted a list")
    for entry in operators:
        if not isinstance(entry, dict):
            raise _refusal(f"{MANIFEST}: operators: wanted objects")
        name = entry.get("name")
        _check_flags(entry.get("flags", ()))
        source = entry.get("source")
        if source not in files:
            raise _refusal(f"{name}: source {source!r} is no file of the package")
        try:
            from_spec(entry.get("spec") or {})
        except (ValueError, AttributeError) as error:
            raise _refusal(f"{name}: {error}") from error
        if "schedule" in entry:
            _check_schedule(str(name), entry["schedule"], package / str(source))


def _check_schedule(name: str, text: object, source: Path) -> None:
    """The schedule on the label must be the one that the source itself names."""
    try:
        schedule = Schedule.parse(str(text))
    except (ScheduleError, ValueError) as error:
        raise _refusal(f"{name}: schedule {text!r}: {error}") from error
    if schedule.operator != name:
        raise _refusal(f"{name}: its schedule is of {schedule.operator}")
    if str(text) not in source.read_text(encoding="utf-8", errors="replace"):
        raise _refusal(f"{name}: {source.name} was not made from the schedule on the label")


def _check_flags(flags: object) -> None:
    if not isinstance(flags, list) or not all(isinstance(flag, str) for flag in flags):
        raise _refusal(f"{MANIFEST}: flags: got {flags!r}, wanted a list of words")
    words: Sequence[str] = [flag for flag in flags if flag not in BASE_FLAGS]
    try:
        screen.check_flags(words)
    except Refusal as refusal:
        raise _refusal(refusal.detail) from refusal


def _check_library(library: Path, manifest: Mapping[str, Any]) -> None:
    isa = manifest.get("isa", [])
    if not isinstance(isa, list) or not all(isinstance(word, str) for word in isa):
        raise _refusal(f"{MANIFEST}: isa: got {isa!r}, wanted a list of words")
    try:
        symbols.check(library)
        claims.check(library, isa)
    except Refusal as refusal:
        raise _refusal(f"{LIBRARY}: {refusal}") from refusal
