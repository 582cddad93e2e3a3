"""What one LoadGen run came to: the verdict, the figures, and the digests of the logs behind them.

In: the end state seen by the supervisor and the parsed detail log. Out: :class:`RunResult`, stored
as ``result.json`` beside the logs. A figure is kept only for a run that is VALID.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

State = Literal["VALID", "INVALID", "ERROR", "HUNG", "CRASHED", "SILENT"]


@dataclass(frozen=True)
class Latency:
    """Order statistics of the latency of a run's queries, in nanoseconds, as LoadGen logged them.

    The early-stopped percentiles are those of SingleStream (90th) and MultiStream (99th).
    """

    mean_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int
    early_stopping_p90_ns: int | None = None
    early_stopping_p99_ns: int | None = None

    def to_dict(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        if data["early_stopping_p99_ns"] is None:
            del data["early_stopping_p99_ns"]
        return data


@dataclass(frozen=True)
class TokenLatency:
    """Order statistics of one time over all answers of a run, in nanoseconds, as LoadGen logs."""

    mean_ns: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int


@dataclass(frozen=True)
class TokenFigures:
    """Generated tokens a second; time to first token and per output token outside Offline."""

    tokens_per_second: Decimal
    ttft: TokenLatency | None = None
    tpot: TokenLatency | None = None

    def to_dict(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        data["tokens_per_second"] = str(self.tokens_per_second)
        return {name: value for name, value in data.items() if value is not None}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenFigures:
        known: dict[str, Any] = {
            name: TokenLatency(**data[name]) for name in ("ttft", "tpot") if name in data
        }
        return cls(**{**data, **known, "tokens_per_second": Decimal(data["tokens_per_second"])})


@dataclass(frozen=True)
class RunResult:
    """One run's verdict. ``samples_per_second`` is None unless the run is VALID and timed."""

    run_id: str
    scenario: str
    mode: str
    state: State
    reasons: tuple[str, ...]
    samples_per_second: Decimal | None
    latency: Latency | None
    sample_count: int | None
    effective: Mapping[str, str]
    files: Mapping[str, str]
    spec_sha256: str
    started_at: str
    wall_s: float
    cpu_s: float
    load_average: tuple[float, float]
    signal: int | None = None
    loadgen_version: str = ""
    stack_version: str = ""
    stack_digest: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    tokens: TokenFigures | None = None

    @property
    def valid(self) -> bool:
        return self.state == "VALID"

    def log_metric(self) -> float:
        """Natural log of the primary metric, larger is better.

        Generation: tokens per second. Offline and Server: samples per second, in Server those
        completed. SingleStream and MultiStream: the early-stopped 90th and 99th percentile of
        latency, negated. Raises ValueError for a run that is not VALID.
        """
        rate, latency = self.samples_per_second, self.latency
        if self.state == "VALID" and self.tokens is not None:
            return math.log(self.tokens.tokens_per_second)
        if self.state == "VALID" and self.scenario in ("Offline", "Server") and rate:
            return math.log(rate)
        if self.state == "VALID" and latency is not None:
            multi = self.scenario == "MultiStream"
            early = latency.early_stopping_p99_ns if multi else latency.early_stopping_p90_ns
            if early:
                return -math.log(early)
        raise ValueError(f"run {self.run_id}: no primary metric, its state is {self.state}")

    def to_dict(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        # What came later is written only where there is something to say.
        del data["tokens"]
        if self.tokens is not None:
            data["tokens"] = self.tokens.to_dict()
        data["latency"] = None if self.latency is None else self.latency.to_dict()
        value = self.samples_per_second
        data["samples_per_second"] = None if value is None else str(value)
        data["reasons"] = list(self.reasons)
        data["load_average"] = [f"{load:.2f}" for load in self.load_average]
        data["wall_s"], data["cpu_s"] = f"{self.wall_s:.3f}", f"{self.cpu_s:.3f}"
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunResult:
        known = dict(data)
        value = known["samples_per_second"]
        known["samples_per_second"] = None if value is None else Decimal(str(value))
        latency = known["latency"]
        known["latency"] = None if latency is None else Latency(**latency)
        if "tokens" in known:
            known["tokens"] = TokenFigures.from_dict(known["tokens"])
        known["reasons"] = tuple(known["reasons"])
        known["load_average"] = tuple(float(load) for load in known["load_average"])
        known["wall_s"], known["cpu_s"] = float(known["wall_s"]), float(known["cpu_s"])
        return cls(**known)
