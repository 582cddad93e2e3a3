"""Paired LoadGen runs: both arms in fresh processes, close in time, in a random order per pair.

In: two specs that differ only in the system, the number of pairs and a logged seed. Out: a folder
with ``pairs.json`` and ``runs/<run id>/``, and :class:`PairedRuns`. The number of pairs is fixed in
advance; a run that is not VALID ends the measurement and stays on record, so nobody can roll again
until a result pleases. A killed measurement goes on at the first pair that is not whole.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering import energy
from metering.loadgen.files import write_json
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec, SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verify import EvidenceError, load_run, load_spec, stored
from metering.uplift.account import Turn, check_turns
from metering.uplift.conditions import Conditions, watched
from metering.uplift.estimate import MINIMUM_PAIRS, UpliftEstimate, estimate
from metering.uplift.order import ARMS, WARM_UP_PAIRS, Arm, draw_order

PAIRS, RUNS = "pairs.json", "runs"
SCHEMA = "ignition.pairs.v1"
MOST_ABANDONED = 5


class PairsRefused(ValueError):
    """A pairing that cannot start or go on; the message says why."""


@dataclass(frozen=True)
class Pair:
    """Two runs, back to back; ``first`` says which arm ran first.

    ``conditions`` are those of base and other; None in records of the first method.
    """

    pair: int
    warm_up: bool
    first: Arm
    base: RunResult
    other: RunResult
    conditions: tuple[Conditions, Conditions] | None = None

    @property
    def log_ratio(self) -> float:
        """log(other / base) of the primary metric, larger is better."""
        return self.other.log_metric() - self.base.log_metric()


@dataclass(frozen=True)
class PairedRuns:
    """A measurement, whole or cut short. ``planned`` counts the pairs after the warm-up pair.

    ``resumed`` names the pairs before which it was taken up again without an attempt cut off.
    """

    seed: int
    planned: int
    base: SutSpec
    other: SutSpec
    base_spec: RunSpec
    other_spec: RunSpec
    order: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    abandoned: tuple[str, ...]
    resumed: tuple[int, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Why nothing may be concluded from these runs; empty when complete."""
        found = [
            f"run {result.run_id}: {result.state}: {'; '.join(result.reasons)}"
            for pair in self.pairs
            for result in (pair.base, pair.other)
            if not result.valid
        ]
        wanted = self.planned + WARM_UP_PAIRS
        if not found and len(self.pairs) < wanted:
            found.append(f"only {len(self.pairs)} of {wanted} pairs were measured")
        stops = len(self.abandoned) + len(self.resumed)
        if stops > MOST_ABANDONED:
            found.append(
                f"{stops} stops and attempts cut off, wanted at most {MOST_ABANDONED}: "
                "cutting off at will would be choosing"
            )
        return tuple(found)

    @property
    def complete(self) -> bool:
        return not self.faults

    def log_ratios(self) -> tuple[float, ...]:
        """One per pair, the warm-up pair left out. Raises ValueError unless complete."""
        if not self.complete:
            raise ValueError("; ".join(self.faults))
        return tuple(pair.log_ratio for pair in self.pairs if not pair.warm_up)

    def estimate(self) -> UpliftEstimate:
        return estimate(self.log_ratios())


def measure_pairs(
    base: RunSpec,
    other: RunSpec,
    *,
    pairs: int,
    seed: int,
    out: Path,
    on_pair: Callable[[Pair], None] | None = None,
    free: Collection[str] = (),
) -> PairedRuns:
    """Measure one warm-up pair and ``pairs`` counted pairs in ``out``, or go on with what is there.

    Both specs must agree in everything but run id, system and the fields in ``free`` (see
    ``loadgen.matched``). Stops early, without an exception, at a run that is not VALID;
    ``PairedRuns.faults`` then says so. Raises PairsRefused when the arms are not comparable or
    ``out`` holds another measurement.
    """
    _check_arms(base, other, pairs, free)
    order = draw_order(seed, pairs + WARM_UP_PAIRS)
    runs = out / RUNS
    runs.mkdir(parents=True, exist_ok=True)
    document = _open_document(base, other, pairs, seed, order, out)
    resuming = len(document["pairs"]) > 0
    counter, _ = energy.discover()
    while True:
        done = _load_pairs(document, out)
        if len(done) == len(order) or any(not p.base.valid or not p.other.valid for p in done):
            return _paired(document, done)
        number = len(done)
        if resuming and document["started"] is None:
            # The time that passed since the last pair must not look like a run that was dropped.
            document["resumed"] = [*document.get("resumed", []), number]
        resuming = False
        attempt = _begin_attempt(document, out, number)
        first = order[number]
        second = ARMS[1 - ARMS.index(first)]
        results, seen = {}, {}
        for arm in (first, second):
            spec = base if arm == "base" else other
            run_id = f"{out.name}-p{number:02d}-a{attempt}-{arm}"
            spec = dataclasses.replace(spec, run_id=run_id)
            results[arm], seen[arm] = watched(
                spec.cores, functools.partial(run, spec, runs / run_id), counter
            )
        entry = {
            "pair": number,
            "warm_up": number < WARM_UP_PAIRS,
            "first": first,
            "base": results["base"].run_id,
            "other": results["other"].run_id,
            "conditions": {arm: seen[arm].to_dict() for arm in ARMS},
        }
        document["pairs"].append(entry)
        document["started"] = None
        write_json(out / PAIRS, document)
        if on_pair is not None:
            on_pair(_pair(entry, out))


def load_paired(out: Path, free: Collection[str] = ()) -> PairedRuns:
    """A stored measurement, recomputed from its logs and held to its own rules.

    Raises EvidenceError when a run fails verification, the order is not the one the seed draws,
    the arms differ in more than the system and the fields in ``free``, times run backwards or leave
    room for a dropped run, or a folder is not accounted for.
    """
    document = _read_document(out)
    try:
        seed, planned = int(document["seed"]), int(document["planned"])
        order = tuple(document["order"])
        expected = draw_order(seed, planned + WARM_UP_PAIRS)
        if order != expected or planned < MINIMUM_PAIRS:
            raise EvidenceError(f"{out.name}/{PAIRS}: order is not what seed {seed} draws")
        done = _load_pairs(document, out)
        paired = _paired(document, done)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"{out.name}/{PAIRS}: not a pairing ({error!r})") from error
    _check_accounted(paired, out, free)
    return paired


def sizing(out: Path) -> dict[str, Any] | None:
    """The size fields a measurement in ``out`` was begun with; None when there is none yet."""
    if not (out / PAIRS).is_file():
        return None
    spec = RunSpec.from_dict(_read_document(out)["base_spec"])
    names = ("min_duration_ms", "target_qps", "min_query_count", "wall_limit_s")
    return {name: getattr(spec, name) for name in names}


def differing(base: RunSpec, other: RunSpec, free: Collection[str]) -> list[str]:
    """Fields in which two arms differ, the system and those in ``free`` left out."""
    left, right = base.comparable(), other.comparable()
    return sorted(name for name in left if left[name] != right[name] and name not in free)


def _check_arms(base: RunSpec, other: RunSpec, pairs: int, free: Collection[str]) -> None:
    if pairs < MINIMUM_PAIRS:
        raise PairsRefused(f"pairs: got {pairs}, wanted at least {MINIMUM_PAIRS}")
    different = differing(base, other, free)
    if different:
        raise PairsRefused(
            f"the arms differ in {', '.join(different)}; only the system may differ (use matched)"
        )
    if "null" in (base.sut.stack, other.sut.stack):
        raise PairsRefused("sut.stack: null computes nothing and is no arm of a comparison")
    if base.mode != "performance":
        raise PairsRefused(f"mode: got {base.mode}, wanted performance")


def _open_document(
    base: RunSpec, other: RunSpec, pairs: int, seed: int, order: tuple[Arm, ...], out: Path
) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "schema": SCHEMA,
        "seed": str(seed),
        "planned": pairs,
        "order": list(order),
        "base_spec": base.recorded().to_dict(),
        "other_spec": other.recorded().to_dict(),
    }
    if (out / PAIRS).is_file():
        document = _read_document(out)
        different = sorted(name for name in wanted if document.get(name) != wanted[name])
        if different:
            raise PairsRefused(
                f"out: {out} holds a measurement with another {', '.join(different)}; "
                "use a new folder"
            )
        return document
    document = {**wanted, "pairs": [], "abandoned": [], "resumed": [], "started": None}
    write_json(out / PAIRS, document)
    return document


def _begin_attempt(document: dict[str, Any], out: Path, number: int) -> int:
    """Log an attempt before it starts; one that was cut off is put on record and cleared away."""
    started = document["started"]
    attempt = 0
    if started is not None:
        attempt = started["attempt"] + 1
        document["abandoned"].append(f"pair {number} attempt {started['attempt']}")
        for arm in ARMS:
            folder = out / RUNS / f"{out.name}-p{number:02d}-a{started['attempt']}-{arm}"
            if folder.exists():
                shutil.rmtree(folder)
    document["started"] = {"pair": number, "attempt": attempt}
    write_json(out / PAIRS, document)
    return attempt


def _read_document(out: Path) -> dict[str, Any]:
    try:
        document = json.loads((out / PAIRS).read_bytes())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{out.name}/{PAIRS}: cannot be read ({error})") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise EvidenceError(f"{out.name}/{PAIRS}: not a document of schema {SCHEMA}")
    return document


def _pair(entry: Mapping[str, Any], out: Path) -> Pair:
    results = {}
    for arm in ARMS:
        run_id = entry[arm]
        if not isinstance(run_id, str) or Path(run_id).name != run_id:
            raise EvidenceError(f"{out.name}/{PAIRS}: {run_id!r} is not a run id")
        results[arm] = load_run(out / RUNS / run_id)
        if results[arm].run_id != run_id:
            raise EvidenceError(f"{out.name}/{RUNS}/{run_id}: holds another run")
    seen = entry.get("conditions")
    base, other = (None if seen is None else Conditions.from_dict(seen[arm]) for arm in ARMS)
    return Pair(
        pair=entry["pair"],
        warm_up=entry["warm_up"],
        first=entry["first"],
        base=results["base"],
        other=results["other"],
        conditions=(base, other) if base and other else None,
    )


def _load_pairs(document: Mapping[str, Any], out: Path) -> tuple[Pair, ...]:
    """The pairs on record, each run re-judged and its spec held to the arm's."""
    specs = {arm: RunSpec.from_dict(document[f"{arm}_spec"]) for arm in ARMS}
    # Digests are filled in by the run; an arm that names none is held to its first run's.
    found = []
    for number, entry in enumerate(document["pairs"]):
        pair = _pair(entry, out)
        if (pair.pair, pair.warm_up) != (number, number < WARM_UP_PAIRS):
            raise EvidenceError(f"{out.name}/{PAIRS}: pair {number} is out of place")
        if pair.first != document["order"][number]:
            raise EvidenceError(f"{out.name}/{PAIRS}: pair {number} ran in the wrong order")
        for arm in ARMS:
            result: RunResult = getattr(pair, arm)
            spec = load_spec(out / RUNS / result.run_id)
            specs[arm] = hold_arm(specs[arm], spec, f"{out.name}/{RUNS}/{result.run_id}")
        found.append(pair)
    return tuple(found)


def hold_arm(arm: RunSpec, spec: RunSpec, where: str) -> RunSpec:
    """``arm`` with the digests of ``spec``; raises unless they agree in everything said so far."""
    filled = {
        name: getattr(spec, name)
        for name in ("model_sha256", "samples_sha256", "package_sha256", "library_size")
        if not getattr(arm, name)
    }
    expected = dataclasses.replace(arm, run_id=spec.run_id, **filled)
    if expected != spec:
        raise EvidenceError(f"{where}: its spec is not that of its arm")
    return expected


def _paired(document: Mapping[str, Any], pairs: tuple[Pair, ...]) -> PairedRuns:
    base = RunSpec.from_dict(document["base_spec"])
    other = RunSpec.from_dict(document["other_spec"])
    return PairedRuns(
        seed=int(document["seed"]),
        planned=int(document["planned"]),
        base=base.sut,
        other=other.sut,
        base_spec=base,
        other_spec=other,
        order=tuple(document["order"]),
        pairs=pairs,
        abandoned=tuple(document["abandoned"]),
        resumed=tuple(document.get("resumed", ())),
    )


def _check_accounted(paired: PairedRuns, out: Path, free: Collection[str]) -> None:
    listed = [r.run_id for pair in paired.pairs for r in (pair.base, pair.other)]
    present = {path.name for path in (out / RUNS).iterdir() if stored(path)}
    if len(set(listed)) != len(listed) or set(listed) != present:
        raise EvidenceError(f"{out.name}/{RUNS}: its folders are not the runs that {PAIRS} lists")
    turns = []
    for pair in paired.pairs:
        second = "other" if pair.first == "base" else "base"
        for arm, opens in ((pair.first, True), (second, False)):
            turns.append(Turn(pair.pair, arm, opens, getattr(pair, arm)))
    check_turns(turns, paired.abandoned, paired.resumed, out)
    if differing(paired.base_spec, paired.other_spec, free):
        raise EvidenceError(f"{out.name}/{PAIRS}: the arms differ in more than the system")
    for arm in ARMS:
        builds = {getattr(pair, arm).stack_digest for pair in paired.pairs}
        if len(builds) > 1:
            raise EvidenceError(f"{out.name}: the build of arm {arm} changed between runs")
