"""What a person asks for: whose submission, of which system and model, from which stored runs.

In: a JSON file whose paths are relative to it. Out: :class:`Request`, or a refusal that names the
field. Nothing here reads a log; what a run or the registry can say is not asked for twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from metering.fields import Fields
from metering.plan import MeasurementPlan
from metering.refusal import Refusal
from metering.submission.rules import ROUND, UNLISTED, V6_1, Rules, rehearsal
from metering.submission.system import STATUSES, SYSTEM_TYPES, Registered, registered
from metering.submission.tree import NAME

SCHEMA = "ignition.submission.v1"
_MEASUREMENTS = ("input_data_types", "retraining", "weight_transformations")
_MOST_REPORT_BYTES = 64 * 1024


@dataclass(frozen=True)
class Sources:
    """Where one result comes from. Exactly one of ``report`` (the accuracy script's line) and
    ``reference`` (a stored accuracy run to compare with) is given.
    """

    performance: Path
    accuracy: Path
    report: str | None = None
    reference: Path | None = None


@dataclass(frozen=True)
class Request:
    """A submission to build; ``measurements`` holds what only the submitter can say of a model."""

    submitter: str
    system: Registered
    model: str
    benchmark: str
    status: str
    system_type: str
    details: Mapping[str, str]
    measurements: Mapping[str, str]
    results: tuple[Sources, ...]
    rules: Rules

    @property
    def system_id(self) -> str:
        """The system's name as a folder name, with its revision."""
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", self.system.name).strip("-._")
        return f"{plain[:50]}-r{self.system.revision}"


def read_request(path: Path) -> Request:
    """Read a request file. Raises Refusal, OSError."""
    fields = Fields(_load(path), "submission")
    fields.text("schema", [SCHEMA])
    fields.text("round", [ROUND])
    folder = path.resolve().parent
    plan = fields.optional_text("rehearsal_plan")
    rules = V6_1 if plan is None else plan_rules(folder / plan)
    request = Request(
        submitter=_name(fields, "submitter"),
        system=registered(_load(folder / fields.text("system"))),
        model=_name(fields, "model"),
        benchmark=fields.text("benchmark", sorted(rules.benchmarks)),
        status=fields.text("status", STATUSES),
        system_type=fields.text("system_type", SYSTEM_TYPES),
        details=_details(fields),
        measurements={name: fields.text(name) for name in _MEASUREMENTS},
        results=tuple(
            _sources(value, index, folder) for index, value in enumerate(fields.items("results"))
        ),
        rules=rules,
    )
    fields.finish()
    _check(request)
    return request


def plan_rules(path: Path) -> Rules:
    """The rules of a rehearsal of the plan in a file. Raises Refusal, OSError."""
    try:
        return rehearsal(MeasurementPlan.from_json(_load(path)))
    except Refusal as refusal:
        raise refusal.inside(path.name) from refusal


def _check(request: Request) -> None:
    if NAME.fullmatch(request.system_id) is None:
        raise Refusal("system.name", request.system.name, "a name with letters or digits")
    if not request.results:
        raise Refusal("submission.results", "an empty list", "at least one result")
    for index, sources in enumerate(request.results):
        name = f"submission.results[{index}]"
        if request.benchmark == UNLISTED and sources.reference is None:
            raise Refusal(f"{name}.reference", "nothing", "the stored run to compare outputs with")
        if request.benchmark != UNLISTED and sources.report is None:
            raise Refusal(
                f"{name}.accuracy_report", "nothing", "what the benchmark's accuracy script wrote"
            )


def _sources(value: object, index: int, folder: Path) -> Sources:
    fields = Fields(value, f"submission.results[{index}]")
    report, reference = fields.optional_text("accuracy_report"), fields.optional_text("reference")
    sources = Sources(
        performance=folder / fields.text("performance"),
        accuracy=folder / fields.text("accuracy"),
        report=None if report is None else _report(folder / report, fields.where),
        reference=None if reference is None else folder / reference,
    )
    fields.finish()
    if (report is None) == (reference is None):
        raise Refusal(
            fields.where, "both or neither", "either accuracy_report or reference, a path each"
        )
    return sources


def _report(path: Path, where: str) -> str:
    with path.open("rb") as stream:
        data = stream.read(_MOST_REPORT_BYTES + 1)
    if len(data) > _MOST_REPORT_BYTES:
        raise Refusal(f"{where}.accuracy_report", path.name, f"at most {_MOST_REPORT_BYTES} bytes")
    text = data.decode("utf-8", "replace")
    if any(line.startswith("hash=") for line in text.splitlines()):
        raise Refusal(
            f"{where}.accuracy_report", "a line hash=", "none: it is made from the stored log"
        )
    return text


def _details(fields: Fields) -> dict[str, str]:
    if not fields.has("system_details"):
        return {}
    value = fields.any("system_details")
    if not isinstance(value, dict):
        raise Refusal("submission.system_details", type(value).__name__, "a JSON object")
    return value


def _name(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if NAME.fullmatch(text) is None:
        raise Refusal(
            f"submission.{name}", repr(text), "one folder name of letters, digits, dots and dashes"
        )
    return text


def _load(path: Path) -> object:
    # Not the canonical reader: the registry's record holds measured peaks with fractions.
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise Refusal(path.name, error, "one JSON value") from error
