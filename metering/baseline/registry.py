"""The registry of measured baselines, one signed line for each, and what a policy makes of them.

In: evidence folders whose figures hold, a signing key. Out: ``registry.jsonl``, in which every line
names the one before it, and the baseline that counts at any time under the contract's policy.
Never here: a figure that no run stands behind, the arithmetic of costs (``contract`` has it), a
line that is changed or taken out later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from metering import canonical
from metering.baseline.comparability import ComparabilityKey, key_of
from metering.baseline.frozen import BASELINE
from metering.baseline.recount import read_plan, recompute_baseline
from metering.contract import BaselinePolicy, effective_baselines
from metering.decimals import exact
from metering.fields import Fields, instant_text
from metering.loadgen.files import sha256_bytes, sha256_file, write_atomic
from metering.loadgen.verify import EvidenceError
from metering.refusal import Refusal

SCHEMA = "ignition.baseline-registry.v1"
_PLACES = Decimal("0.000000000001")
_MILLION = 1_000_000


@dataclass(frozen=True)
class Known:
    """A stack that competed: its name, version and digest."""

    name: str
    version: str
    digest: str


@dataclass(frozen=True)
class Entry:
    """One measured baseline. ``as_found`` is the rate of the customer's own configuration.

    ``swept`` names the stacks the signed plan lets compete; ``stacks`` those that were there.
    """

    number: int
    previous: str
    key: ComparabilityKey
    baseline_sha256: str
    plan_digest: str
    frozen_at: datetime
    stack: str
    version: str
    samples_per_second: Decimal
    as_found: Decimal | None
    cores: int
    swept: tuple[str, ...]
    stacks: tuple[Known, ...]

    @property
    def core_seconds_per_million(self) -> Decimal:
        """Core-seconds for a million samples: a cost without a price, at twelve places."""
        with exact():
            return (self.cores * _MILLION / self.samples_per_second).quantize(_PLACES)

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "number": self.number,
            "previous": self.previous,
            "key": dict(self.key.fields),
            "baseline_sha256": self.baseline_sha256,
            "plan_digest": self.plan_digest,
            "frozen_at": instant_text(self.frozen_at),
            "stack": self.stack,
            "version": self.version,
            "samples_per_second": str(self.samples_per_second),
            "as_found": None if self.as_found is None else str(self.as_found),
            "cores": self.cores,
            "swept": list(self.swept),
            "stacks": [[known.name, known.version, known.digest] for known in self.stacks],
        }

    @classmethod
    def from_json(cls, value: object) -> Entry:
        """Inverse of ``to_json``. Raises Refusal."""
        fields = Fields(value, "entry")
        fields.text("schema", [SCHEMA])
        key, previous, stacks = (fields.any(name) for name in ("key", "previous", "stacks"))
        if not isinstance(key, dict) or not isinstance(previous, str):
            raise Refusal("entry.key", type(key).__name__, "an object, and previous a digest")
        if not isinstance(stacks, list) or any(
            not isinstance(row, list) or len(row) != 3 for row in stacks
        ):
            raise Refusal("entry.stacks", repr(stacks), "lists of name, version and digest")
        entry = cls(
            number=fields.integer("number"),
            previous=previous,
            key=ComparabilityKey({str(name): str(text) for name, text in key.items()}),
            baseline_sha256=fields.text("baseline_sha256"),
            plan_digest=fields.text("plan_digest"),
            frozen_at=fields.instant("frozen_at"),
            stack=fields.text("stack"),
            version=fields.text("version"),
            samples_per_second=fields.decimal("samples_per_second"),
            as_found=fields.optional_decimal("as_found"),
            cores=fields.integer("cores"),
            swept=fields.texts("swept"),
            stacks=tuple(Known(*map(str, row)) for row in stacks),
        )
        fields.finish()
        return entry


@dataclass(frozen=True)
class Effective:
    """What counts from a time on. Costs are core-seconds for a million samples."""

    counts_from: datetime
    entry: Entry
    measured_cost: Decimal
    effective_cost: Decimal

    @property
    def samples_per_second(self) -> Decimal:
        """The rate that savings are counted from, at six places."""
        with exact():
            rate = self.entry.cores * _MILLION / self.effective_cost
            return rate.quantize(Decimal("0.000001"))

    def to_dict(self) -> dict[str, object]:
        return {
            "counts_from": instant_text(self.counts_from),
            "number": self.entry.number,
            "measured_core_seconds_per_million": str(self.measured_cost),
            "effective_core_seconds_per_million": str(self.effective_cost),
            "effective_samples_per_second": str(self.samples_per_second),
        }


def measured(evidence: Path, number: int = 0, previous: str = "") -> Entry:
    """The entry of an evidence folder, every figure worked out from its runs again.

    Raises EvidenceError when the runs do not hold, or a candidate ran before the baseline was
    frozen: such a baseline could have been chosen to suit it.
    """
    plan = read_plan(evidence)
    found = recompute_baseline(evidence / "baseline", plan)
    key = key_of(evidence)
    for name, value in (
        ("mix.model_sha256", found.model_sha256),
        ("mix.samples_sha256", found.samples_sha256),
    ):
        if key.fields[name] != value:
            raise EvidenceError(f"{name}: got {key.fields[name]}, the runs used {value}")
    _refuse_earlier_candidate(evidence, found.frozen_at)
    return Entry(
        number=number,
        previous=previous,
        key=key,
        baseline_sha256=sha256_file(evidence / "baseline" / BASELINE),
        plan_digest=found.plan_digest,
        frozen_at=found.frozen_at.astimezone(UTC),
        stack=found.stack,
        version=found.version,
        samples_per_second=found.samples_per_second,
        as_found=None if found.as_found is None else found.as_found.samples_per_second,
        cores=len(plan.cores),
        swept=plan.sweep.stacks,
        stacks=tuple(
            Known(str(info["name"]), str(info["version"]), str(info["digest"]))
            for info in found.stacks
            if info["available"]
        ),
    )


def _refuse_earlier_candidate(evidence: Path, frozen_at: datetime) -> None:
    for path in sorted((evidence / "uplift" / "runs").glob("*/result.json")):
        fields = canonical.loads(path.read_bytes())
        started = Fields(fields, path.parent.name).instant("started_at")
        if started < frozen_at:
            raise EvidenceError(
                f"uplift/runs/{path.parent.name}: started at {instant_text(started)}, before the "
                f"baseline was frozen at {instant_text(frozen_at)}"
            )


def append(path: Path, evidence: Path, key: Ed25519PrivateKey) -> Entry:
    """Measure nothing, believe nothing: check the folder, sign its line and add it to ``path``.

    Raises EvidenceError, NotComparable (another key than the first entry's), Refusal (not newer
    than the last entry, or in the registry already).
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    line, entry = next_line(lines, evidence, key)
    write_atomic(path, b"".join(one + b"\n" for one in (*lines, line)))
    return entry


def next_line(
    lines: Sequence[bytes], evidence: Path, key: Ed25519PrivateKey
) -> tuple[bytes, Entry]:
    """The signed line that follows ``lines``, and its entry. Raises as :func:`append` does."""
    entries = read(lines, key.public_key()) if lines else ()
    entry = measured(evidence, len(entries), sha256_bytes(lines[-1]) if lines else "")
    if entries:
        entries[0].key.require(entry.key)
        if entry.frozen_at <= entries[-1].frozen_at:
            raise Refusal(
                "frozen_at", instant_text(entry.frozen_at),
                f"later than the last entry's {instant_text(entries[-1].frozen_at)}",
            )  # fmt: skip
    return signed_line(entry, key), entry


def signed_line(entry: Entry, key: Ed25519PrivateKey) -> bytes:
    """An entry as its line of the registry, without the line's end."""
    text = canonical.dumps(entry.to_json())
    return canonical.dumps({"entry": entry.to_json(), "signature": key.sign(text).hex()})


def load(path: Path, public: Ed25519PublicKey) -> tuple[Entry, ...]:
    """Every entry, oldest first; the chain and each signature checked. Raises EvidenceError."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise EvidenceError(f"{path.name}: cannot be read ({error.strerror})") from error
    if not lines:
        raise EvidenceError(f"{path.name}: holds no baseline; add one first")
    return read(lines, public, path.name)


def read(
    lines: Sequence[bytes], public: Ed25519PublicKey, name: str = "registry"
) -> tuple[Entry, ...]:
    """The entries of lines, checked as :func:`load` does. Raises EvidenceError naming the line."""
    found: list[Entry] = []
    previous = ""
    for number, line in enumerate(lines):
        where = f"{name} line {number + 1}"
        try:
            fields = Fields(canonical.loads(line), "line")
            entry = Entry.from_json(fields.any("entry"))
            signature = bytes.fromhex(fields.text("signature"))
            fields.finish()
            public.verify(signature, canonical.dumps(entry.to_json()))
        except InvalidSignature as error:
            raise EvidenceError(f"{where}: the signature is not that of the key given") from error
        except ValueError as error:
            raise EvidenceError(f"{where}: {error}") from error
        if (entry.number, entry.previous) != (number, previous):
            raise EvidenceError(f"{where}: does not follow the line before it")
        found.append(entry)
        previous = sha256_bytes(line)
    return tuple(found)


def hold(entry: Entry, evidence: Path) -> None:
    """The entry against its evidence, worked out again. Raises EvidenceError."""
    again = measured(evidence, entry.number, entry.previous)
    for name, stated in entry.to_json().items():
        value = again.to_json()[name]
        if value != stated:
            raise EvidenceError(f"entry {entry.number}: {name} is {stated}, its runs say {value}")


def effective(
    entries: Sequence[Entry], policy: BaselinePolicy, resets: Sequence[datetime] = ()
) -> tuple[Effective, ...]:
    """What counts, and from when, oldest first.

    ``fixed`` keeps the first. ``ratchet`` and ``glide`` take a re-measurement in on the day it is
    frozen. ``reset`` waits for the contract's dates (``resets``, aware): on each the newest
    baseline frozen by then counts, and what is measured after the last date does not count yet.
    """
    if (policy.kind == "reset") != bool(resets):
        raise Refusal("resets", len(resets), "the contract's dates with policy reset, else none")
    counting = [(entry.frozen_at, entry) for entry in entries]
    if policy.kind == "fixed":
        counting = counting[:1]
    elif policy.kind == "reset":
        counting = _at_dates(entries, sorted(resets))
    costs = [entry.core_seconds_per_million for _, entry in counting]
    return tuple(
        Effective(moment, entry, cost, counted)
        for (moment, entry), cost, counted in zip(
            counting, costs, effective_baselines(policy, costs), strict=True
        )
    )


def _at_dates(entries: Sequence[Entry], resets: Sequence[datetime]) -> list[tuple[datetime, Entry]]:
    found = [(entries[0].frozen_at, entries[0])]
    for moment in resets:
        newest = [entry for entry in entries if entry.frozen_at <= moment][-1:]
        if newest and newest[0] is not found[-1][1]:
            found.append((moment, newest[0]))
    return found


def counting_at(found: Sequence[Effective], moment: datetime) -> Effective:
    """The one of ``found`` that counts at ``moment``. Raises Refusal before the first."""
    earlier = [one for one in found if one.counts_from <= moment]
    if not earlier:
        raise Refusal("moment", instant_text(moment), "a time after the first baseline")
    return earlier[-1]
