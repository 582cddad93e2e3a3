"""The small files of a submission, written by :mod:`build` and read back by :mod:`check`.

In: specs, results, digests. Out: ``user.conf``, ``accuracy.txt``, the README files and the cut
accuracy log, and from such text what it says. One module holds both directions, so that a file
cannot be written in a form the verifier does not read. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from metering.loadgen.files import sha256_bytes
from metering.loadgen.spec import RunSpec, SpecError
from metering.submission.rules import NOTE, Rules
from metering.submission.tree import Names

MOST_ACCURACY_BYTES = 10 * 1024
_VIEW_BYTES = 4096
_MS = 10**6
_CUT = b"\n\n...\n\n"
MEASUREMENT_FIELDS = (
    "input_data_types",
    "retraining",
    "starting_weights_filename",
    "weight_data_types",
    "weight_transformations",
)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONF_LINE = re.compile(r"\*\.([A-Za-z]+)\.([a-z_]+) = ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)")
_DIGEST_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._/-]+)")
_BLOCK = re.compile(r"^## (\S+) (performance|accuracy)\n\n```json\n(.*?)\n```$", re.M | re.S)


def user_conf(spec: RunSpec) -> bytes:
    """The settings of a performance run in LoadGen's own form: ``key = value``, spaces needed."""
    lines = [
        f"# {NOTE}.",
        "# Settings of the run beside this file. The seeds are not here: LoadGen takes none from",
        "# this file.",
        *(f"*.{spec.scenario}.{key} = {value}" for key, value in conf_settings(spec).items()),
    ]
    return ("\n".join(lines) + "\n").encode()


def conf_settings(spec: RunSpec) -> dict[str, str]:
    """Key to value, as text, of what LoadGen's parser can be told of a run."""
    rate = {"target_qps": f"{spec.target_qps:.6g}"}
    if spec.scenario == "SingleStream":
        # LoadGen's parser wants the expected latency here, in milliseconds.
        rate = {"target_latency": f"{round(1e9 / spec.target_qps) / 1e6:.6f}"}
    return {
        **rate,
        "min_duration": str(spec.min_duration_ms),
        "min_query_count": str(spec.min_query_count),
        **_token_settings(spec),
    }


def _token_settings(spec: RunSpec) -> dict[str, str]:
    """Token mode, and in Server the bounds of its two latencies in whole milliseconds."""
    if spec.task != "generation":
        return {}
    bounds = {
        "ttft_latency": str(spec.ttft_latency_ns // _MS),
        "tpot_latency": str(spec.tpot_latency_ns // _MS),
    }
    return {"use_token_latencies": "1", **(bounds if spec.scenario == "Server" else {})}


def not_in_user_conf(spec: RunSpec) -> list[str]:
    """What LoadGen's parser cannot be told of a run: it cuts a bound to whole milliseconds."""
    return [
        f"{name}: {value} ns is not whole milliseconds, and user.conf cannot say it"
        for name, value in (
            ("ttft_latency_ns", spec.ttft_latency_ns),
            ("tpot_latency_ns", spec.tpot_latency_ns),
        )
        if value % _MS
    ]


def read_user_conf(text: str, scenario: str) -> dict[str, str]:
    """Key to value. Raises ValueError naming a line LoadGen's parser would drop in silence."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _CONF_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: wanted '*.{scenario}.key = value'")
        named, key, value = match.groups()
        if named != scenario or key in found:
            raise ValueError(f"line {number}: another scenario, or {key} a second time")
        found[key] = value
    return found


def cut_accuracy(log: bytes) -> bytes:
    """An accuracy log small enough for a submission: whole, or its two ends around a mark."""
    if len(log) <= MOST_ACCURACY_BYTES:
        return log
    return log[:_VIEW_BYTES] + _CUT + log[-_VIEW_BYTES:]


def is_cut(log: bytes) -> bool:
    return len(log) == 2 * _VIEW_BYTES + len(_CUT) and log[_VIEW_BYTES:-_VIEW_BYTES] == _CUT


def accuracy_txt(line: str, log: bytes) -> bytes:
    """What the accuracy script said, and the digest of the accuracy log before it was cut."""
    return f"{line.strip()}\nhash={sha256_bytes(log)}\n".encode()


def read_accuracy_hash(text: str) -> str:
    """The one ``hash=`` of an accuracy.txt. Raises ValueError."""
    found = [line[5:] for line in text.splitlines() if line.startswith("hash=")]
    if len(found) != 1 or _SHA256.fullmatch(found[0]) is None:
        raise ValueError("wanted one line hash= with 64 hex digits")
    return found[0]


def _token_lines(spec: RunSpec) -> str:
    """What a model that generates was asked for; how long it took only the logs say."""
    if spec.task != "generation":
        return ""
    end = "none" if spec.end_token is None else str(spec.end_token)
    told = [f"Answers of at most {spec.max_new_tokens} tokens, end token {end}."]
    if spec.scenario == "Server":
        told.append(
            f"Bounds at the 99th percentile: time to first token {spec.ttft_latency_ns} ns, time "
            f"per output token {spec.tpot_latency_ns} ns."
        )
    return "\n".join(told) + "\n\n"


def result_readme(
    names: Names, scenario: str, spec: RunSpec, rules: Rules, digests: Mapping[str, str]
) -> bytes:
    """The README beside a result: what it is, and the digest of each file of the folder."""
    warning = (
        "This folder is a REHEARSAL: it has the form of a submission and is none. Its seeds, its\n"
        "length and its benchmark are those of a measurement plan, not of the round.\n\n"
        if rules.rehearsal
        else ""
    )
    lines = "\n".join(f"{digest}  {path}" for path, digest in sorted(digests.items()))
    return (
        f"# {names.model} on {names.system}, {scenario}\n\n"
        f"{NOTE}.\n\n{warning}"
        f"Rules: {rules.title}.\n\n"
        f"Measured as run `{spec.run_id}`: stack `{spec.sut.stack}`, {spec.sut.instances} x "
        f"{spec.sut.threads} threads,\narrangement `{spec.sut.arrangement}`, batch "
        f"{spec.sut.batch}, {spec.sut.precision}.\n\n"
        f"{_token_lines(spec)}"
        "SHA-256 of the other files of this result, of the system and of the source notes:\n\n"
        f"```\n{lines}\n```\n"
    ).encode()


def read_digests(text: str) -> dict[str, str]:
    """Path to SHA-256, as a result's README lists them."""
    found = {}
    for line in text.splitlines():
        match = _DIGEST_LINE.fullmatch(line)
        if match is not None:
            found[match.group(2)] = match.group(1)
    return found


def source_readme(
    names: Names,
    rules: Rules,
    specs: Mapping[tuple[str, str], RunSpec],
    versions: Mapping[str, str],
) -> bytes:
    """How to run it again: what ran, and the whole spec of each run.

    ``specs`` is keyed by scenario and mode.
    """
    ran = "\n".join(f"- {name}: {version}" for name, version in sorted(versions.items()))
    parts = [
        f"# {names.model}: how the runs are made\n\n"
        f"Rules: {rules.title}.\n\n"
        f"{ran}\n\n"
        "Each block below is the whole specification of one run, its inputs held by their SHA-256."
        "\nWith the model, the samples and (where one is named) the kernel package in place, write"
        "\nthe paths into it and run `python -m metering loadgen SPEC.json --out NEW_FOLDER`.\n"
    ]
    for (scenario, mode), spec in sorted(specs.items()):
        block = json.dumps(spec.recorded().to_dict(), indent=1, sort_keys=True)
        parts.append(f"\n## {scenario} {mode}\n\n```json\n{block}\n```\n")
    return "".join(parts).encode()


def read_specs(text: str) -> dict[tuple[str, str], RunSpec]:
    """Specs of a source README by scenario and mode. Raises ValueError for one that is no spec."""
    found: dict[tuple[str, str], RunSpec] = {}
    for scenario, mode, block in _BLOCK.findall(text):
        try:
            value: Any = json.loads(block)
            spec = RunSpec.from_dict(value)
        except (SpecError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{scenario} {mode}: not a run specification ({error})") from error
        if (spec.scenario, spec.mode) != (scenario, mode) or (scenario, mode) in found:
            raise ValueError(f"{scenario} {mode}: its specification is of another run")
        found[scenario, mode] = spec
    return found
