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
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kernelgen.judge import claims, elf, labels, symbols
from kernelgen.judge.labels import refusal
from kernelgen.judge.session import Refusal
from kernelgen.package.manifest import (
    FORMAT,
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    sha256_of,
)

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
_MACHINES = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
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


def inspect(package: Path, *, weights: bool = True, claimed: bool = True) -> dict[str, Any]:
    """The manifest of `package` once everything that can be checked without running it is checked.

    `weights=False` as in `package.check_files`; `claimed` looks for the instruction sets it is sold
    for in its code, with objdump. Raises `Refusal`.
    """
    found = {name: path for name, path in _walk(package)}
    if MANIFEST not in found:
        raise refusal(f"{package / MANIFEST}: no such file, wanted a kernel package directory")
    manifest = _manifest(found[MANIFEST])
    files = _files(manifest)
    _check_set(found, files, weights=weights)
    for name, wanted in sorted(files.items()):
        got = sha256_of(found[name]) if name in found else wanted
        if got != wanted:
            raise refusal(f"{name}: got sha256 {got}, the manifest says {wanted}")
    if WEIGHTS in found:
        _check_raw(found[WEIGHTS], manifest)
    labels.check(package, manifest, files)
    _check_library(found[LIBRARY], manifest, claimed=claimed)
    return manifest


def _walk(package: Path) -> Iterator[tuple[str, Path]]:
    """Every file below `package`; links, devices and pipes are refused, not followed."""
    if package.is_symlink() or not package.is_dir():
        raise refusal(f"{package}: not a directory of its own")
    open_folders = [package]
    seen = 0
    while open_folders:
        for path in sorted(open_folders.pop().iterdir()):
            seen += 1
            name = path.relative_to(package).as_posix()
            mode = path.lstat().st_mode
            if seen > MOST_FILES:
                raise refusal(f"more than {MOST_FILES} files")
            if stat.S_ISDIR(mode):
                open_folders.append(path)
            elif not stat.S_ISREG(mode):
                raise refusal(f"{name}: neither a file nor a directory (a link, pipe or device)")
            elif mode & (stat.S_ISUID | stat.S_ISGID):
                raise refusal(f"{name}: runs under another user's name")
            else:
                yield name, path


def _manifest(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_MANIFEST_BYTES:
        raise refusal(f"{MANIFEST}: larger than {MOST_MANIFEST_BYTES} bytes")
    try:
        data = json.loads(
            path.read_text(encoding="utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise refusal(f"{MANIFEST}: not JSON ({error})") from error
    got = data.get("format") if isinstance(data, dict) else None
    if got != FORMAT:
        raise refusal(f"{MANIFEST}: got format {got!r}, wanted {FORMAT!r}")
    manifest: dict[str, Any] = data
    return manifest


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
        raise refusal(f"{MANIFEST}: files: wanted digests by path, {LIBRARY} among them")
    for name, digest in files.items():
        if not _NAME.fullmatch(name) or ".." in PurePosixPath(name).parts or name == MANIFEST:
            raise refusal(f"{MANIFEST}: file {name!r} lies outside the package, or has an odd name")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise refusal(f"{MANIFEST}: {name}: got digest {digest!r}, wanted 64 hex digits")
    return files


def _check_set(found: Mapping[str, Path], files: Mapping[str, str], *, weights: bool) -> None:
    extra = sorted(set(found) - set(files) - {MANIFEST})
    if extra:
        raise refusal(f"{extra[0]}: the manifest does not know this file")
    missing = sorted(set(files) - set(found) - (set() if weights else {WEIGHTS}))
    if missing:
        raise refusal(f"{missing[0]}: no such file, the manifest names it")
    for name in files:
        if name.endswith(_RUNNABLE) and name != LIBRARY:
            raise refusal(f"{name}: nothing in a package runs but {LIBRARY}")


def _check_raw(path: Path, manifest: Mapping[str, Any]) -> None:
    size, wanted = path.stat().st_size, manifest.get("weights_bytes")
    if type(wanted) is not int or size != wanted:
        raise refusal(f"{path.name}: got {size} bytes, the manifest says {wanted!r}")
    with path.open("rb") as stream:
        head = stream.read(8)
    for magic, what in _CONTAINERS.items():
        # Packed weights may begin with any two bytes; a pickle goes on with an opcode.
        if head.startswith(magic) and (len(magic) > 2 or head[2:3] in b"c}]()X\x8c\x95K"):
            raise refusal(f"{path.name}: {what}, wanted raw packed weights")


def _check_library(library: Path, manifest: Mapping[str, Any], *, claimed: bool) -> None:
    isa = manifest.get("isa", [])
    if not isinstance(isa, list) or not all(isinstance(word, str) for word in isa):
        raise refusal(f"{MANIFEST}: isa: got {isa!r}, wanted a list of words")
    try:
        symbols.check(library)
        made_for = _MACHINES.get(elf.read(library.read_bytes()).machine)
        if manifest.get("architecture") != made_for:
            raise refusal(
                f"architecture: got {manifest.get('architecture')!r}, the code is for {made_for}"
            )
        if claimed:
            claims.check(library, isa)
    except Refusal as refused:
        raise refusal(f"{LIBRARY}: {refused}") from refused
