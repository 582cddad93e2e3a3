"""The measurement plan as data.

In: the choices both parties and the auditor sign before the first run.
Out: a frozen record, its canonical digest, and the key two arms must share to be comparable.
One plan has one document: `ignition.plan.v1` where that can say it, which knows sentence embeddings
and a claim only; `ignition.plan.v2` for everything else. So what was signed keeps its digest.
Never here: a choice made after a candidate was seen; a float.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast

from metering.canonical import digest
from metering.decimals import parse_decimal, to_text
from metering.fields import Fields, check_zone
from metering.plan.accuracy_floor import (
    FLOOR_OF_TASK,
    AccuracyFloor,
    CosineFloor,
    floor_from_json,
    floor_json,
    kind,
)
from metering.plan.scenario_bounds import Bounds, bounds_from_json, bounds_json, check_bounds
from metering.refusal import Refusal

__all__ = ["METHOD_VERSION", "V1", "V2", "MeasurementPlan", "Seeds", "SweepSpace"]

V1, V2 = "ignition.plan.v1", "ignition.plan.v2"

METHOD_VERSION = "ignition-method-3"
"""Names the formulas of this release. Changing any formula changes this name."""

Option = Literal["A", "B", "C", "D"]
OPTIONS = ("A", "B", "C", "D")
SCENARIOS = ("Offline", "SingleStream", "MultiStream", "Server")
ARRANGEMENTS = ("padded", "single", "grouped", "ragged")
MINIMUM_PAIRS = 6
FULL_PAIRS = 10
FULL_RUN_SECONDS = 60


@dataclass(frozen=True)
class Seeds:
    """Seeds fixed in advance. 64-bit values, so JSON carries them as text."""

    order: int
    qsl: int
    sample_index: int
    schedule: int

    def __post_init__(self) -> None:
        for name in ("order", "qsl", "sample_index", "schedule"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
                raise Refusal(f"plan.seeds.{name}", repr(value), "a whole number below 2**64")

    def to_json(self) -> dict[str, object]:
        """JSON object of decimal text."""
        return {
            "order": str(self.order),
            "qsl": str(self.qsl),
            "sample_index": str(self.sample_index),
            "schedule": str(self.schedule),
        }

    @classmethod
    def from_json(cls, value: object) -> Seeds:
        """Inverse of `to_json`."""
        fields = Fields(value, "plan.seeds")
        seeds = cls(
            order=_seed(fields, "order"),
            qsl=_seed(fields, "qsl"),
            sample_index=_seed(fields, "sample_index"),
            schedule=_seed(fields, "schedule"),
        )
        fields.finish()
        return seeds


def _seed(fields: Fields, name: str) -> int:
    text = fields.text(name)
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise Refusal(f"plan.seeds.{name}", repr(text), "a whole number below 2**64 as text")
    return int(text)


@dataclass(frozen=True)
class SweepSpace:
    """Stock configurations the baseline is the best of: the product of all five lists."""

    stacks: tuple[str, ...]
    threads: tuple[int, ...]
    arrangements: tuple[str, ...]
    batches: tuple[int, ...]
    graph_optimizations: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("stacks", "threads", "arrangements", "batches", "graph_optimizations"):
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values or len(set(values)) != len(values):
                raise Refusal(f"plan.sweep.{name}", values, "at least one value, each once")
        for name in ("threads", "batches"):
            if any(value < 1 for value in getattr(self, name)):
                raise Refusal(f"plan.sweep.{name}", getattr(self, name), "whole numbers above 0")
        unknown = [value for value in self.arrangements if value not in ARRANGEMENTS]
        if unknown:
            raise Refusal("plan.sweep.arrangements", unknown, "of " + ", ".join(ARRANGEMENTS))

    def to_json(self) -> dict[str, object]:
        """JSON object of five lists."""
        return {
            "stacks": list(self.stacks),
            "threads": list(self.threads),
            "arrangements": list(self.arrangements),
            "batches": list(self.batches),
            "graph_optimizations": list(self.graph_optimizations),
        }

    @classmethod
    def from_json(cls, value: object) -> SweepSpace:
        """Inverse of `to_json`."""
        fields = Fields(value, "plan.sweep")
        space = cls(
            stacks=fields.texts("stacks"),
            threads=fields.integers("threads"),
            arrangements=fields.texts("arrangements"),
            batches=fields.integers("batches"),
            graph_optimizations=fields.texts("graph_optimizations"),
        )
        fields.finish()
        return space


@dataclass(frozen=True)
class MeasurementPlan:
    """How baseline and uplift are measured. Units: seconds, pairs, cores by number.

    `option` is the IPMVP option (B: measured uplift times metered volume). `minimum_effect` and
    `held_out_fraction` are fractions. `short_run` marks a plan whose runs are shorter than a full
    measurement needs: every document made from it says so. `task` says what a sample and an answer
    are, `accuracy_floor` what answers are held to, `bounds` what Server and MultiStream need more.
    `claim` false plans a baseline and no candidate: the model goes on at its baseline, uplift 1.0,
    and no family of claims counts it.
    """

    plan_id: str
    method_version: str
    option: Option
    scenario: str
    precision: str
    cores: tuple[int, ...]
    run_seconds: int
    pairs: int
    aa_pairs: int
    minimum_effect: Decimal
    accuracy_floor: AccuracyFloor
    seeds: Seeds
    sweep: SweepSpace
    held_out_fraction: Decimal
    search_budget_s: int
    short_run: bool
    zone: str
    rounding: str
    task: str = "embedding"
    bounds: Bounds | None = None
    claim: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "cores", tuple(self.cores))
        for name in ("minimum_effect", "held_out_fraction"):
            object.__setattr__(self, name, parse_decimal(getattr(self, name), f"plan.{name}"))
        self._check_words()
        self._check_numbers()
        self._check_task()

    def _check_words(self) -> None:
        for name in ("plan_id", "method_version", "precision"):
            if not getattr(self, name):
                raise Refusal(f"plan.{name}", "nothing", "text that is not empty")
        if self.option not in OPTIONS:
            raise Refusal("plan.option", repr(self.option), "one of " + ", ".join(OPTIONS))
        if self.scenario not in SCENARIOS:
            raise Refusal("plan.scenario", repr(self.scenario), "one of " + ", ".join(SCENARIOS))
        if self.rounding != "ROUND_HALF_UP":
            raise Refusal("plan.rounding", repr(self.rounding), "ROUND_HALF_UP")
        check_zone(self.zone, "plan.zone")

    def _check_numbers(self) -> None:
        if not self.cores or len(set(self.cores)) != len(self.cores) or min(self.cores) < 0:
            raise Refusal("plan.cores", self.cores, "core numbers from 0, each once, at least one")
        pairs = MINIMUM_PAIRS if self.short_run else FULL_PAIRS
        seconds = 1 if self.short_run else FULL_RUN_SECONDS
        floors = {"pairs": pairs, "aa_pairs": pairs, "run_seconds": seconds, "search_budget_s": 0}
        for name, floor in floors.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < floor:
                raise Refusal(
                    f"plan.{name}", value, f"a whole number of at least {floor}",
                    "a shorter plan must be marked short_run" if not self.short_run else "",
                )  # fmt: skip
        for name in ("minimum_effect", "held_out_fraction"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise Refusal(f"plan.{name}", to_text(value), "a fraction from 0 to below 1")

    def _check_task(self) -> None:
        if self.task not in FLOOR_OF_TASK:
            raise Refusal("plan.task", repr(self.task), "one of " + ", ".join(FLOOR_OF_TASK))
        wanted = FLOOR_OF_TASK[self.task]
        if kind(self.accuracy_floor) != wanted:
            raise Refusal(
                "plan.accuracy_floor.kind", kind(self.accuracy_floor),
                f"{wanted}, which the task {self.task} has",
            )  # fmt: skip
        check_bounds(self.scenario, self.bounds, demanded=self.schema == V2)

    @property
    def schema(self) -> str:
        """The document this plan is written as."""
        first = self.task == "embedding" and self.bounds is None and self.claim
        return V1 if first else V2

    @property
    def accuracy_floor_cosine(self) -> Decimal:
        """The floor of a plan of embeddings. Raises Refusal for another task."""
        if not isinstance(self.accuracy_floor, CosineFloor):
            raise Refusal(
                "plan.task", self.task, "embedding, the only task that has a cosine",
                "this document words embeddings alone",
            )  # fmt: skip
        return self.accuracy_floor.cosine

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes: what the parties sign."""
        return digest(self.to_json())

    @property
    def comparability_key(self) -> str:
        """Digest of what both arms of a comparison must share."""
        return digest(
            {
                "method_version": self.method_version,
                "scenario": self.scenario,
                "precision": self.precision,
                "cores": list(self.cores),
                "run_seconds": self.run_seconds,
                **self._task_json(),
            }
        )

    def _task_json(self) -> dict[str, object]:
        """Task, floor and bounds as the document of this plan has them."""
        if self.schema == V1:
            return {"accuracy_floor_cosine": to_text(self.accuracy_floor_cosine)}
        return {
            "task": self.task,
            "accuracy_floor": floor_json(self.accuracy_floor),
            "bounds": bounds_json(self.bounds),
        }

    def to_json(self) -> dict[str, object]:
        """JSON object, ready for `canonical.dumps`."""
        return {
            "schema": self.schema,
            "plan_id": self.plan_id,
            "method_version": self.method_version,
            "option": self.option,
            "scenario": self.scenario,
            "precision": self.precision,
            "cores": list(self.cores),
            "run_seconds": self.run_seconds,
            "pairs": self.pairs,
            "aa_pairs": self.aa_pairs,
            "minimum_effect": to_text(self.minimum_effect),
            **self._task_json(),
            **({} if self.schema == V1 else {"claim": self.claim}),
            "seeds": self.seeds.to_json(),
            "sweep": self.sweep.to_json(),
            "held_out_fraction": to_text(self.held_out_fraction),
            "search_budget_s": self.search_budget_s,
            "short_run": self.short_run,
            "zone": self.zone,
            "rounding": self.rounding,
        }

    @classmethod
    def from_json(cls, value: object) -> MeasurementPlan:
        """Inverse of `to_json`; refuses unknown and missing fields."""
        fields = Fields(value, "plan")
        schema = fields.text("schema", [V1, V2])
        plan = cls(
            plan_id=fields.text("plan_id"),
            method_version=fields.text("method_version"),
            option=cast("Option", fields.text("option", OPTIONS)),
            scenario=fields.text("scenario"),
            precision=fields.text("precision"),
            cores=fields.integers("cores"),
            run_seconds=fields.integer("run_seconds"),
            pairs=fields.integer("pairs"),
            aa_pairs=fields.integer("aa_pairs"),
            minimum_effect=fields.decimal("minimum_effect"),
            **_task_fields(fields, schema),
            seeds=Seeds.from_json(fields.any("seeds")),
            sweep=SweepSpace.from_json(fields.any("sweep")),
            held_out_fraction=fields.decimal("held_out_fraction"),
            search_budget_s=fields.integer("search_budget_s"),
            short_run=fields.boolean("short_run"),
            zone=fields.text("zone"),
            rounding=fields.text("rounding"),
        )
        fields.finish()
        if plan.schema != schema:
            raise Refusal("plan.schema", schema, f"{plan.schema}, which says all of this plan")
        return plan


def _task_fields(fields: Fields, schema: str) -> dict[str, Any]:
    """What the two documents say differently about task, floor, bounds and claim."""
    if schema == V1:
        return {"accuracy_floor": CosineFloor(fields.decimal("accuracy_floor_cosine"))}
    scenario = fields.text("scenario", SCENARIOS)
    bounds = bounds_from_json(fields.any("bounds"), scenario)
    check_bounds(scenario, bounds, demanded=True)
    return {
        "task": fields.text("task"),
        "accuracy_floor": floor_from_json(fields.any("accuracy_floor")),
        "bounds": bounds,
        "claim": fields.boolean("claim"),
    }
