"""Our side of an operator's row: a searched or default kernel, judged, then run in one C loop.

In: an operator, its sizes, a budget. Out: `Kernel`, and a `Side` over the same buffers as the
peers.
Never here: loading a library that the judge has not accepted in this run.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np

from kernelgen.bench.contents import Contents
from kernelgen.bench.stacks import Side
from kernelgen.emit import flags, source
from kernelgen.judge.contest import Point
from kernelgen.judge.trial import judge_points
from kernelgen.judge.verdict import Candidate
from kernelgen.machine import Machine, allow_tiles
from kernelgen.ops.operator import Array, Operator
from kernelgen.package.native import Block, Native
from kernelgen.schedule import Schedule, space
from kernelgen.targets.cpu import compile_shared

_LOOP = """\
/* Calls one kernel for every copy of its buffers, so that a run costs one call from outside. */
#include <stdint.h>
typedef int kernel_t(const void *const *, void *const *, const int64_t *, const void *, void *);
__attribute__((visibility("default")))
int run(kernel_t *kernel, int64_t copies, const void *const *const *in, void *const *const *out,
        const int64_t *dim, const void *const *packed, void *scratch) {
  for (int64_t copy = 0; copy < copies; copy++) {
    int code = kernel(in[copy], out[copy], dim, packed[copy], scratch);
    if (code) return code;
  }
  return 0;
}
"""


class NoKernel(RuntimeError):
    """There is no accepted kernel for an operator; the text says why."""


@dataclass(frozen=True)
class Kernel:
    """An accepted kernel: searched or which start, the schedule that replays it, its library, how
    many trials the search took.
    """

    form: str
    schedule: str
    library: Path
    trials: int


@dataclass(frozen=True)
class Place:
    """Where kernels are found: the machine, the core, a folder for what is built, kept records."""

    machine: Machine
    core: int
    work: Path
    records: Path
    seed: int


class Finder:
    """Finds kernels and has each judged once, at all `sizes` that its operator is timed at."""

    def __init__(self, place: Place, sizes: Iterable[tuple[Operator, Mapping[str, int]]]) -> None:
        self.place = place
        self._sizes: dict[Operator, list[Mapping[str, int]]] = {}
        for operator, dims in sizes:
            self._sizes.setdefault(operator, []).append(dims)
        self._accepted: set[Path] = set()

    def find(self, operator: Operator, dims: Mapping[str, int], budget_s: float) -> list[Kernel]:
        """Kernels to choose from at the minute of the race: what `budget_s` seconds of search find,
        if they accept one (a core too noisy to time on says nothing about correctness), the default
        one, and the further starts of `SearchSpace.stock`, each best at some times.

        Raises `NoKernel` with the judge's words when a start is not accepted.
        """
        starts = space(operator, self.place.machine)
        found, trials = None, 0
        if budget_s > 0:
            found, trials = _searched(operator, dims, self.place, budget_s)
        forms = {schedule: name for name, schedule in starts.stock().items()}
        forms = {starts.default(): "default"} | forms
        kernels = [
            self._built(operator, schedule, name, trials, judge=True)
            for schedule, name in forms.items()
            if schedule != found
        ]
        if found is not None:
            kernels.insert(0, self._built(operator, found, "searched", trials, judge=False))
        return kernels

    def _built(
        self, operator: Operator, schedule: Schedule, form: str, trials: int, *, judge: bool
    ) -> Kernel:
        place = self.place
        text, options = source(operator, schedule), flags(place.machine, schedule)
        stem = hashlib.sha256(f"{text}\0{options}".encode()).hexdigest()[:24]
        built = compile_shared(text, options, place.work / f"{stem}.so")
        if built.path is None:
            raise NoKernel(f"not_compiled: {built.stderr[:500]}")
        if judge and built.path not in self._accepted:
            candidate = Candidate(operator.name, built.path, (text,), options)
            self._judge(candidate, operator, self._sizes[operator])
            self._accepted.add(built.path)
        return Kernel(form, schedule.text(), built.path, trials)

    def _judge(
        self, candidate: Candidate, operator: Operator, sizes: Sequence[Mapping[str, int]]
    ) -> None:
        verdict = judge_points(
            candidate,
            operator,
            [Point(dict(dims)) for dims in sizes],
            incumbent=None,
            seed_bytes=os.urandom(32),
            machine=self.place.machine,
            core=self.place.core,
            timed=False,
        )
        if not verdict.accepted:
            raise NoKernel(f"{verdict.reason}: {verdict.detail}")


def _searched(
    operator: Operator, dims: Mapping[str, int], place: Place, budget_s: float
) -> tuple[Schedule | None, int]:
    from kernelgen.agent.bench import Bench
    from kernelgen.agent.ledger import Ledger
    from kernelgen.agent.records import Records
    from kernelgen.agent.search import search

    bench = Bench(
        operator,
        (Point(dict(dims)),),
        machine=place.machine,
        core=place.core,
        work=place.work,
        ledger=Ledger(place.work / "ledger.jsonl", Decimal(0), "USD"),
        records=Records(place.records),
    )
    rng = np.random.default_rng(place.seed)
    found = search(space(operator, place.machine), bench, rng, budget_s=budget_s)
    if found.interrupted:
        raise KeyboardInterrupt
    return found.schedule, len(found.trials)


@cache
def _loop(folder: Path) -> ctypes.CDLL:
    built = compile_shared(_LOOP, ("-O2",), folder / "loop.so")
    if built.path is None:
        raise RuntimeError(f"the calling loop does not compile: {built.stderr}")
    library = ctypes.CDLL(str(built.path))
    pointer = ctypes.c_void_p
    library.run.argtypes = [pointer, ctypes.c_int64, *[pointer] * 5]
    library.run.restype = ctypes.c_int
    return library


class _Table:
    """A C array of pointers to arrays of pointers, one inner array per copy."""

    def __init__(self, rows: list[list[int]]) -> None:
        self._inner = [(ctypes.c_void_p * max(1, len(row)))(*row) for row in rows]
        self._outer = (ctypes.c_void_p * len(rows))(*map(ctypes.addressof, self._inner))
        self.address = ctypes.addressof(self._outer)


def ours(kernel: Kernel, contents: Contents, work: Path) -> Side:
    """The accepted kernel as a side: packed weights per weight set, one call for all copies.

    Raises `NoKernel` when the kernel or its packing returns an error.
    """
    allow_tiles()
    operator = contents.operator
    native = Native(kernel.library)
    values = [contents.dims[name] for name in operator.dims]
    packed = [_pack(native, operator, one, values) for one in contents.weights]
    scratch = Block(native.scratch_bytes(values))
    outputs = contents.outputs()
    sources = _Table([_addresses(operator, "input", one) for one in contents.inputs])
    targets = _Table([_addresses(operator, "output", one) for one in outputs])
    count = contents.copies
    blocks = (ctypes.c_void_p * count)(*(packed[i % len(packed)].address for i in range(count)))
    sizes = np.array(values, np.int64)
    entry = ctypes.cast(native.kernel, ctypes.c_void_p)
    loop = _loop(work).run
    arguments = (
        entry,
        count,
        sources.address,
        targets.address,
        sizes.ctypes.data,
        ctypes.addressof(blocks),
        scratch.address,
    )
    borrowed = (native, packed, scratch, sources, targets, blocks, sizes)

    def run() -> None:
        code = loop(*arguments)
        if code:
            raise NoKernel(f"returned_error: code {code} from {kernel.schedule}")

    run.__dict__["borrowed"] = borrowed
    return Side("ours", kernel.form, run, lambda: outputs)


def _pack(
    native: Native, operator: Operator, weights: Mapping[str, Array], values: list[int]
) -> Block:
    try:
        return native.prepare([weights[t.name] for t in operator.by_role("weight")], values)
    except RuntimeError as error:
        raise NoKernel(f"returned_error: {error}") from error


def _addresses(operator: Operator, role: str, arrays: Mapping[str, Array]) -> list[int]:
    tensors = operator.by_role("input" if role == "input" else "output")
    return [int(arrays[tensor.name].ctypes.data) for tensor in tensors]
