"""Re-reads a stored run as a stranger would: digests, logs, verdict and figures must all agree.

In: a run folder. Out: its :class:`RunResult`, or EvidenceError. ``result.json`` is never believed:
everything in it that follows from the logs is worked out again and compared.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from metering.loadgen import verdict
from metering.loadgen.files import sha256_bytes
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec, SpecError
from metering.loadgen.supervisor import RESULT, SPEC


class EvidenceError(ValueError):
    """Stored evidence that does not hold together; the message names the file and the field."""


def stored(out: Path) -> bool:
    """Whether a folder holds a run that ended: ``result.json`` is written last and whole."""
    return (out / RESULT).is_file()


def load_spec(out: Path) -> RunSpec:
    """The recorded spec of a stored run."""
    try:
        return RunSpec.from_dict(_json(out / SPEC))
    except SpecError as error:
        raise EvidenceError(f"{out.name}/{SPEC}: {error}") from error


def load_run(out: Path) -> RunResult:
    """The result of a stored run, recomputed from its logs. Raises EvidenceError."""
    try:
        result = RunResult.from_dict(_json(out / RESULT))
    except (TypeError, KeyError, ValueError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"{out.name}/{RESULT}: not a run result ({error!r})") from error
    contents: dict[str, bytes] = {}
    for name, digest in result.files.items():
        path = out / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            raise EvidenceError(f"{out.name}/{name}: missing, or not a plain file of the run")
        contents[name] = path.read_bytes()
        if sha256_bytes(contents[name]) != digest:
            raise EvidenceError(f"{out.name}/{name}: its SHA-256 is not the recorded one")
    present = {path.name for path in out.iterdir()} - {RESULT}
    if present != set(contents):
        extra = sorted(present ^ set(contents))
        raise EvidenceError(f"{out.name}: files {extra} are not those the result lists")
    spec = load_spec(out)
    if result.run_id != spec.run_id or result.spec_sha256 != result.files.get(SPEC):
        raise EvidenceError(f"{out.name}/{RESULT}: run_id or spec_sha256 is not that of the spec")
    if (result.scenario, result.mode) != (spec.scenario, spec.mode):
        raise EvidenceError(f"{out.name}/{RESULT}: scenario or mode is not that of the spec")
    if result.state == "VALID":
        _check_figures(out, spec, result, contents)
    elif (result.samples_per_second, result.latency, result.tokens) != (None, None, None):
        raise EvidenceError(f"{out.name}/{RESULT}: a figure on a run that is {result.state}")
    elif result.state == "INVALID" and (found := _judged(spec, contents).state) != "INVALID":
        raise EvidenceError(f"{out.name}: called INVALID, but its logs say {found}")
    return result


def _judged(spec: RunSpec, contents: dict[str, bytes]) -> verdict.Judgement:
    return verdict.judge(
        spec,
        contents.get(verdict.DETAIL, b""),
        contents.get(verdict.SUMMARY, b""),
        contents.get(verdict.ACCURACY),
    )


def _check_figures(out: Path, spec: RunSpec, result: RunResult, contents: dict[str, bytes]) -> None:
    judgement = _judged(spec, contents)
    if judgement.state != "VALID":
        reasons = "; ".join(judgement.reasons)
        raise EvidenceError(f"{out.name}: called VALID, but its logs say otherwise: {reasons}")
    for name in ("samples_per_second", "latency", "sample_count", "tokens", "effective",
                 "loadgen_version"):  # fmt: skip
        told, found = getattr(result, name), getattr(judgement, name)
        if told != found:
            raise EvidenceError(f"{out.name}/{RESULT}: {name} is {told}, the logs say {found}")
    if result.reasons:
        raise EvidenceError(f"{out.name}/{RESULT}: a VALID run has no reasons")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path.parent.name}/{path.name}: cannot be read ({error})") from error
