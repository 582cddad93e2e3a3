"""What the report tests do to a bundle: unpack it, change a byte, a file or a figure, judge it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports import archive
from reports.canonical import sha256_file
from reports.log import TransparencyLog
from reports.verify import Verification, verify
from tests.reports.parties import Sides
from tests.reports.story import Story


@dataclass(frozen=True)
class Made:
    """A sealed bundle, what it was packed from, and the log it is in."""

    bundle: Path
    folder: Path
    log: TransparencyLog


def unpacked(made: Made, tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    shutil.copytree(made.folder, folder)
    return folder


def judged(folder: Path, sides: Sides) -> Verification:
    bundle = folder.with_suffix(".zip")
    archive.write(folder, bundle)
    return verify(bundle, sides.trust_dir)


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(bytes(data))


def edited(story: Story, tmp_path: Path) -> Story:
    evidence = tmp_path / "evidence"
    shutil.copytree(story.evidence, evidence)
    return Story(evidence, story.facts, story.payload)


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        document = document[parent]
    document[last] = value


def more_money(facts: dict[str, Any]) -> None:
    """One cent more, consistent on paper."""
    for name in ("net", "total"):
        cents = int(facts["fee"][name].replace(".", "")) + 1
        facts["fee"][name] = f"{cents // 100}.{cents % 100:02d}"
    cents = int(facts["fee"]["lines"][0]["amount"].replace(".", "")) + 1
    facts["fee"]["lines"][0]["amount"] = f"{cents // 100}.{cents % 100:02d}"


def stated(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda facts: set_path(facts, path, value)


def remeasured_on(evidence: Path, folder: Path, day: str) -> None:
    """The recorded sweep as if it had been made on another `day`: a re-measurement's `folder`."""
    shutil.copytree(evidence / "baseline", folder / "baseline")
    for name in ("plan.json", "system.json", "mix.json"):
        shutil.copy(evidence / name, folder / name)
    frozen = folder / "baseline" / "baseline.json"
    document = {**json.loads(frozen.read_bytes()), "frozen_at": f"{day}T12:00:00Z"}
    frozen.write_text(json.dumps(document))
    for run in (folder / "baseline" / "runs").iterdir():
        log, record = run / "mlperf_log_detail.txt", run / "result.json"
        result = json.loads(record.read_bytes())
        log.write_text(log.read_text().replace(result["started_at"][:10], day))
        files = {**result["files"], log.name: sha256_file(log)}
        record.write_text(json.dumps({**result, "files": files}))
