"""What a package says about itself, and how that is checked before anything in it is trusted.

In: a package directory. Out: the manifest as a mapping; digests of files. Never here: loading code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

FORMAT = "ignition-kernel-package/1"
MANIFEST = "manifest.json"
LIBRARY = "lib/model.so"
WEIGHTS = "weights.bin"
LEFT_OUT = frozenset({WEIGHTS})
"""Files that stay out of an evidence copy: large, licensed, and bound by their digest in the
manifest.
"""


class PackageError(RuntimeError):
    """A package that must not be loaded; the text names the file or field, what was got and what
    was wanted.
    """


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def write_manifest(package: Path, manifest: Mapping[str, object]) -> str:
    """Write `manifest.json` with sorted keys; returns its SHA-256."""
    text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=True) + "\n"
    (package / MANIFEST).write_text(text, encoding="ascii")
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def read_manifest(package: Path) -> dict[str, Any]:
    """The manifest of the package at `package`. Raises `PackageError` when it is missing or of
    another format.
    """
    path = package / MANIFEST
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PackageError(f"{path}: no such file, wanted a kernel package directory") from error
    except ValueError as error:
        raise PackageError(f"{path}: not JSON ({error})") from error
    got = data.get("format") if isinstance(data, dict) else None
    if got != FORMAT:
        raise PackageError(f"{path}: got format {got!r}, wanted {FORMAT!r}")
    return cast("dict[str, Any]", data)


def check_files(package: Path, manifest: Mapping[str, Any], *, weights: bool = True) -> None:
    """Refuse the package unless every file the manifest names has the digest it names.

    `weights=False` skips the packed weights, as an evidence copy has none.
    """
    files = manifest.get("files")
    if not isinstance(files, Mapping) or LIBRARY not in files:
        raise PackageError(f"{package / MANIFEST}: files: got {files!r}, wanted digests by path")
    for name, wanted in sorted(files.items()):
        path = package / name
        if not path.resolve().is_relative_to(package.resolve()):
            raise PackageError(f"{package / MANIFEST}: file {name!r} lies outside the package")
        if name in LEFT_OUT and not weights:
            continue
        if not path.is_file():
            raise PackageError(f"{path}: no such file, the manifest names it; rebuild the package")
        got = sha256_of(path)
        if got != wanted:
            raise PackageError(f"{path}: got sha256 {got}, the manifest says {wanted}")
