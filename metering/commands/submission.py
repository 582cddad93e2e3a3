"""Commands of a submission: ``submission build`` and ``submission check``.

In: files and folders named on the command line. Out: a result for people or, with ``--json``, for
programs. Exit status: 0 done, 1 the answer is no (the runs make no submission, a folder does not
hold), 2 wrong use with one clear line.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from metering import submission
from metering.loadgen.verify import EvidenceError, load_run
from metering.refusal import Refusal

DONE, NO, WRONG_USE = 0, 1, 2


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this module's commands; each sets ``handler(arguments) -> exit status``."""
    group = subparsers.add_parser("submission", help="MLPerf OPEN submission folders for v6.1")
    actions = group.add_subparsers(dest="action", required=True, metavar="ACTION")
    command = actions.add_parser("build", help="make a folder from stored runs")
    command.add_argument("request", type=Path, metavar="REQUEST.json", help="docs/submissions.md")
    command.add_argument("--out", type=Path, required=True, help="new folder for the submission")
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_build)

    command = actions.add_parser("check", help="refuse a folder or tar archive with every reason")
    command.add_argument("folder", type=Path, metavar="DIR")
    command.add_argument(
        "--plan", type=Path, metavar="PLAN.json", help="hold a rehearsal to this measurement plan"
    )
    command.add_argument(
        "--run",
        type=Path,
        action="append",
        default=[],
        metavar="RUN_DIR",
        help="a stored run the folder claims to hold; its logs must be the same bytes",
    )
    command.add_argument(
        "--official",
        type=Path,
        metavar="CHECKOUT",
        help="also ask the official checker: tools/submission of a checkout of mlcommons/inference",
    )
    command.add_argument("--json", action="store_true")
    command.set_defaults(handler=_check)


def _build(arguments: argparse.Namespace) -> int:
    try:
        request = submission.read_request(arguments.request)
        report = submission.build(request, arguments.out)
    except (Refusal, submission.FolderExists) as error:
        return _wrong(str(error))
    except OSError as error:
        return _wrong(f"{error.filename or arguments.out}: {error.strerror or error}")
    except (submission.BuildRefused, EvidenceError) as error:
        reasons = error.reasons if isinstance(error, submission.BuildRefused) else [str(error)]
        if arguments.json:
            _print_json({"holds": False, "reasons": list(reasons)})
        print(f"no submission: {len(reasons)} reason(s)", file=sys.stderr)
        for reason in reasons:
            print(f"  {reason}", file=sys.stderr)
        return NO
    _show(report, arguments.json, str(arguments.out), None)
    return DONE


def _check(arguments: argparse.Namespace) -> int:
    try:
        rules = submission.V6_1 if arguments.plan is None else submission.plan_rules(arguments.plan)
        snapshot = submission.read(arguments.folder)
        runs = [load_run(folder) for folder in arguments.run]
        report = submission.verify(snapshot, rules, runs)
        official = None
        if arguments.official is not None:
            wanted = len(report.results) or 1
            official = submission.ask(arguments.official, snapshot.files, wanted)
    except (Refusal, submission.SnapshotError, submission.NoChecker) as error:
        return _wrong(str(error))
    except EvidenceError as error:
        return _wrong(f"--run: {error}")
    except OSError as error:
        return _wrong(f"{error.filename or arguments.folder}: {error.strerror or error}")
    _show(report, arguments.json, str(arguments.folder), official)
    return DONE if report.holds and (official is None or official.passed) else NO


def _show(
    report: submission.Report,
    as_json: bool,
    folder: str,
    official: submission.OfficialAnswer | None,
) -> None:
    if as_json:
        told = report.to_dict()
        if official is not None:
            told["official_checker"] = {
                "passed": official.passed,
                "reasons": list(official.reasons),
                "last_lines": list(official.last_lines),
            }
        _print_json(told)
        return
    print(f"{folder}: {'holds' if report.holds else 'refused'} ({report.rules.title})")
    for result in report.results:
        print(f"  {result.scenario}: {result.metric} {result.value} {result.unit}")
        print(f"  {result.scenario}: accuracy {result.accuracy}")
    for finding in report.findings:
        print(f"  {finding}")
    if official is not None:
        print(f"official checker: {'passed' if official.passed else 'did not pass'}")
        for reason in official.reasons:
            print(f"  {reason}")
    if report.holds:
        kind = "a rehearsal, no submission; " if report.rules.rehearsal else ""
        compared = "" if report.runs else "; not compared with stored runs (--run)"
        print(f"  {kind}{submission.NOTE}{compared}")


def _wrong(message: str) -> int:
    print(f"metering submission: {message}", file=sys.stderr)
    return WRONG_USE


def _print_json(value: Any) -> None:
    print(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False))
