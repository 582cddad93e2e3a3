"""Reads one run's logs out of an evidence folder, for the page that shows a figure's log line.

In: a folder below IGNITION_HOME, the part of the evidence, a run id. Out: the run's files with
their digests and its detail log line by line. Only the folder layout is known here; nothing is
parsed for figures that bill (the engine does that), and no path outside it can be named.
"""

import hashlib
import json
import math
import re
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from django.conf import settings
from django.http import Http404

PARTS = ("baseline", "aa", "uplift")
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MARK = ":::MLLOG "
DETAIL_LOG = "mlperf_log_detail.txt"
# The lines a reader looks for first: the figure, the verdict, how much was run.
TOLD = (
    "result_samples_per_second", "result_validity", "result_query_count",
    "result_min_duration_met", "result_min_queries_met", "num_errors", "num_warnings",
)  # fmt: skip
LARGEST_LOG_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class LogLine:
    """One line of a detail log: number from 1, key, value, and whether it is told or an error."""

    number: int
    key: str
    value: str
    kind: str


@dataclass(frozen=True)
class RunFile:
    """One file of a run with the digest of its present bytes."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class RunEvidence:
    """What one run left behind."""

    run_id: str
    part: str
    files: tuple[RunFile, ...]
    lines: tuple[LogLine, ...]
    result: dict[str, Any]


def evidence_folder(evidence_path: str) -> Path:
    """The absolute folder of a stored, relative evidence path; Http404 outside IGNITION_HOME."""
    home = Path(settings.IGNITION_HOME).resolve()
    folder = (home / evidence_path).resolve()
    if not evidence_path or not folder.is_relative_to(home):
        raise Http404("no such evidence")
    return folder


def read_run(evidence_path: str, part: str, run_id: str) -> RunEvidence:
    """One run's files and log; Http404 for an unknown part, a bad id or a missing folder."""
    if part not in PARTS or RUN_ID.fullmatch(run_id) is None:
        raise Http404("no such run")
    root = evidence_folder(evidence_path)
    base = root if root.name == part else root / part
    folder = base / "runs" / run_id
    if not folder.is_dir():
        raise Http404("no such run")
    files = tuple(
        RunFile(path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.is_symlink()
    )
    return RunEvidence(run_id, part, files, _lines(folder / DETAIL_LOG), _result(folder))


def evidence_archive(evidence_path: str) -> BinaryIO:
    """The whole evidence folder as a zip in a temporary file, at its start; same files, same bytes.

    Http404 when there is none. Unfinished files and links are left out: neither is evidence.
    """
    root = evidence_folder(evidence_path)
    if not root.is_dir():
        raise Http404("no such evidence")
    archive = tempfile.TemporaryFile()  # noqa: SIM115  the response that sends it closes it
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not path.is_symlink() and path.suffix != ".tmp":
                name = f"evidence/{path.relative_to(root).as_posix()}"
                entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                with path.open("rb") as source, packed.open(entry, "w") as target:
                    shutil.copyfileobj(source, target)
    archive.seek(0)
    return cast(BinaryIO, archive)


def stored_pairs(evidence_path: str, part: str) -> list[dict[str, Any]]:
    """The counted pairs of `part`: both run ids and the log of their rates' quotient.

    For showing only, in LoadGen's Offline rate; a pair without two rates is left out, and an
    absent folder gives no pairs. What bills is worked out again by the engine from the logs.
    """
    base = evidence_folder(evidence_path) / part
    path = base / "pairs.json"
    if part not in PARTS or not path.is_file():
        return []
    rows = []
    for entry in json.loads(path.read_text(encoding="utf-8"))["pairs"]:
        rates = [
            _result(base / "runs" / str(entry[arm])).get("samples_per_second")
            for arm in ("base", "other")
        ]
        base_rate, other_rate = (float(rate or 0) for rate in rates)
        if not entry["warm_up"] and base_rate and other_rate:
            log_ratio = math.log(other_rate / base_rate)
            rows.append({"base": entry["base"], "other": entry["other"], "log_ratio": log_ratio})
    return rows


def _result(folder: Path) -> dict[str, Any]:
    path = folder / "result.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _lines(path: Path) -> tuple[LogLine, ...]:
    if not path.is_file():
        return ()
    with path.open("rb") as stream:
        text = stream.read(LARGEST_LOG_BYTES).decode("utf-8", "replace")
    return tuple(_line(number, line) for number, line in enumerate(text.splitlines(), start=1))


def _line(number: int, line: str) -> LogLine:
    """A line as key and value; one that is not LoadGen's is shown whole and marked."""
    try:
        entry = json.loads(line.removeprefix(MARK))
        key, value = str(entry["key"]), entry["value"]
        metadata = entry.get("metadata", {})
    except (ValueError, KeyError, TypeError):
        return LogLine(number, "", line, "error")
    kind = "error" if metadata.get("is_error") else "hit" if key in TOLD else ""
    return LogLine(number, key, value if isinstance(value, str) else json.dumps(value), kind)
