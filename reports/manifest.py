"""SHA256SUMS: the list of every file of a bundle, in the form `sha256sum -c` reads.

In: a folder. Out: the list's bytes, or a yes that folder and list agree in both directions
(`sha256sum` alone accepts a file that nobody listed). The list is what both sides sign last, so
the PDF's and both statements' digests are under it.
"""

from __future__ import annotations

import re
from pathlib import Path

from reports.archive import files_under, require_safe_name
from reports.canonical import sha256_bytes, sha256_file
from reports.errors import ReportError

NAME = "SHA256SUMS"
PLATFORM_SIGNATURE = "SHA256SUMS.sig"
AUDITOR_SIGNATURE = "SHA256SUMS.auditor.sig"
LOG_PROOF = "report.tlog-proof"
# Made after the list, over the list.
UNLISTED = (NAME, PLATFORM_SIGNATURE, AUDITOR_SIGNATURE, LOG_PROOF)
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


def build(folder: Path) -> bytes:
    """The list of all files of `folder` but those made over the list."""
    return listing({n: sha256_file(folder / n) for n in files_under(folder) if n not in UNLISTED})


def listing(digests: dict[str, str]) -> bytes:
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode("ascii")


def parse(data: bytes) -> dict[str, str]:
    """Digest by name. Raises ReportError unless these are exactly the bytes `build` would write."""
    digests: dict[str, str] = {}
    for number, line in enumerate(data.decode("ascii", "replace").split("\n")[:-1]):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ReportError(f"{NAME} line {number + 1} is not '<sha256>  <name>'")
        name = require_safe_name(match[2])
        if name in digests or name in UNLISTED:
            raise ReportError(f"{NAME} line {number + 1}: {name} may not be listed (again)")
        digests[name] = match[1]
    if listing(digests) != data:
        raise ReportError(f"{NAME} is not in its exact form (sorted, one newline a line)")
    return digests


def require_same_files(digests: dict[str, str], names: tuple[str, ...]) -> None:
    """Raise ReportError unless the listed names and the present ones are the same set."""
    present = set(names) - set(UNLISTED)
    missing, extra = sorted(set(digests) - present), sorted(present - set(digests))
    absent = sorted(set(UNLISTED) - set(names))
    if missing or extra or absent:
        raise ReportError(
            f"files and list differ; listed but missing: {', '.join(missing) or 'none'}; "
            f"present but not listed: {', '.join(extra) or 'none'}; "
            f"always needed but missing: {', '.join(absent) or 'none'}"
        )


def require_same_digests(digests: dict[str, str], folder: Path) -> None:
    """Raise ReportError naming the files whose contents are not what the list says."""
    wrong = [
        name
        for name, digest in digests.items()
        if not (folder / name).is_file() or sha256_file(folder / name) != digest
    ]
    if wrong:
        raise ReportError(f"contents differ from {NAME}: {', '.join(wrong)}")


def log_entry(manifest: bytes, report_number: str) -> bytes:
    """What the transparency log stores for a bundle: digests only, nothing personal."""
    return (
        f"ignition-report-bundle/v1\nreport-sha256 {sha256_bytes(report_number.encode())}\n"
        f"manifest-sha256 {sha256_bytes(manifest)}\n"
    ).encode("ascii")
