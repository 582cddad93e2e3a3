"""Paired measurement of held rates: each arm climbs one ladder in every pair, order drawn.

In: two Server specs that differ only in the system, their Offline rates, a number of pairs and a
seed. Out: a folder with ``held.json`` and ``runs/<run id>/``, and :class:`HeldPairs`. Every run of
every climb is kept, those that did not hold too: a baseline whose climb ended early would be held
back. A measurement that broke off stays as it is; another one needs a folder of its own.
Never here: money. Offline and SingleStream are what bills.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from metering.loadgen.calibrate import sized
from metering.loadgen.files import write_json
from metering.loadgen.result import RunResult
from metering.loadgen.spec import RunSpec, SpecError, SutSpec
from metering.loadgen.supervisor import run
from metering.loadgen.verify import EvidenceError, load_run, load_spec
from metering.uplift.estimate import MINIMUM_PAIRS
from metering.uplift.held_rate import Bracket, HeldRate, bracket, climb, held_rate, ladder
from metering.uplift.order import ARMS, WARM_UP_PAIRS, draw_order
from metering.uplift.pairs import RUNS, PairsRefused, differing, hold_arm

HELD = "held.json"
SCHEMA = "ignition.held-rate.v1"


@dataclass(frozen=True)
class HeldPairs:
    """``pairs``: (baseline, candidate) of each counted pair; ``fault`` says why there are too few.

    ``held_runs``: the runs of each arm at the rungs that held, by arm.
    """

    base: SutSpec
    other: SutSpec
    seed: int
    planned: int
    run_seconds: int
    target_latency_ns: int
    pairs: tuple[tuple[Bracket, Bracket], ...]
    held_runs: Mapping[str, tuple[str, ...]]
    fault: str

    def estimate(self) -> HeldRate:
        """Raises ValueError unless every planned pair is there."""
        if self.fault:
            raise ValueError(self.fault)
        return held_rate(self.pairs)


def measure_held(
    base: RunSpec,
    other: RunSpec,
    offline_rates: tuple[float, float],
    *,
    run_seconds: int,
    pairs: int,
    seed: int,
    out: Path,
    on_climb: Callable[[int, str, float | None], None] | None = None,
) -> HeldPairs:
    """Measure one warm-up pair and ``pairs`` counted pairs in the new folder ``out``.

    ``on_climb`` is told pair, arm and the rate that held. Ends at the first run that is neither
    VALID nor INVALID, and at a climb that ends at an end of the ladder. Raises PairsRefused.
    """
    different = differing(base, other, ("max_async_queries",))
    if different or base.scenario != "Server" or pairs < MINIMUM_PAIRS:
        raise PairsRefused(
            f"held rates: arms that differ in {different}, {base.scenario}, {pairs} pairs; wanted "
            f"only the system to differ, Server, at least {MINIMUM_PAIRS} pairs"
        )
    if out.exists():
        raise PairsRefused(f"out: {out} is there already; choose a new folder")
    rates = ladder(max(offline_rates), min(offline_rates))
    specs = {"base": base, "other": other}
    order = draw_order(seed, pairs + WARM_UP_PAIRS)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "seed": str(seed),
        "planned": pairs,
        "order": list(order),
        "run_seconds": run_seconds,
        "rates": [f"{rate:.6g}" for rate in rates],
        **{f"{arm}_spec": specs[arm].recorded().to_dict() for arm in ARMS},
        "pairs": [],
    }
    (out / RUNS).mkdir(parents=True)
    for number, first in enumerate(order):
        entry: dict[str, Any] = {}
        ends = False
        for arm in (first, ARMS[1 - ARMS.index(first)]):
            climbed: list[list[Any]] = []
            whole = _climb(specs[arm], rates, run_seconds, (out, number, arm), climbed)
            entry[arm] = climbed
            ends = ends or whole in (-1, len(rates) - 1)
            if on_climb is not None:
                on_climb(number, arm, None if whole < 0 else rates[whole])
        document["pairs"].append(entry)
        write_json(out / HELD, document)
        if ends or any(state not in _JUDGED for arm in ARMS for _, _, state in entry[arm]):
            break
    return load_held(out)


_JUDGED = ("VALID", "INVALID")


def _climb(
    spec: RunSpec,
    rates: tuple[float, ...],
    run_seconds: int,
    place: tuple[Path, int, str],
    climbed: list[list[Any]],
) -> int:
    out, number, arm = place

    def holds(rung: int) -> bool:
        if climbed and climbed[-1][2] not in _JUDGED:
            return False  # Nothing is asked any more; the last state ends the measurement.
        asked = _at(spec, rates[rung], run_seconds, f"{out.name}-p{number:02d}-{arm}-r{rung:03d}")
        result = run(asked, out / RUNS / asked.run_id)
        climbed.append([rung, asked.run_id, result.state])
        return result.valid

    return climb(len(rates), holds)[0]


def _at(spec: RunSpec, rate: float, run_seconds: int, run_id: str) -> RunSpec:
    return dataclasses.replace(sized(spec, rate, run_seconds), run_id=run_id)


def load_held(out: Path) -> HeldPairs:
    """A stored measurement, every run judged again from its logs. Raises EvidenceError.

    The ladder, the order and each run's settings must follow from what the document was begun
    with, each climb must ask the rungs that its answers lead to, and no run may be left over.
    """
    try:
        document = json.loads((out / HELD).read_bytes())
        if document["schema"] != SCHEMA:
            raise ValueError(f"schema {document['schema']!r}")
        rates = tuple(float(text) for text in document["rates"])
        seed, planned = int(document["seed"]), int(document["planned"])
        run_seconds = int(document["run_seconds"])
        specs = {arm: RunSpec.from_dict(document[f"{arm}_spec"]) for arm in ARMS}
        entries = [
            {arm: [(int(rung), str(name)) for rung, name, _ in entry[arm]] for arm in ARMS}
            for entry in document["pairs"]
        ]
        order = tuple(document["order"])
    except (OSError, KeyError, TypeError, ValueError, SpecError) as error:
        raise EvidenceError(f"{out.name}/{HELD}: cannot be used ({error!r})") from error
    if order != draw_order(seed, planned + WARM_UP_PAIRS) or planned < MINIMUM_PAIRS:
        raise EvidenceError(f"{out.name}/{HELD}: order is not what seed {seed} draws")
    if len(entries) > len(order) or list(rates) != sorted(set(rates)):
        raise EvidenceError(f"{out.name}/{HELD}: more pairs than planned, or rates out of order")
    named = [name for entry in entries for arm in ARMS for _, name in entry[arm]]
    if sorted(named) != sorted(path.name for path in (out / RUNS).iterdir()):
        raise EvidenceError(f"{out.name}/{RUNS}: its folders are not the runs {HELD} lists")
    if any(Path(name).name != name for name in named):
        raise EvidenceError(f"{out.name}/{HELD}: a run id is none")
    results = {name: load_run(out / RUNS / name) for name in named}
    _check_times(out, order, entries, results)
    return _judged(out, specs, rates, entries, (seed, planned, run_seconds), results)


def _check_times(
    out: Path,
    order: tuple[Any, ...],
    entries: list[dict[Any, list[tuple[int, str]]]],
    results: Mapping[str, RunResult],
) -> None:
    """Runs began in the order recorded: arm by arm as drawn, rung by rung as asked."""
    starts = [
        results[name].started_at
        for first, entry in zip(order, entries, strict=False)
        for arm in (first, ARMS[1 - ARMS.index(first)])
        for _, name in entry[arm]
    ]
    if starts != sorted(starts):
        raise EvidenceError(f"{out.name}: the runs did not start in the order recorded")


def _judged(
    out: Path,
    specs: dict[Any, RunSpec],
    rates: tuple[float, ...],
    entries: list[dict[Any, list[tuple[int, str]]]],
    terms: tuple[int, int, int],
    results: Mapping[str, RunResult],
) -> HeldPairs:
    seed, planned, run_seconds = terms
    fault = ""
    counted: list[tuple[Bracket, Bracket]] = []
    held_runs: dict[str, list[str]] = {arm: [] for arm in ARMS}
    builds: dict[str, set[str]] = {arm: set() for arm in ARMS}
    for number, entry in enumerate(entries):
        found = {}
        for arm in ARMS:
            states: dict[int, str] = {}
            for rung, name in entry[arm]:
                if not 0 <= rung < len(rates):
                    raise EvidenceError(f"{out.name}/{HELD}: {name!r} is no run of the ladder")
                spec = load_spec(out / RUNS / name)
                asked = _at(specs[arm], rates[rung], run_seconds, name)
                filled = hold_arm(asked, spec, f"{out.name}/{RUNS}/{name}")
                specs[arm] = dataclasses.replace(
                    specs[arm],
                    model_sha256=filled.model_sha256,
                    samples_sha256=filled.samples_sha256,
                    package_sha256=filled.package_sha256,
                    library_size=filled.library_size,
                )
                result = results[name]
                states[rung] = result.state
                builds[arm].add(result.stack_digest)
                if result.state not in _JUDGED:
                    fault = fault or f"run {name}: {result.state}: {'; '.join(result.reasons)}"
            if fault:
                continue
            found[arm] = _replayed(rates, states, [rung for rung, _ in entry[arm]], out)
            held_runs[arm] += [name for rung, name in entry[arm] if states[rung] == "VALID"]
        if fault:
            break
        try:
            both = bracket(rates, found["base"]), bracket(rates, found["other"])
        except ValueError as error:
            fault = f"pair {number}: {error}"
            break
        if number >= WARM_UP_PAIRS:
            counted.append(both)
    if any(len(found) > 1 for found in builds.values()):
        raise EvidenceError(f"{out.name}: the build of an arm changed between runs")
    if differing(specs["base"], specs["other"], ("max_async_queries",)):
        raise EvidenceError(f"{out.name}/{HELD}: the arms differ in more than the system")
    if not fault and len(counted) < planned:
        fault = f"only {len(counted)} of {planned} pairs were measured"
    return HeldPairs(
        base=specs["base"].sut,
        other=specs["other"].sut,
        seed=seed,
        planned=planned,
        run_seconds=run_seconds,
        target_latency_ns=specs["base"].target_latency_ns,
        pairs=tuple(counted),
        held_runs={arm: tuple(names) for arm, names in held_runs.items()},
        fault=fault,
    )


def _replayed(rates: tuple[float, ...], states: dict[int, str], asked: list[int], out: Path) -> int:
    """The answer of a climb, which must have asked just what its answers lead to."""
    try:
        found, path = climb(len(rates), lambda rung: states[rung] == "VALID")
    except KeyError as error:
        raise EvidenceError(f"{out.name}/{HELD}: a climb leaves out rung {error}") from error
    if list(path) != asked:
        raise EvidenceError(f"{out.name}/{HELD}: a climb asked {asked}, wanted {list(path)}")
    return found
