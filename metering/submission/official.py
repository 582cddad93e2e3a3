"""Runs the official submission checker of a local checkout, and does not take its word.

In: the folder ``tools/submission`` of a checkout of mlcommons/inference at a commit somebody
pinned, a submission folder, and how many results it must hold. Out: what it said. Its exit status
alone proves little: it is 0 for an empty folder, so the count it printed must be right too and no
traceback may be among its words. The checker is never shipped or fetched by this package.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metering.submission.rules import ROUND

_MODULE = "submission_checker"
_LIMIT_S = 120
_COUNTS = re.compile(r"\bResults=(\d+), NoResults=(\d+)")
_MOST_LINES = 20


@dataclass(frozen=True)
class OfficialAnswer:
    """``reasons`` is empty when the checker passed the folder with the right count."""

    reasons: tuple[str, ...]
    last_lines: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons


class NoChecker(ValueError):
    """The folder named is not a checkout of the official checker."""


def ask(checkout: Path, files: Mapping[str, bytes], results: int) -> OfficialAnswer:
    """Run the checker over a private copy of ``files``. Raises NoChecker.

    A copy, because the checker walks the disk by itself: it gets the bytes that our verifier read.
    """
    if not (checkout / _MODULE / "main.py").is_file():
        raise NoChecker(f"{checkout}: no {_MODULE}/main.py; name tools/submission of a checkout")
    with tempfile.TemporaryDirectory(prefix="submission-") as name:
        root = Path(name) / "root"
        for path, data in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        root.mkdir(exist_ok=True)
        command = [sys.executable, "-B", "-m", f"{_MODULE}.main", "--input", str(root),
                   "--version", ROUND, "--csv", str(Path(name) / "summary.csv")]  # fmt: skip
        try:
            done = subprocess.run(
                command,
                cwd=checkout.resolve(),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return OfficialAnswer((f"no answer within {_LIMIT_S} s",), ())
        return judge(done.returncode, done.stdout + done.stderr, results)


def judge(status: int, words: str, results: int) -> OfficialAnswer:
    """What an exit status and the checker's words come to."""
    reasons = []
    if status != 0:
        reasons.append(f"exit status {status}, wanted 0")
    if "Traceback (most recent call last)" in words:
        reasons.append("it ended in a traceback")
    counts = _COUNTS.findall(words)
    wanted = (str(results), "0")
    if counts != [wanted]:
        told = "; ".join(f"Results={done}, NoResults={lost}" for done, lost in counts) or "no count"
        reasons.append(f"it counted {told}, wanted Results={results}, NoResults=0")
    lines = [line for line in words.splitlines() if line.strip()]
    return OfficialAnswer(tuple(reasons), tuple(lines[-_MOST_LINES:]))
