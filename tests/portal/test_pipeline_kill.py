"""Kill -9 of the demonstration at every kind of step, then run it again: nothing twice, no orphans.

Each run is the real command in its own process, on the real model and the real stacks; a driver
kills it from inside at a chosen point, the way a power cut would.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

from tests.quick import some

DRIVER = Path(__file__).with_name("kill_driver.py")
PIPELINE = "portal.runs.pipeline"

MEASURING = (
    "line:baseline:4",
    f"before:{PIPELINE}.baseline:baseline_freeze",
    f"after:{PIPELINE}.baseline:baseline_freeze",
    "line:tune:2",
    f"before:{PIPELINE}.tune:tuning_record",
    f"after:{PIPELINE}.tune:package_store",
    "line:measure:4",
    f"before:{PIPELINE}.measure:measurement_record",
    f"after:{PIPELINE}.review:review_open",
    "before:portal.demo.story:review_approve",
)
BILLING = (
    "after:portal.demo.scenario:usage_ingest",
    f"after:{PIPELINE}.main:savings_compute",
    "before:portal.billing.services:journal_post",
    f"after:{PIPELINE}.main:invoice_issue",
    "before:reports.bundle:render",
    "after:reports.bundle:assemble",
    "after:portal.demo.story:auditor_sign",
    f"before:{PIPELINE}.report:report_issue",
    f"after:{PIPELINE}.report:report_issue",
    f"after:{PIPELINE}.main:export_write",
    "before:portal.demo.summary:write_summary",
)


def play(home: Path, point: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the demonstration once, killed at `point`; "" runs it to its end."""
    environment = {**os.environ, "IGNITION_HOME": str(home)}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    done = subprocess.run(
        [sys.executable, str(DRIVER), point],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    wanted = -signal.SIGKILL if point else 0
    assert done.returncode == wanted, f"{point}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def ask(home: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(home / "portal" / "db.sqlite3")) as database:
        return database.execute(query).fetchall()


def count(home: Path, table: str) -> int:
    return int(str(ask(home, f"SELECT count(*) FROM {table}")[0][0]))  # noqa: S608


def orphans(home: Path) -> Iterator[str]:
    """Files that no row and no rule accounts for."""
    stored = {row[0] for row in ask(home, "SELECT path FROM documents_storedfile")}
    evidence = {row[0] for row in ask(home, "SELECT evidence_path FROM runs_measurement")}
    packages = {str(row[0]) for row in ask(home, "SELECT path FROM runs_kernelpackage")}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        top = name.split("/")[0]
        if path.is_dir():
            if not any(path.iterdir()):
                yield f"{name}/ is empty"
            continue
        if path.name.endswith(".lock"):
            continue
        if path.name.endswith(".tmp") or path.name.startswith("."):
            yield f"{name} is unfinished"
        elif top == "documents":
            if name not in stored and not name.startswith("documents/log/"):
                yield f"{name} is in no row"
        elif top == "evidence":
            if not any(name.startswith(f"{folder}/") for folder in evidence):
                yield f"{name} belongs to no measurement"
        elif top == "packages":
            known = any(
                name.startswith(f"{folder}/") or name == f"{folder}.json" for folder in packages
            )
            if not known and not name.startswith("packages/records/"):
                yield f"{name} belongs to no package"


def check_whole(home: Path, months: int) -> None:
    """What must hold after any history of kills: everything once, nothing left over."""
    for table, wanted in {
        "runs_baseline": 1,
        "runs_baselineentry": 1,
        "runs_tuning": 1,
        "runs_kernelpackage": 1,
        "runs_measurement": 1,
        "audits_review": 1,
        "billing_billingperiod": months,
        "billing_savingsrecord": months,
        "billing_invoice": months,
        "billing_usagebatch": months,
        "documents_report": months,
        "billing_export": 7 * months,  # every format of metering.export
    }.items():
        assert count(home, table) == wanted, table
    numbers = [row[0] for row in ask(home, "SELECT sequence FROM billing_invoice ORDER BY 1")]
    assert numbers == list(range(1, months + 1))
    assert ask(home, "SELECT DISTINCT verified FROM documents_report") == [(1,)]
    assert ask(home, "SELECT DISTINCT state FROM runs_job") == [("done",)]
    assert list(orphans(home)) == []
    summary = json.loads((home / "demo" / "summary.json").read_text())
    assert summary["verified"] is True
    # What a plain script runs is measured, and is never the faster one.
    found = summary["as_found"]
    assert (found["stack"], found["batch"]) == ("onnxruntime", 32)
    assert (
        0
        < Decimal(found["samples_per_second"])
        <= Decimal(summary["baseline"]["samples_per_second"])
    )
    assert set(summary) == {
        "elapsed_s", "system", "model", "baseline", "as_found", "aa", "uplift", "accuracy",
        "search", "savings", "fee", "currency", "invoice_number", "bundle", "exports", "verified",
    }  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, model_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("killed") / "home"
    (folder / "cache").mkdir(parents=True)
    shutil.copytree(model_cache, folder / "cache" / "models")
    return folder


@pytest.mark.slow
def test_kills_leave_nothing_twice(home: Path) -> None:
    """Kills while measuring, then kills while billing, each of these in a month of its own."""
    for point in some(MEASURING, 3):
        play(home, point)
    play(home)
    check_whole(home, 1)
    trail = count(home, "events_event")
    for month, point in enumerate(some(BILLING, 3), start=2):
        play(home, point)
        play(home)
        check_whole(home, month)
    assert count(home, "events_event") > trail
