"""Operators against the stock stacks: one row per operator and size.

In: cases, a machine, a core. Out: rows in the format other tools read: {suite, name, shape, dtype,
threads, ours_us, peers, best_peer, ratio, ratio_ci, roofline_fraction, correct, class}, and beside
these how the row came about.
Never here: times from another run, a peer that gives wrong answers, a failure that is left out.

One run of a side computes `calls_per_run` copies of the operator, each on its own buffers, so that
the cost of a call from Python does not decide. Times are per copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from kernelgen.bench import kernels, roof
from kernelgen.bench.cases import Case
from kernelgen.bench.contents import Contents
from kernelgen.bench.family import Peers, peers_of
from kernelgen.bench.interleave import Times, pinned, race, ratio_interval
from kernelgen.bench.stacks import STACKS, Side, openers
from kernelgen.judge.build import matrix_unit_gflops
from kernelgen.judge.quiet import one_blas_thread
from kernelgen.judge.verdict import JudgeError
from kernelgen.machine import Machine, describe
from kernelgen.ops.operator import Array
from kernelgen.schedule import ScheduleError

Row = dict[str, object]

RUN_US = 300.0
"""A run lasts at least about this long: then a call from Python is under a hundredth of it."""

MOST_COPIES = 512
MOST_BYTES = 192 << 20
CHECKED_COPIES = 3
PEAK_TRIES = 3
MATRIX_TRIES = 10


@dataclass(frozen=True)
class Settings:
    """How a suite is run. `budget_s` seconds of search per operator; 0 searches nothing."""

    core: int
    work: Path
    records: Path
    budget_s: float = 0.0
    seed: int = 0
    quick: bool = False


@dataclass
class _Peering:
    """The sides that may race, and why others may not."""

    sides: list[Side] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def refuse(self, stack: str, form: str, reason: str) -> None:
        label = f"{form}: " if form else ""
        self.notes.setdefault(stack, []).append(f"{label}{reason}")


def run_ops(
    cases: Sequence[Case],
    settings: Settings,
    *,
    machine: Machine | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """One row per case, one thread, pinned. Raises `ValueError` for the core."""
    rows = []
    with pinned(settings.core), one_blas_thread():
        facts = machine or steady()
        place = kernels.Place(facts, settings.core, settings.work, settings.records, settings.seed)
        finder = kernels.Finder(place, [(case.operator, case.dims) for case in cases])
        for case in cases:
            row = _row(case, settings, finder)
            rows.append(row)
            if on_row is not None:
                on_row(row)
    return rows


def steady() -> Machine:
    """This machine with the best of several measurements of its peaks: a neighbour on the core
    halves one of them easily.
    """
    seen = [describe() for _ in range(PEAK_TRIES)]
    for _ in range(MATRIX_TRIES):
        matrix_unit_gflops(again=True)
    return replace(
        seen[0],
        peak_gflops_per_core=max(facts.peak_gflops_per_core or 0.0 for facts in seen),
        peak_gbps_per_core=max(facts.peak_gbps_per_core or 0.0 for facts in seen),
    )


def _row(case: Case, settings: Settings, finder: kernels.Finder) -> Row:
    operator, dims = case.operator, case.dims
    row = _empty(case)
    peers = peers_of(operator)
    try:
        forms = finder.find(operator, dims, settings.budget_s)
        copies = _copies(case, forms[0], peers, settings)
        contents = _contents(case, copies, peers, settings)
        sides = {kernels.ours(kernel, contents, settings.work): kernel for kernel in forms}
        error = max(worst_error(side, contents) for side in sides)
        mine = _fastest(list(sides))
    except (kernels.NoKernel, JudgeError, ScheduleError) as reason:
        row["reason"] = _words(reason)
        return row
    except Exception as fault:  # a generator that breaks costs its own row, not the suite
        row["reason"] = f"{type(fault).__name__}: {_words(fault)}"
        return row
    found = open_sides(peers, contents)
    _race(row, mine, found, contents, settings)
    row |= {
        "correct": error <= 1.0,
        "error": round(error, 4),
        "calls_per_run": copies,
        "working_set_bytes": None,
        "schedule": sides[mine].schedule,
        "form": mine.form,
        "trials": forms[0].trials,
        "peer_notes": {stack: "; ".join(words) for stack, words in found.notes.items()},
        "peer_bound": f"{peers.slack:g} times {peers.bound_note}",
    }
    _roofline(row, contents, finder.place.machine)
    if error > 1.0:
        row["reason"] = f"wrong_output: error {error:.3g} times the bound"
    return row


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _empty(case: Case) -> Row:
    """A row for a case of which nothing is known yet: as it stands, a failure."""
    inputs = case.operator.by_role("input")
    dtypes = sorted({t.dtype for t in (*inputs, *case.operator.by_role("weight"))} - {"int64"})
    return {
        "suite": "ops",
        "name": case.name,
        "shape": dict(case.dims),
        "dtype": "+".join(dtypes) or "int64",
        "threads": 1,
        "ours_us": None,
        "peers": dict.fromkeys(STACKS),
        "best_peer": None,
        "ratio": None,
        "ratio_ci": None,
        "roofline_fraction": None,
        "correct": False,
        "class": "measured",
        "family": case.operator.family,
        "operator": case.operator.spec(),
        "reason": None,
    }


def _contents(case: Case, copies: int, peers: Peers, settings: Settings) -> Contents:
    return Contents(
        case.operator,
        case.dims,
        copies,
        np.random.default_rng(settings.seed),
        shared_weights=peers.shared_weights,
        fixed=peers.fixed,
    )


def _copies(case: Case, kernel: kernels.Kernel, peers: Peers, settings: Settings) -> int:
    """As many as make a run of ours last `RUN_US`, within `MOST_BYTES`."""
    few = 4
    contents = _contents(case, few, peers, settings)
    side = kernels.ours(kernel, contents, settings.work)
    each_us = float(np.min(race({"ours": side.run}, rounds=5, calls=3, seed=0)["ours"])) / few
    room = MOST_BYTES // max(operator_bytes(contents), _held_bytes(contents))
    return int(max(1, min(-(-RUN_US // max(each_us, 1e-3)), MOST_COPIES, room)))


def operator_bytes(contents: Contents) -> int:
    """Bytes that one copy touches, as the operator counts them."""
    return max(1, contents.operator.bytes_moved(contents.dims))


def _held_bytes(contents: Contents) -> int:
    """Bytes of buffers that every further copy takes; a copy need not touch all of its weights."""
    arrays = [*contents.inputs[0].values()]
    if len(contents.weights) == contents.copies:
        arrays += contents.weights[0].values()
    return sum(array.nbytes for array in arrays)


def _hot(contents: Contents, machine: Machine) -> int:
    """Bytes of common weights so small that they stay in the nearest cache."""
    common = len(contents.weights) == 1 and contents.copies > 1
    size = sum(array.nbytes for array in contents.weights[0].values())
    return size if common and size <= machine.l1d_bytes // 4 else 0


def _working_set(contents: Contents, hot: int = 0) -> int:
    return hot + contents.copies * (operator_bytes(contents) - hot)


def worst_error(side: Side, contents: Contents, peers: Peers | None = None) -> float:
    """Largest error of the side's next run over the operator's bound, over a few copies; over the
    bound that `peers` states for a stack.
    """
    side.refresh()
    side.run()
    worst = 0.0
    picked = np.unique(np.linspace(0, contents.copies - 1, CHECKED_COPIES).astype(int))
    results = side.results()
    for copy in map(int, picked):
        arrays = contents.arrays(copy)
        wanted = contents.operator.oracle(arrays, contents.dims)
        if peers is None or peers.bound is None:
            bound: Mapping[str, Array] = contents.operator.error_bound(arrays, contents.dims)
        else:
            bound = peers.bound(contents.operator, arrays)
        for name, value in wanted.items():
            worst = max(worst, _error(results[copy][name], value, bound[name]))
    return worst


def _error(got: object, want: object, bound: object) -> float:
    mine, right = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if mine.shape != right.shape:
        return float("inf")
    limit = np.broadcast_to(np.asarray(bound, np.float64), right.shape)
    gap = np.abs(mine - right)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(mine == right, 0.0, gap / limit)
    worst = float(ratio.max(initial=0.0))
    return worst if np.isfinite(ratio).all() else float("inf")


def open_sides(peers: Peers, contents: Contents) -> _Peering:
    """Every peer that can be opened and is right; the fastest form of each stack."""
    found = _Peering()
    tried: dict[str, list[Side]] = {stack: [] for stack in STACKS}
    listed = openers(peers, contents)
    for stack in STACKS:
        if all(stack != name for name, _, _ in listed):
            found.refuse(stack, "", "has no such operator")
    for stack, form, opener in listed:
        try:
            side = opener()
            error = worst_error(side, contents, peers)
        except ImportError:
            found.notes[stack] = ["not installed"]
            continue
        except Exception as error_text:  # each stack has errors of its own; all mean the same here
            found.refuse(stack, form, f"refused: {_words(error_text)[:160]}")
            continue
        if error > peers.slack:
            found.refuse(stack, form, f"wrong: error {error:.3g} times the bound")
            continue
        tried[stack].append(side)
    for sides in tried.values():
        if sides:
            found.sides.append(_fastest(sides))
    return found


def _fastest(sides: list[Side]) -> Side:
    """The form to race, ours or a stack's: timed now, apart from the race that counts."""
    if len(sides) == 1:
        return sides[0]
    by_name = {side.name: side for side in sides}
    times = race({name: side.run for name, side in by_name.items()}, rounds=9, calls=3, seed=0)
    return by_name[min(times, key=lambda name: float(np.median(times[name])))]


def _race(row: Row, mine: Side, found: _Peering, contents: Contents, settings: Settings) -> None:
    sides = {"ours": mine, **{side.stack: side for side in found.sides}}
    rounds, calls = (7, 3) if settings.quick else (25, 5)

    def fresh() -> None:
        contents.refresh()
        for side in sides.values():
            side.refresh()

    times = race(
        {name: side.run for name, side in sides.items()},
        rounds=rounds,
        calls=calls,
        seed=settings.seed,
        before_round=fresh,
    )
    per_copy: dict[str, Times] = {name: spent / contents.copies for name, spent in times.items()}
    own = per_copy.pop("ours")
    medians = {name: float(np.median(spent)) for name, spent in per_copy.items()}
    row["ours_us"] = round(float(np.median(own)), 3)
    row["peers"] = {
        stack: round(medians[stack], 3) if stack in medians else None for stack in STACKS
    }
    row["peer_forms"] = {side.stack: side.form for side in found.sides if side.form}
    if not medians:
        return
    best = min(medians, key=lambda name: medians[name])
    ratio, low, high = ratio_interval(per_copy[best], own, seed=settings.seed)
    row["best_peer"] = best
    row["ratio"] = round(ratio, 3)
    row["ratio_ci"] = [round(low, 3), round(high, 3)]


def _roofline(row: Row, contents: Contents, machine: Machine) -> None:
    hot = _hot(contents, machine)
    size = row["working_set_bytes"] = _working_set(contents, hot)
    ours = row["ours_us"]
    top = roof.roof(contents.operator, contents.dims, size, machine, hot=hot)
    if top is None or not isinstance(ours, float):
        return
    row["roofline_fraction"] = round(top.least_us / ours, 3)
    row["roof"] = {"gflops": round(top.gflops, 1), "gbps": top.gbps, "level": top.level}
