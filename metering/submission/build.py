"""Makes a submission folder from stored runs and a registry record, or says why not.

In: a :class:`Request` whose runs lie on this disk. Out: the files of the folder, checked by our own
verifier before one of them is written. A run is recomputed from its logs first; one that is not
VALID, holds an error line or belongs to another build than its accuracy run never gets in. Nothing
here measures.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metering.loadgen.files import sha256_bytes
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import ACCURACY, DETAIL, SUMMARY, accuracy_outputs
from metering.loadgen.verify import EvidenceError, load_run, load_spec
from metering.submission import documents
from metering.submission.check import Report, digested, verify
from metering.submission.request import Request, Sources
from metering.submission.rules import Rules
from metering.submission.snapshot import Snapshot
from metering.submission.system import describe
from metering.submission.tree import ACCURACY_TXT, MEASUREMENTS, README, USER_CONF, Names
from metering.uplift.accuracy import accuracy_guard


class BuildRefused(RuntimeError):
    """These runs make no submission; ``reasons`` is one sentence each."""

    def __init__(self, reasons: Sequence[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__("; ".join(self.reasons))


class FolderExists(RuntimeError):
    """The place to write to is taken; nothing was changed."""


@dataclass(frozen=True)
class _Run:
    """A stored run that was recomputed: its spec, its result and the bytes of its logs."""

    spec: RunSpec
    result: RunResult
    logs: Mapping[str, bytes]


def build(request: Request, out: Path) -> Report:
    """Write the folder ``out``, whole or not at all, and return what our verifier says of it.

    Raises FolderExists, EvidenceError for a run whose logs do not hold, BuildRefused.
    """
    if out.exists() or out.is_symlink():
        raise FolderExists(f"{out} exists already; name a new folder")
    files, runs = compose(request)
    report = verify(Snapshot(files, ()), request.rules, runs)
    if not report.holds:
        raise BuildRefused([str(finding) for finding in report.findings])
    _write(files, out)
    return report


def compose(request: Request) -> tuple[dict[str, bytes], list[RunResult]]:
    """Every file of the folder, and the runs they come from. Raises as :func:`build` does."""
    pairs = [_pair(sources) for sources in request.results]
    scenarios = [timed.spec.scenario for timed, _ in pairs]
    if len(set(scenarios)) != len(scenarios):
        raise BuildRefused([f"results: {scenarios}, wanted each scenario once"])
    names = Names(request.submitter, request.system_id, request.model, tuple(sorted(scenarios)))
    runs = [run for pair in pairs for run in pair]
    shared = {
        names.mapping: _json({request.model: request.benchmark}),
        names.description: _json(_description(request, runs)),
        names.source: documents.source_readme(
            names,
            request.rules,
            {(run.spec.scenario, run.spec.mode): run.spec for run in runs},
            _versions(runs),
        ),
    }
    files = dict(shared)
    for sources, (timed, outputs) in zip(request.results, pairs, strict=True):
        files |= _result(request, names, sources, timed, outputs, shared)
    return files, [run.result for run in runs]


def _pair(sources: Sources) -> tuple[_Run, _Run]:
    timed, outputs = _run(sources.performance), _run(sources.accuracy)
    reasons = []
    for run, mode in ((timed, "performance"), (outputs, "accuracy")):
        if run.spec.mode != mode:
            reasons.append(f"run {run.spec.run_id}: made in {run.spec.mode} mode, wanted {mode}")
        if run.spec.sut.stack == "null":
            reasons.append(f"run {run.spec.run_id}: the null stack computes nothing")
    for name in ("scenario", "sut", "seeds", "model_sha256", "samples_sha256", "package_sha256",
                 "output", "task", "max_new_tokens", "end_token"):  # fmt: skip
        first, second = getattr(timed.spec, name), getattr(outputs.spec, name)
        if first != second:
            reasons.append(f"{name}: the performance run has {first}, the accuracy run {second}")
    for name in ("stack_version", "stack_digest", "loadgen_version"):
        first, second = getattr(timed.result, name), getattr(outputs.result, name)
        if first != second:
            reasons.append(f"{name}: the performance run has {first}, the accuracy run {second}")
    reasons += documents.not_in_user_conf(timed.spec)
    if reasons:
        raise BuildRefused(reasons)
    return timed, outputs


def _run(folder: Path) -> _Run:
    result = load_run(folder)
    if not result.valid:
        reasons = "; ".join(result.reasons)
        raise BuildRefused([f"run {result.run_id}: {result.state}, wanted VALID: {reasons}"])
    logs = {}
    for name in (DETAIL, SUMMARY, ACCURACY):
        if name in result.files:
            logs[name] = (folder / name).read_bytes()
            if sha256_bytes(logs[name]) != result.files[name]:
                raise EvidenceError(f"{folder.name}/{name}: changed while it was read")
    return _Run(load_spec(folder), result, logs)


def _result(
    request: Request,
    names: Names,
    sources: Sources,
    timed: _Run,
    outputs: _Run,
    shared: Mapping[str, bytes],
) -> dict[str, bytes]:
    scenario = timed.spec.scenario
    folder, run_1 = names.result(scenario), names.performance(scenario)
    accuracy = names.accuracy(scenario)
    line = _accuracy_line(sources, outputs, request.rules)
    files = {
        f"{folder}/{MEASUREMENTS}": _json(
            {
                **request.measurements,
                "starting_weights_filename": timed.spec.model,
                "weight_data_types": timed.spec.sut.precision,
            }
        ),
        f"{folder}/{USER_CONF}": documents.user_conf(timed.spec),
        f"{run_1}/{DETAIL}": timed.logs[DETAIL],
        f"{run_1}/{SUMMARY}": timed.logs[SUMMARY],
        f"{accuracy}/{DETAIL}": outputs.logs[DETAIL],
        f"{accuracy}/{SUMMARY}": outputs.logs[SUMMARY],
        f"{accuracy}/{ACCURACY}": documents.cut_accuracy(outputs.logs[ACCURACY]),
        f"{accuracy}/{ACCURACY_TXT}": documents.accuracy_txt(line, outputs.logs[ACCURACY]),
    }
    both = {**shared, **files}
    listed = {path: sha256_bytes(both[path]) for path in digested(names, scenario)}
    readme = documents.result_readme(names, scenario, timed.spec, request.rules, listed)
    return {**files, f"{folder}/{README}": readme}


def _accuracy_line(sources: Sources, outputs: _Run, rules: Rules) -> str:
    """What is reported: the benchmark's own script, or the agreement with a reference run."""
    if sources.report is not None:
        return sources.report
    if sources.reference is None or rules.floor is None:
        raise BuildRefused(["accuracy: neither a report nor, for a rehearsal, a reference run"])
    reference = _run(sources.reference)
    for name in ("mode", "model_sha256", "samples_sha256", "output"):
        first, second = getattr(outputs.spec, name), getattr(reference.spec, name)
        if first != second:
            raise BuildRefused([f"reference: {name} is {second}, of the accuracy run {first}"])
    agreement = accuracy_guard(
        accuracy_outputs(reference.logs[ACCURACY]),
        accuracy_outputs(outputs.logs[ACCURACY]),
        float(rules.floor),
    ).to_dict()
    return (
        f"cosine against the reference run: worst={agreement['min_cosine']} "
        f"mean={agreement['mean_cosine']} samples={agreement['samples']} "
        f"floor={agreement['floor']} reference_sha256={reference.result.files[ACCURACY]}"
    )


def _versions(runs: Sequence[_Run]) -> dict[str, str]:
    """What ran, by name: each stack with its version and the digest of its build, and LoadGen."""
    versions = {"mlcommons-loadgen": runs[0].result.loadgen_version}
    for run in runs:
        digest = f", build SHA-256 {run.result.stack_digest}" if run.result.stack_digest else ""
        versions[run.spec.sut.stack] = f"{run.result.stack_version}{digest}"
    return versions


def _description(request: Request, runs: Sequence[_Run]) -> dict[str, str]:
    stacks = sorted({f"{run.spec.sut.stack} {run.result.stack_version}" for run in runs})
    return describe(
        request.system,
        submitter=request.submitter,
        status=request.status,
        system_type=request.system_type,
        framework=", ".join(stacks),
        software=f"mlcommons-loadgen {runs[0].result.loadgen_version}",
        details=request.details,
    )


def _json(value: Mapping[str, str]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def _write(files: Mapping[str, bytes], out: Path) -> None:
    """Fill a folder beside ``out``, then rename it: a reader sees all of it or none."""
    out.parent.mkdir(parents=True, exist_ok=True)
    staged = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    staged.mkdir()
    try:
        for path, data in files.items():
            target = staged / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        staged.rename(out)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
