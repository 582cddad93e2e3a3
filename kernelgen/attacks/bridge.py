"""Attacks through a package instead of a kernel: a small real one is built, changed by the fixture,
and taken in as a stranger's.

In: a bridge fixture. Out: the first reason to refuse it, or `accepted` with everything it went
through: the inspection, the loader with one call against the oracle, and the judge's word on the
binary as a whole where the inspection had nothing to say.
Never here: a fixture; the product's own way of building packages.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from kernelgen.attacks.fixtures import Case
from kernelgen.emit import MODEL
from kernelgen.graph import TextEncoder
from kernelgen.graph.builders import build_encoder
from kernelgen.judge import Candidate, judge
from kernelgen.judge.package import inspect
from kernelgen.judge.session import Refusal
from kernelgen.judge.verdict import ACCEPTED
from kernelgen.machine import Machine, describe
from kernelgen.package import build, load, read_manifest
from kernelgen.package.manifest import LIBRARY
from kernelgen.schedule import space

DIMS = {"n": 3, "tokens": 29}
MODEL_LIMIT_S = 30.0


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Goes away with the process."""
    return tempfile.TemporaryDirectory(prefix="kernelgen-bridge-")


@cache
def _base() -> tuple[Path, TextEncoder]:
    """A package of a tiny encoder, built once per process, and the model it was made from."""
    folder = Path(_folder().name)
    model = build_encoder(
        folder / "tiny.onnx", layers=1, heads=2, head_size=16, ffn=64, vocabulary=90, positions=64
    )
    encoder = TextEncoder(str(model))
    machine = describe(measure=False)
    chosen = {}
    for name, operator in encoder.graph.operators.items():
        found = space(operator, machine).default()
        # Small register tiles: fewer variants, so the package compiles in a moment.
        chosen[name] = found.with_choice("mr", 4) if "mr" in found.as_dict else found
    chosen[MODEL] = space(encoder, machine).default()
    return build(encoder.graph, chosen, folder / "package", machine), encoder


def run_bridge(case: Case, machine: Machine, core: int, work: Path) -> tuple[str, str]:
    """The reason for what becomes of `case`, and its detail."""
    base, encoder = _base()
    package = shutil.copytree(base, work / f"{case.name}.package")
    names: dict[str, object] = {"__name__": f"bridge_{case.name}"}
    # A fixture of this repository, as trusted as the test that runs it.
    exec(compile(case.source, f"{case.name}.py", "exec"), names)  # noqa: S102
    tamper = names["tamper"]
    assert callable(tamper)  # noqa: S101 - checked when the fixture was read
    tamper(package)
    try:
        inspect(package)
    except Refusal as refusal:
        return refusal.reason, refusal.detail
    return _as_a_whole(package, encoder, machine, core)


def _as_a_whole(
    package: Path, encoder: TextEncoder, machine: Machine, core: int
) -> tuple[str, str]:
    source = (package / "src" / "model.c").read_text(encoding="ascii")
    flags = tuple(read_manifest(package)["flags"])
    verdict = judge(
        Candidate(MODEL, package / LIBRARY, (source,), flags),
        encoder,
        DIMS,
        incumbent=None,
        seed_bytes=os.urandom(32),
        machine=machine,
        core=core,
        limit_s=MODEL_LIMIT_S,
    )
    if not verdict.accepted:
        return verdict.reason, verdict.detail
    return _loaded(package, encoder)


def _loaded(package: Path, encoder: TextEncoder) -> tuple[str, str]:
    sample = encoder.sample(np.random.default_rng(), DIMS, "nominal")
    ids = [sample["ids"][a:b] for a, b in itertools.pairwise(sample["offsets"])]
    with load(package) as model:
        got = model.run(ids)
    error = np.abs(got - encoder.oracle(sample, DIMS)["embeddings"])
    if not (error <= encoder.error_bound(sample, DIMS)["embeddings"]).all():
        return "wrong_output", f"the loaded package is off by {error.max():.3g}"
    return ACCEPTED, ""
