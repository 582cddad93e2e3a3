"""Our own verifier: a submission folder is refused with every reason found, or it holds.

In: a snapshot of the folder, the rules, and the stored runs if somebody has them. Out:
:class:`Report`. Stricter than the official checker on purpose: that one accepts a run marked
INVALID, an edited result, an error line and an empty folder. Without the stored runs a forger who
rewrites every file alike can still pass; with them only the bytes that LoadGen wrote pass. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from metering.loadgen.files import sha256_bytes
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec
from metering.loadgen.verdict import ACCURACY, DETAIL, SUMMARY
from metering.submission import documents, logs
from metering.submission.finding import Finding
from metering.submission.logs import Result
from metering.submission.rules import NOTE, PRIMARY_KEYS, UNKNOWN, Benchmark, Rules
from metering.submission.snapshot import Snapshot
from metering.submission.system import description_findings
from metering.submission.tree import ACCURACY_TXT, MEASUREMENTS, NAME, README, USER_CONF, Names
from metering.submission.tree import names_of as names_of_paths

# Reading it takes time that grows faster than its length.
_MOST_SOURCE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Report:
    """``results`` is empty unless the folder holds. ``runs`` counts the stored runs compared."""

    rules: Rules
    findings: tuple[Finding, ...]
    results: tuple[Result, ...]
    runs: int

    @property
    def holds(self) -> bool:
        return not self.findings

    def to_dict(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "rules": self.rules.title,
            "rehearsal": self.rules.rehearsal,
            "note": NOTE,
            "stored_runs_compared": self.runs,
            "results": [vars(result) for result in self.results],
            "findings": [vars(finding) for finding in self.findings],
        }


def verify(snapshot: Snapshot, rules: Rules, runs: Sequence[RunResult] = ()) -> Report:
    """Judge a folder. ``runs`` are stored runs, already recomputed, that it claims to hold."""
    found = list(snapshot.faults)
    results: list[Result] = []
    folders = names_of_paths(snapshot.files)
    if len(folders) != 1:
        what = "empty, no result at all" if not snapshot.files else f"{len(folders)} results"
        wanted = "wanted one submitter, system and model under open/<Submitter>/results"
        found.append(Finding(".", f"{what}; {wanted}"))
    else:
        inside, results = _folder(folders[0], snapshot.files, rules)
        found += inside
        found += _stored(folders[0], snapshot.files, runs) if runs else []
    return Report(rules, tuple(found), () if found else tuple(results), len(runs))


def _folder(
    names: Names, files: Mapping[str, bytes], rules: Rules
) -> tuple[list[Finding], list[Result]]:
    found = _tree(names, files)
    mapping, benchmark = _benchmark(names, files, rules)
    found += mapping
    found += _description(names, files)
    source, specs = _specs(names, files)
    found += source
    results = []
    for scenario in names.scenarios:
        pair = [specs.get((scenario, mode)) for mode in ("performance", "accuracy")]
        found += _small_files(names, scenario, files, pair[0])
        found += _one_build(names, pair[0], pair[1])
        if rules.scenario not in (None, scenario):
            reason = f"a scenario that the plan does not measure; it wants {rules.scenario}"
            found.append(Finding(names.result(scenario), reason))
        timed, result = logs.performance(
            names.performance(scenario), scenario, files, pair[0], rules, benchmark or UNKNOWN
        )
        found += timed
        if benchmark is None:
            continue  # Nothing says what its accuracy has to look like.
        outputs, figure = logs.accuracy(
            names.accuracy(scenario), scenario, files, pair[1], rules, benchmark
        )
        found += outputs
        if result is not None:
            shown = f"{benchmark.metric}: {figure}"
            results.append(replace(result, accuracy=shown))
    return found, results


def _tree(names: Names, files: Mapping[str, bytes]) -> list[Finding]:
    wanted = set(names.paths())
    found = [Finding(path, "missing file") for path in sorted(wanted - set(files))]
    found += [
        Finding(path, "not a file of a v6.1 OPEN submission")
        for path in sorted(set(files) - wanted)
    ]
    found += [Finding(path, "empty file") for path in sorted(wanted) if files.get(path) == b""]
    for kind, name in (
        ("submitter", names.submitter),
        ("system", names.system),
        ("model", names.model),
    ):
        if NAME.fullmatch(name) is None:
            found.append(Finding(".", f"{kind}: got {name!r}, wanted letters, digits and dashes"))
    for scenario in names.scenarios:
        if scenario not in PRIMARY_KEYS:
            found.append(Finding(names.result(scenario), "not a scenario"))
    return found


def _benchmark(
    names: Names, files: Mapping[str, bytes], rules: Rules
) -> tuple[list[Finding], Benchmark | None]:
    if names.mapping not in files:
        return [], None
    found, value = _object(names.mapping, files)
    if found:
        return found, None
    if set(value) != {names.model}:
        reason = f"maps {sorted(value)}, wanted the one model {names.model!r}"
        return [Finding(names.mapping, reason)], None
    benchmark = rules.benchmarks.get(str(value[names.model]))
    if benchmark is None:
        choices = ", ".join(rules.benchmarks)
        reason = f"{names.model}: got {value[names.model]!r}, wanted one of {choices}"
        return [Finding(names.mapping, reason)], None
    if names.model in rules.benchmarks and names.model != benchmark.name:
        return [Finding(names.mapping, f"renames the benchmark {names.model}")], None
    return [], benchmark


def _description(names: Names, files: Mapping[str, bytes]) -> list[Finding]:
    if names.description not in files:
        return []
    found, value = _object(names.description, files)
    return found or description_findings(names.description, value, names.submitter)


def _specs(
    names: Names, files: Mapping[str, bytes]
) -> tuple[list[Finding], dict[tuple[str, str], RunSpec]]:
    if names.source not in files:
        return [], {}
    if len(files[names.source]) > _MOST_SOURCE_BYTES:
        return [Finding(names.source, f"longer than {_MOST_SOURCE_BYTES} bytes; not read")], {}
    try:
        specs = documents.read_specs(files[names.source].decode())
    except ValueError as error:
        return [Finding(names.source, str(error))], {}
    wanted = {
        (scenario, mode) for scenario in names.scenarios for mode in ("performance", "accuracy")
    }
    if set(specs) != wanted:
        told = ", ".join(f"{scenario} {mode}" for scenario, mode in sorted(specs)) or "none"
        return [
            Finding(names.source, f"holds the specifications of {told}; of each run one")
        ], specs
    return [], specs


def _small_files(
    names: Names, scenario: str, files: Mapping[str, bytes], spec: RunSpec | None
) -> list[Finding]:
    """``measurements.json``, ``user.conf`` and the digests in the README of one result."""
    folder = names.result(scenario)
    found: list[Finding] = []
    path = f"{folder}/{MEASUREMENTS}"
    if path in files:
        bad, value = _object(path, files)
        found += bad
        for name in documents.MEASUREMENT_FIELDS if not bad else ():
            if not isinstance(value.get(name), str) or not value[name].strip():
                found.append(Finding(path, f"{name}: got {value.get(name)!r}, wanted a text"))
        for name in sorted(set(value) - set(documents.MEASUREMENT_FIELDS)):
            found.append(Finding(path, f"{name}: unknown field"))
        if spec is not None and not bad and value.get("starting_weights_filename") != spec.model:
            found.append(Finding(path, f"starting_weights_filename: the run used {spec.model}"))
    path = f"{folder}/{USER_CONF}"
    if path in files and spec is not None:
        try:
            told = documents.read_user_conf(files[path].decode("utf-8", "replace"), scenario)
        except ValueError as error:
            found.append(Finding(path, str(error)))
        else:
            if told != documents.conf_settings(spec):
                reason = f"says {told}, the run had {documents.conf_settings(spec)}"
                found.append(Finding(path, reason))
    return found + _digests(names, scenario, files)


def _digests(names: Names, scenario: str, files: Mapping[str, bytes]) -> list[Finding]:
    readme = f"{names.result(scenario)}/{README}"
    if readme not in files:
        return []
    told = documents.read_digests(files[readme].decode("utf-8", "replace"))
    wanted = set(digested(names, scenario))
    found = [Finding(readme, f"has no SHA-256 of {path}") for path in sorted(wanted - set(told))]
    for path in sorted(wanted & set(told) & set(files)):
        if sha256_bytes(files[path]) != told[path]:
            found.append(Finding(path, f"edited: its SHA-256 is not the one in {readme}"))
    return found


def digested(names: Names, scenario: str) -> tuple[str, ...]:
    """The files whose digests the README of a result lists."""
    alone = Names(names.submitter, names.system, names.model, (scenario,))
    return tuple(path for path in alone.paths() if path != f"{names.result(scenario)}/{README}")


def _one_build(names: Names, timed: RunSpec | None, outputs: RunSpec | None) -> list[Finding]:
    """An accuracy run of another build or other inputs says nothing about the timed one."""
    if timed is None or outputs is None:
        return []
    return [
        Finding(
            names.source,
            f"{timed.scenario}: {name} of the accuracy run is {getattr(outputs, name)}, of the "
            f"performance run {getattr(timed, name)}",
        )
        for name in ("sut", "model_sha256", "samples_sha256", "package_sha256", "output", "task",
                     "max_new_tokens", "end_token")
        if getattr(timed, name) != getattr(outputs, name)
    ]  # fmt: skip


def _stored(names: Names, files: Mapping[str, bytes], runs: Sequence[RunResult]) -> list[Finding]:
    """Each log must be, byte for byte, the log of a stored run."""
    found = []
    for scenario in names.scenarios:
        for mode, folder in (
            ("performance", names.performance(scenario)),
            ("accuracy", names.accuracy(scenario)),
        ):
            stored = [run for run in runs if (run.scenario, run.mode) == (scenario, mode)]
            for name in (DETAIL, SUMMARY):
                path = f"{folder}/{name}"
                digest = sha256_bytes(files.get(path, b""))
                if path in files and digest not in {run.files.get(name) for run in stored}:
                    found.append(Finding(path, f"is not that of a stored {mode} run"))
        path = f"{names.accuracy(scenario)}/{ACCURACY_TXT}"
        try:
            told = documents.read_accuracy_hash(files.get(path, b"").decode("utf-8", "replace"))
        except ValueError:
            continue  # Reported with the file.
        if told not in {run.files.get(ACCURACY) for run in runs if run.mode == "accuracy"}:
            found.append(Finding(path, "its hash is not that of a stored accuracy log"))
    return found


def _object(path: str, files: Mapping[str, bytes]) -> tuple[list[Finding], dict[str, Any]]:
    try:
        value = json.loads(files[path], parse_constant=_no_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        return [Finding(path, f"not JSON ({error})")], {}
    if not isinstance(value, dict):
        return [Finding(path, "wanted a JSON object")], {}
    return [], value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a field is given twice")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"the number {name}")
