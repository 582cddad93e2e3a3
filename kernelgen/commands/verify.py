"""`verify`: the judge once more, on a package somebody hands over.

In: a package; with `--model` the ONNX file it was made from. Out: one row per judgement, exit 1
when one fails. A look from outside first (`judge.package.inspect`), before anything is loaded,
compiled or run; then every operator's source is compiled again and judged; with the model, the
packaged binary as a whole, and whether the packed weights are that model's.
Never here: a verdict taken from the package itself.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelgen.commands import show
from kernelgen.graph.types import Graph
from kernelgen.judge import Candidate, Verdict, judge
from kernelgen.judge.intake import compile_untrusted
from kernelgen.judge.labels import plain
from kernelgen.judge.package import inspect
from kernelgen.judge.session import Refusal
from kernelgen.machine import Machine, describe
from kernelgen.ops import from_spec
from kernelgen.package.loader import check_isa
from kernelgen.package.manifest import LIBRARY, MANIFEST, WEIGHTS, PackageError, sha256_of
from kernelgen.package.native import Native

NAME = "verify"
HELP = "check a package's digests and run the judge on it again"

DIMS = {"m": 37, "n": 5, "tokens": 61}
"""Sizes off every tile: a package must be right everywhere, not only where it was tuned."""

MODEL_LIMIT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("package", type=Path, help="package directory")
    parser.add_argument("--model", type=Path, help="the ONNX file, to judge the whole binary too")
    parser.add_argument("--core", type=int, default=None, help="core the kernels run on")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def main(arguments: argparse.Namespace) -> int:
    if not os.path.lexists(arguments.package / MANIFEST):
        raise PackageError(
            f"{arguments.package / MANIFEST}: no such file, wanted a kernel package directory"
        )
    try:
        manifest = inspect(arguments.package)
    except Refusal as refusal:
        return _report(arguments, [_row("package", False, refusal.detail)])
    check_isa(manifest)
    machine = describe()
    core = min(os.sched_getaffinity(0)) if arguments.core is None else arguments.core
    rows = [_row("digests", True, f"{len(manifest['files'])} files")]
    if arguments.model is not None:
        rows += _model(arguments.package, arguments.model, manifest, machine, core)
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as work:
        for entry in manifest["operators"]:
            rows.append(_operator(arguments.package, entry, machine, core, Path(work)))
            show.progress(f"{rows[-1]['name']}: {rows[-1]['reason']}")
    return _report(arguments, rows)


def _operator(
    package: Path, entry: Mapping[str, Any], machine: Machine, core: int, work: Path
) -> dict[str, object]:
    operator = from_spec(entry["spec"])
    foreign = sorted(set(operator.dims) - set(DIMS))
    if foreign:
        return _row(entry["name"], False, f"sizes {foreign}: a text encoder has {sorted(DIMS)}")
    text = (package / entry["source"]).read_text(encoding="ascii")
    flags = tuple(entry["flags"])
    try:
        # Flags and text are the package's own words: they meet a compiler behind walls.
        outcome = compile_untrusted(text, flags, work / f"{Path(entry['source']).stem}.so")
    except Refusal as refusal:
        return _row(entry["name"], False, str(refusal))
    if outcome.path is None:
        return _row(entry["name"], False, f"not_compiled: {outcome.stderr[:500]}")
    verdict = judge(
        Candidate(entry["name"], outcome.path, (text,), flags),
        operator,
        {name: DIMS[name] for name in operator.dims},
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=core,
    )
    return _verdict_row(entry["name"], verdict)


def _model(
    package: Path, model: Path, manifest: Mapping[str, Any], machine: Machine, core: int
) -> list[dict[str, object]]:
    from kernelgen.agent.gate import package_candidate
    from kernelgen.graph import TextEncoder

    got, wanted = sha256_of(model), manifest["model"]["sha256"]
    if got != wanted:
        raise PackageError(f"{model}: got sha256 {got}, the package was made from {wanted}")
    encoder = TextEncoder(str(model))
    verdict = judge(
        package_candidate(package),
        encoder,
        {"n": DIMS["n"], "tokens": DIMS["tokens"]},
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=core,
        limit_s=MODEL_LIMIT_S,
    )
    rows = [_verdict_row("text_encoder (packaged binary)", verdict)]
    if verdict.accepted:
        rows.append(weights_row(package, encoder.graph))
    return rows


def weights_row(package: Path, graph: Graph) -> dict[str, object]:
    """The judge gives the binary the model's weights to pack; a caller gets those of the package.
    The binary packs once more here, in this process: the judge has just accepted it.
    """
    native = Native(package / LIBRARY)
    packed = native.prepare([weight for step in graph.steps for weight in step.weights], (1, 1))
    same = packed.bytes.tobytes() == (package / WEIGHTS).read_bytes()
    reason = f"{packed.size} bytes" if same else "not what the binary makes of the model's weights"
    return _row("packed weights", same, reason)


def _verdict_row(name: str, verdict: Verdict) -> dict[str, object]:
    row = _row(name, verdict.accepted, f"{verdict.reason} {verdict.detail}".strip())
    return {**row, "verdict": verdict.to_dict()}


def _row(name: str, passed: bool, reason: str) -> dict[str, object]:
    return {"name": name, "passed": passed, "reason": plain(reason)}


def _report(arguments: argparse.Namespace, rows: list[dict[str, object]]) -> int:
    passed = all(bool(row["passed"]) for row in rows)
    if arguments.json:
        show.document({"package": str(arguments.package), "passed": passed, "checks": rows})
    else:
        for row in rows:
            print(f"{'pass' if row['passed'] else 'FAIL'}  {row['name']}: {row['reason']}")
    return 0 if passed else 1
