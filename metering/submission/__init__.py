"""MLPerf Inference v6.1 OPEN submissions: a folder from stored runs, and a verifier that doubts it.

In: stored LoadGen runs, the registry's record of the system, a request. Out: the folder of the
round, or the reasons why there is none; for any folder or tar archive, the reasons to refuse it. A
rehearsal has the same form under the rules of a measurement plan and can never pass as a
submission. Nothing here measures, and nothing here calls a result an MLPerf result: that is for
MLCommons.
"""

from __future__ import annotations

from metering.submission.build import BuildRefused, FolderExists, build, compose
from metering.submission.check import Report, verify
from metering.submission.finding import Finding
from metering.submission.official import NoChecker, OfficialAnswer, ask
from metering.submission.request import Request, Sources, plan_rules, read_request
from metering.submission.rules import NOTE, V6_1, Rules, rehearsal
from metering.submission.snapshot import Snapshot, SnapshotError, read

__all__ = [
    "NOTE",
    "V6_1",
    "BuildRefused",
    "Finding",
    "FolderExists",
    "NoChecker",
    "OfficialAnswer",
    "Report",
    "Request",
    "Rules",
    "Snapshot",
    "SnapshotError",
    "Sources",
    "ask",
    "build",
    "compose",
    "plan_rules",
    "read",
    "read_request",
    "rehearsal",
    "verify",
]
