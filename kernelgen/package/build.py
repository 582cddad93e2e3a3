"""From chosen schedules to a package directory: sources, binary, packed weights, manifest.

In: a `Graph`, one schedule per operator and one for the model, a machine. Out: the package path,
complete or absent.
Never here: judging. Verdicts, ledger and trials are written by the agent; `seal` then binds every
file into the manifest.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelgen.emit import ERRORS, MODEL, flags, model_source, source
from kernelgen.emit.part import c_name
from kernelgen.emit.unit import section
from kernelgen.graph.types import Graph
from kernelgen.machine import Machine, vector_floats
from kernelgen.ops.operator import Operator
from kernelgen.package.manifest import (
    FORMAT,
    LEFT_OUT,
    LIBRARY,
    MANIFEST,
    WEIGHTS,
    PackageError,
    read_manifest,
    sha256_of,
    write_manifest,
)
from kernelgen.package.native import Native
from kernelgen.schedule.resources import MATRIX_ISA
from kernelgen.schedule.schedule import Schedule
from kernelgen.sketches.gemm_int8_unit import UNIT_ISA
from kernelgen.targets.compiler import compiler_version
from kernelgen.targets.cpu import BASE_FLAGS, compile_shared

MODEL_COMPILE_LIMIT_S = 180.0

_NEEDS: Mapping[int, tuple[str, ...]] = {
    16: ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2"),
    8: ("avx2", "fma", "bmi2", "f16c"),
    4: (),
}
_UNIT_NEEDS: Mapping[str, tuple[str, ...]] = {"dot_bf16": MATRIX_ISA, "dot_i8": UNIT_ISA}
"""By matrix word that a kernel uses."""


def build(
    graph: Graph,
    schedules: Mapping[str, Schedule],
    out: Path,
    machine: Machine,
    *,
    extra: Mapping[str, object] | None = None,
    files: Mapping[str, bytes] | None = None,
    licence: str = "Apache-2.0",
) -> Path:
    """Write the package to `out`, replacing an older one there; returns `out`.

    `extra` adds manifest fields (judge version, verdict digests); `files` adds files by relative
    path (verdicts.json, ledger.jsonl, trials.jsonl). Everything is built beside `out` and renamed
    at the end, so no half package is ever seen.
    Raises `PackageError` with the compiler's words when the model does not compile.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        manifest = _fill(graph, schedules, folder, machine)
        for name, content in (files or {}).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        manifest |= {"licence": licence, **(extra or {})}
        manifest["files"] = digests(folder)
        write_manifest(folder, manifest)
        folder.chmod(0o755)
        if out.exists():
            old = out.with_name(f".{out.name}.old.{os.getpid()}")
            out.rename(old)
            folder.rename(out)
            shutil.rmtree(old)
        else:
            folder.rename(out)
    finally:
        if folder.exists():
            shutil.rmtree(folder)
    return out


def seal(package: Path, extra: Mapping[str, object]) -> str:
    """Bind files added since `build` and the fields in `extra` into the manifest; returns its new
    SHA-256.
    """
    manifest: dict[str, Any] = {**read_manifest(package), **extra}
    manifest["files"] = digests(package)
    return write_manifest(package, manifest)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest, by relative path."""
    return {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def copy_evidence(package: Path, dest: Path) -> Path:
    """Copy everything but the packed weights to `dest` (made, must not exist yet); returns
    `dest`.
    """
    manifest = read_manifest(package)
    for name in (*manifest["files"], MANIFEST):
        if name in LEFT_OUT:
            continue
        target = dest / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package / name, target)
    return dest


def model_flags(machine: Machine, schedules: Sequence[Schedule]) -> tuple[str, ...]:
    """Flags of all schedules together: the whole model is one translation unit."""
    return flags(machine, *schedules)


def matrix_words_of(
    operators: Mapping[str, Operator], schedules: Mapping[str, Schedule]
) -> frozenset[str]:
    """Words of the matrix unit that the kernels use, such as `dot_i8`."""
    sections = (section(operator, schedules[name]) for name, operator in operators.items())
    return frozenset(word for one in sections for word in one.writer.matrix)


def instruction_sets(
    chosen: Sequence[Schedule], unit: Iterable[str], machine: Machine
) -> list[str]:
    """What a machine must have to run kernels under `chosen` that use the matrix words `unit`:
    words of `Machine.isa`, each of which the judge looks for in the binary.
    """
    widest = max(
        (int(item.as_dict.get("vector", 4)) for item in chosen), default=vector_floats(machine.isa)
    )
    needs = {*_NEEDS[widest], *(need for word in unit for need in _UNIT_NEEDS[word])}
    return sorted(needs & set(machine.isa))


def _fill(
    graph: Graph, schedules: Mapping[str, Schedule], folder: Path, machine: Machine
) -> dict[str, Any]:
    chosen = [schedules[name] for name in graph.operators]
    (folder / "src").mkdir()
    (folder / "lib").mkdir()
    operators = []
    for name, operator in graph.operators.items():
        path = folder / "src" / f"{c_name(name)}.c"
        path.write_text(source(operator, schedules[name]), encoding="ascii")
        operators.append(
            {
                "name": name,
                "spec": operator.spec(),
                "schedule": schedules[name].text(),
                "calls": graph.uses(name),
                "source": path.relative_to(folder).as_posix(),
                "flags": list(flags(machine, schedules[name])),
            }
        )
    text = model_source(graph, schedules)
    options = model_flags(machine, chosen)
    outcome = compile_shared(text, options, folder / LIBRARY, limit_s=MODEL_COMPILE_LIMIT_S)
    if outcome.path is None:
        raise PackageError(f"the model does not compile: {outcome.stderr[:2000]}")
    (folder / LIBRARY).with_suffix(".c").rename(folder / "src" / "model.c")
    weights = [weight for step in graph.steps for weight in step.weights]
    began = time.monotonic()
    packed = Native(folder / LIBRARY).prepare(weights, (1, 1))
    packing_s = time.monotonic() - began
    (folder / WEIGHTS).write_bytes(packed.bytes.tobytes())
    unit = matrix_words_of(graph.operators, schedules)
    return {
        "format": FORMAT,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "model": {
            "sha256": graph.model_sha256,
            "kind": MODEL,
            "hidden": graph.hidden,
            "vocabulary": graph.vocabulary,
            "max_tokens": graph.max_tokens,
            "precision": "float32",
            "arithmetic": "bf16x3" if "dot_bf16" in unit else "fma32",
        },
        "machine": machine.to_dict(),
        "machine_fingerprint": machine.fingerprint,
        "architecture": machine.architecture,
        "isa": instruction_sets(chosen, unit, machine),
        "compiler": compiler_version(),
        "flags": [*BASE_FLAGS, *options],
        "operators": operators,
        "model_schedule": schedules[MODEL].text(),
        "errors": {str(code): meaning for code, meaning in ERRORS.items()},
        "compile_s": round(outcome.seconds, 3),
        "packing_s": round(packing_s, 3),
        "weights_bytes": packed.size,
    }
