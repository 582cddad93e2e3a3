"""What one LoadGen run is asked to do: pure, frozen records that round-trip through JSON.

In: values chosen by a sweep, a pairing or a person. Out: :class:`RunSpec`, the only thing a child
process is given. Nothing here touches a clock, a process or LoadGen; a spec that cannot be run is
refused here, before a process exists.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

Scenario = Literal["Offline", "SingleStream", "MultiStream", "Server"]
Mode = Literal["performance", "accuracy"]
Arrangement = Literal["padded", "single", "grouped", "ragged"]
GraphOptimization = Literal["none", "basic", "extended", "all", "default"]
Task = Literal["embedding", "text_recognition", "generation"]
Precision = Literal["float32", "as_stored"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_SEED = 2**64 - 1
# A field that came later is written only where it is used: the digest of a spec from before stays.
_LATER: Mapping[str, Any] = MappingProxyType(
    {
        "task": "embedding",
        "max_new_tokens": 0,
        "end_token": None,
        "target_latency_ns": 0,
        "ttft_latency_ns": 0,
        "tpot_latency_ns": 0,
        "max_async_queries": 0,
        "max_duration_ms": 0,
    }
)
# Written as text, since two programs may print one float differently and break its digest.
_FRACTIONS = ("target_qps", "wall_limit_s", "stall_limit_s")


class SpecError(ValueError):
    """A field of a specification that cannot be run: the message names field, got and wanted."""


def _want(condition: bool, name: str, got: object, wanted: str) -> None:
    if not condition:
        raise SpecError(f"{name}: got {got!r}, wanted {wanted}")


def _integer(value: object, name: str, least: int, most: int = 2**63 - 1) -> None:
    _want(
        isinstance(value, int) and not isinstance(value, bool) and least <= value <= most,
        name,
        value,
        f"a whole number from {least} to {most}",
    )


@dataclass(frozen=True)
class SutSpec:
    """One system under test: a stack and every knob that changes what it does.

    ``batch`` is the number of samples handed over in one call; ``single`` means one by one.
    ``package`` is the folder of a kernel package, and only the stack ``kernelgen`` has one.
    ``precision`` is ``as_stored`` for a file whose own weights are narrower than float32.
    """

    stack: str
    threads: int = 1
    instances: int = 1
    arrangement: Arrangement = "padded"
    batch: int = 1
    graph_optimization: GraphOptimization = "all"
    precision: Precision = "float32"
    package: str | None = None

    def __post_init__(self) -> None:
        _want(isinstance(self.stack, str) and self.stack != "", "sut.stack", self.stack, "a name")
        _integer(self.threads, "sut.threads", 1, 1024)
        _integer(self.instances, "sut.instances", 1, 1024)
        _integer(self.batch, "sut.batch", 1, 1_000_000)
        _want(
            self.arrangement in get_args(Arrangement),
            "sut.arrangement",
            self.arrangement,
            " | ".join(get_args(Arrangement)),
        )
        _want(
            self.arrangement != "single" or self.batch == 1,
            "sut.batch",
            self.batch,
            "1, because the arrangement is single",
        )
        _want(
            self.graph_optimization in get_args(GraphOptimization),
            "sut.graph_optimization",
            self.graph_optimization,
            " | ".join(get_args(GraphOptimization)),
        )
        _want(
            self.precision in get_args(Precision),
            "sut.precision",
            self.precision,
            "float32, or as_stored; both arms of a comparison compute in the same",
        )
        _want(
            self.package is None or (isinstance(self.package, str) and self.package != ""),
            "sut.package",
            self.package,
            "a folder, or null",
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SutSpec:
        return cls(**_known_fields(cls, data, "sut"))


@dataclass(frozen=True)
class Seeds:
    """LoadGen's three seeds; the defaults are those of MLPerf Inference v6.1."""

    qsl: int = 2085463073848966840
    sample_index: int = 2747215439041700203
    schedule: int = 16159082839903944936

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _integer(getattr(self, item.name), f"seeds.{item.name}", 0, _MAX_SEED)

    def to_dict(self) -> dict[str, str]:
        """Seeds as text: they pass 2**53, where JSON numbers stop being exact."""
        return {item.name: str(getattr(self, item.name)) for item in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Seeds:
        known = _known_fields(cls, data, "seeds")
        try:
            return cls(**{name: int(value) for name, value in known.items()})
        except (TypeError, ValueError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(f"seeds: got {dict(data)!r}, wanted whole numbers as text") from error


@dataclass(frozen=True)
class RunSpec:
    """One LoadGen test in one child process.

    ``target_qps`` is samples per second: it sizes the Offline query (1.1 x target x duration), is
    the inverse of the expected latency in SingleStream and of an eighth of it in MultiStream, and
    the rate of arrival in Server. A Server run has a bound on its 99th percentile of latency,
    ``target_latency_ns``, or for generation the two bounds ``ttft_latency_ns`` and
    ``tpot_latency_ns``; it ends early with more than ``max_async_queries`` unanswered. No query is
    issued after ``max_duration_ms`` (0: no limit, which only Offline and SingleStream may have).
    ``min_query_count`` counts queries, of eight samples in MultiStream. LoadGen echoes six
    significant digits, so more than six are refused. ``cores`` are the logical CPUs the child may
    use; instance i of the system gets the i-th slice of ``sut.threads`` of them. Limits are in
    seconds and bytes: of one process and one file, and of all of a run's together.
    ``output`` names the model output that holds the embeddings; empty stands for the only float32
    output of rank two. ``warmup_ms`` bounds the untimed calls before the test starts.
    ``sampled_outputs`` is about how many outputs of a timed run LoadGen keeps, drawn at random, to
    compare with those of an accuracy run: a system that skips work only while it is timed is found
    out. ``task`` says what a sample and an answer are (see ``metering.stacks.system``); an answer
    of the task generation ends after ``max_new_tokens`` or with ``end_token``, null for no such
    token. ``library_size`` (samples in the query library) and the digests are filled in by ``run``
    from the files themselves.
    """

    run_id: str
    scenario: Scenario
    mode: Mode
    sut: SutSpec
    model: str
    samples: str
    min_duration_ms: int
    target_qps: float
    min_query_count: int = 1
    seeds: Seeds = field(default_factory=Seeds)
    cores: tuple[int, ...] = (0,)
    wall_limit_s: float = 120.0
    stall_limit_s: float = 30.0
    memory_limit_bytes: int = 8 * 2**30
    file_limit_bytes: int = 512 * 2**20
    warmup_ms: int = 300
    output: str = ""
    sampled_outputs: int = 0
    library_size: int = 0
    model_sha256: str = ""
    samples_sha256: str = ""
    package_sha256: str = ""
    task: Task = "embedding"
    max_new_tokens: int = 0
    end_token: int | None = None
    target_latency_ns: int = 0
    ttft_latency_ns: int = 0
    tpot_latency_ns: int = 0
    max_async_queries: int = 0
    max_duration_ms: int = 0

    def __post_init__(self) -> None:
        _want(
            isinstance(self.run_id, str) and _RUN_ID.fullmatch(self.run_id) is not None,
            "run_id",
            self.run_id,
            "1-120 letters, digits, dots, dashes or underscores",
        )
        _want(
            self.scenario in get_args(Scenario),
            "scenario",
            self.scenario,
            " | ".join(get_args(Scenario)),
        )
        _want(self.mode in get_args(Mode), "mode", self.mode, " | ".join(get_args(Mode)))
        _want(
            isinstance(self.output, str), "output", self.output, "the name of an output, or empty"
        )
        for name in ("model", "samples"):
            value = getattr(self, name)
            _want(isinstance(value, str) and value != "", name, value, "a non-empty text")
        _integer(self.min_duration_ms, "min_duration_ms", 1, 24 * 3600 * 1000)
        _integer(self.min_query_count, "min_query_count", 1, 100_000_000)
        _integer(self.warmup_ms, "warmup_ms", 0, 600_000)
        _integer(self.sampled_outputs, "sampled_outputs", 0, 10_000)
        _integer(self.library_size, "library_size", 0, 100_000_000)
        _integer(self.memory_limit_bytes, "memory_limit_bytes", 2**28)
        _integer(self.file_limit_bytes, "file_limit_bytes", 2**20)
        for name in _FRACTIONS:
            value = getattr(self, name)
            _want(
                isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9,
                name,
                value,
                "a number above 0 and below 1e9",
            )
            _want(
                float(f"{value:.6g}") == value,
                name,
                value,
                "at most six significant digits, which is all LoadGen's log repeats",
            )
        _want(
            len(self.cores) > 0
            and len(set(self.cores)) == len(self.cores)
            and all(isinstance(core, int) and core >= 0 for core in self.cores),
            "cores",
            self.cores,
            "a list of different logical CPU numbers",
        )
        wanted = self.sut.threads * self.sut.instances
        _want(
            wanted <= len(self.cores),
            "sut.threads x sut.instances",
            wanted,
            f"at most {len(self.cores)}, the number of cores",
        )
        for name in ("model_sha256", "samples_sha256", "package_sha256"):
            value = getattr(self, name)
            _want(
                value == "" or _SHA256.fullmatch(value) is not None,
                name,
                value,
                "64 hex digits, or empty to have it filled in",
            )

        _want(self.task in get_args(Task), "task", self.task, " | ".join(get_args(Task)))
        self._want_generation()
        self._want_scenario()

    def _want_generation(self) -> None:
        if self.task != "generation":
            for name in ("max_new_tokens", "end_token"):
                value = getattr(self, name)
                _want(value == _LATER[name], name, value, f"{_LATER[name]}: no {self.task} has it")
            return
        # The time per output token has no meaning for an answer of one token.
        _integer(self.max_new_tokens, "max_new_tokens", 2, 1_000_000)
        if self.end_token is not None:
            _integer(self.end_token, "end_token", 0, 2**31 - 1)

    def _want_scenario(self) -> None:
        """Bounds and limits where the scenario has them, and nowhere else."""
        server, generation = self.scenario == "Server", self.task == "generation"
        for name, used in (
            ("target_latency_ns", server and not generation),
            ("ttft_latency_ns", server and generation),
            ("tpot_latency_ns", server and generation),
            ("max_async_queries", server),
        ):
            if used:
                # Without a limit an overloaded server queues for as long as it takes.
                _integer(getattr(self, name), name, 1, 10**13)
            else:
                unused = f"0: no {self.scenario} run of the task {self.task} has it"
                _want(getattr(self, name) == 0, name, getattr(self, name), unused)
        if self.scenario == "Offline":
            unused = "0: Offline issues one query, so nothing would look at it"
            _want(self.max_duration_ms == 0, "max_duration_ms", self.max_duration_ms, unused)
        elif self.max_duration_ms or self.scenario != "SingleStream":
            _integer(self.max_duration_ms, "max_duration_ms", self.min_duration_ms + 1, 10**9)
        if self.scenario == "MultiStream":
            _want(not generation, "scenario", self.scenario, "another: no task generation in it")

    def instance_cores(self, instance: int) -> tuple[int, ...]:
        """The cores of one instance: disjoint slices, in the order given."""
        start = instance * self.sut.threads
        return self.cores[start : start + self.sut.threads]

    def to_dict(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        data["sut"] = self.sut.to_dict()
        data["seeds"] = self.seeds.to_dict()
        data["cores"] = list(self.cores)
        for name in _FRACTIONS:
            data[name] = f"{getattr(self, name):.6g}"
        for name, unused in _LATER.items():
            if data[name] == unused:
                del data[name]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunSpec:
        known = _known_fields(cls, data, "spec")
        missing = [
            item.name
            for item in dataclasses.fields(cls)
            if item.name not in known
            and item.default is dataclasses.MISSING
            and item.default_factory is dataclasses.MISSING
        ]
        _want(not missing, "spec", sorted(known), f"the missing fields {missing}")
        known["sut"] = SutSpec.from_dict(_mapping(known["sut"], "sut"))
        if "seeds" in known:
            known["seeds"] = Seeds.from_dict(_mapping(known["seeds"], "seeds"))
        if "cores" in known:
            cores = known["cores"]
            _want(isinstance(cores, list | tuple), "cores", cores, "a list of CPU numbers")
            known["cores"] = tuple(cores)
        for name in _FRACTIONS:
            if isinstance(known.get(name), str):
                known[name] = _number(known[name], name)
        return cls(**known)

    def recorded(self) -> RunSpec:
        """The spec as it is kept in evidence: paths shortened to names, held by their digests.

        A folder on one machine means nothing to a verifier on another, and would make the same
        measurement look different each time.
        """
        package = self.sut.package
        return dataclasses.replace(
            self,
            model=PurePath(self.model).name,
            samples=PurePath(self.samples).name,
            sut=dataclasses.replace(
                self.sut, package=None if package is None else PurePath(package).name
            ),
        )

    def comparable(self) -> dict[str, Any]:
        """Everything two arms of one comparison must share: the spec less id, SUT and package."""
        data = self.recorded().to_dict()
        for name in ("run_id", "sut", "package_sha256"):
            del data[name]
        data["precision"] = self.sut.precision
        return data


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SpecError(f"{name}: got {text!r}, wanted a number") from None


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    _want(isinstance(value, Mapping), name, value, "an object")
    return cast(Mapping[str, Any], value)


def _known_fields(cls: type[Any], data: Mapping[str, Any], where: str) -> dict[str, Any]:
    names = {item.name for item in dataclasses.fields(cls)}
    unknown = sorted(set(data) - names)
    # A misspelt field must not pass as a default: LoadGen's own config does that silently.
    _want(not unknown, where, unknown, f"only the fields {sorted(names)}")
    return dict(data)
