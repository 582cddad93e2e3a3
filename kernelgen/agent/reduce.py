"""The smallest input on which a kernel fails, for whoever has to repair it.

In: a refused kernel, its operator, a size where it may fail. Out: a few lines: sizes, the values
that are not zero, what came out and what was wanted; empty when nothing failed in the time given.
Sizes go down first (each to the least that still fails), then values: halves of every input are set
to zero as long as the kernel still fails (delta debugging; Zeller and Hildebrandt, 2002). Every
call runs in the judge's sandbox.
Never here: a verdict; the judge's secret inputs (these are drawn from a seed of their own).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from kernelgen.judge.compare import Comparison, compare, poisoned
from kernelgen.judge.session import Refusal, Region, Session, bytes_for
from kernelgen.ops.operator import Array, Operator, Role

LIMIT_S = 3.0
CALL_LIMIT_S = 2.0
SHOWN = 12
REGIMES = ("integer_exact", "nominal", "ragged")
POISON = 0x7FC0BEEF
_SMALL = (1, 2, 3, 5, 8, 17, 33, 64, 129)

Arrays = Mapping[str, Array]
Failure = tuple[dict[str, int], dict[str, Array], str]
"""Sizes, inputs and weights, and what is wrong."""


def smallest(
    library: Path, operator: Operator, dims: Mapping[str, int], *, limit_s: float = LIMIT_S
) -> str:
    """What to tell about the least failing input found within `limit_s` seconds."""
    return _Reduction(library, operator, time.monotonic() + limit_s).run(dims)


class _Reduction:
    def __init__(self, library: Path, operator: Operator, deadline: float) -> None:
        self._library = library
        self._operator = operator
        self._deadline = deadline

    def run(self, dims: Mapping[str, int]) -> str:
        found = self._first(dims)
        if found is None:
            return ""
        sizes, sample, words = found
        sample, words = self._zeroed(sizes, sample, words)
        return self._told(sizes, sample, words)

    def _first(
        self, dims: Mapping[str, int]
    ) -> tuple[dict[str, int], dict[str, Array], str] | None:
        """The least sizes, tried in rising order, at which some regime fails."""
        for sizes in self._rising(dims):
            for regime in REGIMES:
                if time.monotonic() >= self._deadline:
                    return None
                try:
                    rng = np.random.default_rng([7, *sizes.values()])
                    sample = self._operator.sample(rng, sizes, regime)
                except (ValueError, ZeroDivisionError):
                    continue  # sizes that do not go together (fewer tokens than sequences)
                words = self._fails(sizes, sample)
                if words:
                    return sizes, sample, words
        return None

    def _rising(self, dims: Mapping[str, int]) -> Sequence[dict[str, int]]:
        tried: list[dict[str, int]] = []
        for small in _SMALL:
            sizes = {name: min(small, size) for name, size in dims.items()}
            if sizes not in tried:
                tried.append(sizes)
        if dict(dims) not in tried:
            tried.append(dict(dims))
        return tried

    def _zeroed(
        self, dims: Mapping[str, int], sample: dict[str, Array], words: str
    ) -> tuple[dict[str, Array], str]:
        """Values set to zero, half by half, as long as the kernel still fails."""
        tensors = (*self._operator.by_role("input"), *self._operator.by_role("weight"))
        for tensor in tensors:
            if np.dtype(tensor.dtype).kind != "f":
                continue  # ids and offsets have a meaning that zeros would break
            size = sample[tensor.name].size
            part = size
            while part >= 1 and time.monotonic() < self._deadline:
                for start in range(0, size, part):
                    if time.monotonic() >= self._deadline:
                        break
                    changed = np.array(sample[tensor.name])
                    piece = changed.reshape(-1)[start : start + part]
                    if not piece.any():
                        continue
                    piece[:] = 0
                    trial = {**sample, tensor.name: changed}
                    still = self._fails(dims, trial)
                    if still:
                        sample, words = trial, still
                part //= 2
        return sample, words

    def _fails(self, dims: Mapping[str, int], sample: Arrays) -> str:
        """What is wrong with one call; empty when it is right."""
        try:
            got = self._call(dims, sample)
        except Refusal as refusal:
            return f"{refusal.reason}: {refusal.detail}"
        want = self._operator.oracle(sample, dims)
        result: Comparison = compare(
            got, want, self._operator.error_bound(sample, dims), poison=POISON
        )
        return "" if result.reason is None else f"{result.reason}: {result.detail}"

    def _call(self, dims: Mapping[str, int], sample: Arrays) -> dict[str, Array]:
        operator = self._operator
        roles: tuple[Role, ...] = ("input", "weight")
        with ExitStack() as stack:
            inputs = stack.enter_context(closing(Region(bytes_for(operator, dims, roles) + 8192)))
            outputs = stack.enter_context(
                closing(Region(bytes_for(operator, dims, ("output",)) + 8192))
            )
            session = stack.enter_context(
                Session(self._library, operator, inputs, outputs, core=None, limit_s=CALL_LIMIT_S)
            )
            weights = [inputs.put(sample[t.name]) for t in operator.by_role("weight")]
            session.setup(dims, weights)
            sources = [inputs.put(sample[t.name]) for t in operator.by_role("input")]
            results = operator.by_role("output")
            targets = [outputs.put(poisoned(t.sizes(dims), t.dtype, POISON)) for t in results]
            session.call(sources, targets, left=False)
            return {
                t.name: outputs.get(at, t.sizes(dims), t.dtype)
                for t, at in zip(results, targets, strict=True)
            }

    def _told(self, dims: Mapping[str, int], sample: Arrays, words: str) -> str:
        sizes = ", ".join(f"{name}={size}" for name, size in dims.items())
        lines = [f"Smallest failing input found: {sizes}; all values zero but"]
        for tensor in (*self._operator.by_role("input"), *self._operator.by_role("weight")):
            array = sample[tensor.name]
            places = np.argwhere(array != 0)
            shown = [
                f"{tensor.name}[{','.join(map(str, at))}]={array[tuple(at)]:g}"
                for at in places[:SHOWN]
            ]
            more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
            lines.append(f"  {tensor.name}: {' '.join(shown) or 'nothing'}{more}")
        return "\n".join([*lines, words[:1000]])
