"""One run of a candidate's source under AddressSanitizer and UndefinedBehaviorSanitizer.

In: a candidate with its sources and flags. Out: nothing, or a `Refusal` with the report.
Never here: timing (a sanitizer build is several times slower).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from kernelgen.judge import intake, screen
from kernelgen.judge.session import Refusal, Region, Session, bytes_for
from kernelgen.judge.verdict import Candidate, JudgeError
from kernelgen.ops.operator import Array, Operator
from kernelgen.targets.cpu import BASE_FLAGS

UNOPTIMISED = "-O0"
"""Nothing is folded away before a sanitizer sees it, and it compiles three times faster."""

OPTIMISED = "-O1"
"""Where the text uses intrinsics: their immediate arguments need it."""

SANITIZERS = (
    "-g1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    # Generated code reads float data through unaligned vector types on purpose.
    "-fno-sanitize=alignment",
    "-fno-sanitize-recover=all",
)
COMPILE_LIMIT_S = 120.0
RUN_LIMIT_S = 60.0


def check(
    candidate: Candidate,
    operator: Operator,
    cases: Sequence[tuple[Mapping[str, int], Mapping[str, Array]]],
) -> None:
    """Build `candidate` with sanitizers and call it once per case; a report is a refusal."""
    with tempfile.TemporaryDirectory(prefix="kernelgen-") as folder:
        library = _build(candidate, Path(folder))
        for dims, sample in cases:
            _run(library, operator, dims, sample)


def _run(
    library: Path, operator: Operator, dims: Mapping[str, int], sample: Mapping[str, Array]
) -> None:
    inputs = Region(bytes_for(operator, dims, ("input", "weight")) + 4096)
    outputs = Region(bytes_for(operator, dims, ("output",)) + 4096)
    try:
        with Session(
            library, operator, inputs, outputs, core=None, limit_s=RUN_LIMIT_S, sanitize=True
        ) as session:
            session.setup(dims, [inputs.put(sample[t.name]) for t in operator.by_role("weight")])
            sources = [inputs.put(sample[t.name]) for t in operator.by_role("input")]
            targets = [
                outputs.put(_blank(t.sizes(dims), t.dtype)) for t in operator.by_role("output")
            ]
            session.call(sources, targets, left=False)
            session.finish()
    except Refusal as refusal:
        raise Refusal("sanitizer", refusal.detail) from refusal
    finally:
        inputs.close()
        outputs.close()


def _blank(shape: tuple[int, ...], dtype: str) -> Array:
    return np.zeros(shape, dtype=dtype)


def _build(candidate: Candidate, folder: Path) -> Path:
    if not candidate.sources:
        raise JudgeError(f"{candidate.name}: no sources, so no sanitizer run is possible")
    library = folder / "sanitized.so"
    # -nostartfiles stays out: the sanitizers need their own start-up code here.
    base = [flag for flag in BASE_FLAGS if flag != "-nostartfiles"]
    kept = [flag for flag in candidate.flags if not flag.startswith(("-O", "-flto", "-nostart"))]
    if len(candidate.sources) != 1:
        raise JudgeError(f"{candidate.name}: {len(candidate.sources)} sources, wanted one")
    # The text as the candidate's own build saw it: nothing in it can ask whether it is watched.
    text, outcome = intake.preprocess(candidate.sources[0], candidate.flags)
    if text is not None:
        screen.check_text(text)
        level = OPTIMISED if screen.uses_intrinsics(text) else UNOPTIMISED
        flags = [*base, *kept, level, *SANITIZERS]
        outcome = intake.compile_text(text, flags, library, limit_s=COMPILE_LIMIT_S)
    if outcome.path is None:
        raise Refusal("not_compiled", f"sanitizer build: {outcome.stderr[-2000:]}")
    return library
