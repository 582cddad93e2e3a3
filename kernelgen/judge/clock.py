"""Time, taken outside the candidate's process: fresh inputs at fresh addresses for every call, both
sides in turn.

In: two ready sessions (or one) over one input region. Out: paired times per pass, and copies of
some timed outputs for the oracle. A batch of N calls and one of 2N calls are timed; their
difference over N is the time of a call, so the cost of the order and the answer cancels. Whoever
is not being timed stands still: inputs are written after the addresses are known and before the
clock starts, outputs are looked at as they were at the answer. CPU time read from outside must
agree with the wall clock.
Never here: correctness (the caller checks the copies), the decision to accept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from kernelgen.judge.compare import disagrees, poison_word, still_poisoned
from kernelgen.judge.feed import Feed
from kernelgen.judge.session import Refusal, Region, Session, Window, bytes_for
from kernelgen.judge.verdict import JudgeError
from kernelgen.ops.operator import Array, Operator

BATCH_NS = 1_500_000
MOST_CALLS = 256
SLOT_BYTES = 96 << 20
DISTURBED = 1.1
MORE_THAN_ONE_CORE = 1.3
IDLE_ALLOWANCE_NS = 100_000
"""CPU time per pass between an answer and standing still, with a noisy kernel."""
IDLE_SHARE = 0.1
SUSPECTS = 16
"""Timed calls per size that differ from the incumbent's answer and are kept for the oracle."""


@dataclass(frozen=True)
class Effort:
    """How much timing a judgement is worth. A pass is four batches a side pair; `hopeless` ends a
    lost cause early.
    """

    fewest: int = 12
    most: int = 24
    hopeless: float = 0.97
    look: int = 4


@dataclass(frozen=True)
class Snapshot:
    """Inputs and outputs of one timed call, as they were when it claimed to be done."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    poison: int


@dataclass
class Timing:
    """Passes at one size: nanoseconds per call by slope and by total, for the candidate and, when
    present, the incumbent.
    """

    calls: int = 0
    batch: int = 1
    mine_ns: list[float] = field(default_factory=list)
    mine_total_ns: list[float] = field(default_factory=list)
    other_ns: list[float] = field(default_factory=list)
    other_total_ns: list[float] = field(default_factory=list)
    disturbed: int = 0
    snapshots: list[Snapshot] = field(default_factory=list)
    suspects: list[Snapshot] = field(default_factory=list)
    weights: Mapping[str, Array] = field(default_factory=dict)

    @property
    def time_ns(self) -> float:
        """Median slope; the mean of totals when noise made it senseless."""
        slope = float(np.median(self.mine_ns))
        return slope if slope > 0 else self.total_ns

    @property
    def most_ns(self) -> float:
        """The largest time the median slope leaves possible: three of its standard errors above it,
        estimated from the median deviation, which a few slow passes cannot move.
        """
        slopes = np.asarray(self.mine_ns)
        spread = float(np.median(np.abs(slopes - np.median(slopes))))
        return self.time_ns + 3.0 * 1.2533 * 1.4826 * spread / float(np.sqrt(slopes.size))

    @property
    def total_ns(self) -> float:
        """Median of whole batches over their calls, order and answer included."""
        return float(np.median(self.mine_total_ns))


def room(operator: Operator, dims: Mapping[str, int]) -> tuple[int, int]:
    """Bytes the input and the output region need for timing at these sizes, weights included."""
    slots = 3 * _calls_that_fit(operator, dims)
    weights = bytes_for(operator, dims, ("weight",))
    inputs = bytes_for(operator, dims, ("input",))
    outputs = bytes_for(operator, dims, ("output",))
    return weights + slots * inputs + 8192, slots * outputs + 8192


def _calls_that_fit(operator: Operator, dims: Mapping[str, int]) -> int:
    each = bytes_for(operator, dims, ("input", "output"))
    return int(min(MOST_CALLS, max(1, SLOT_BYTES // max(1, 3 * each))))


@dataclass(frozen=True)
class _Batch:
    """Calls of one pass: where inputs and outputs lie, and what goes in."""

    calls: list[tuple[list[int], list[int]]]
    contents: list[list[Array]]
    output_end: int


class Match:
    """Candidate against incumbent (or alone) at one size."""

    def __init__(
        self,
        operator: Operator,
        dims: Mapping[str, int],
        mine: Session,
        other: Session | None,
        rng: np.random.Generator,
    ) -> None:
        self._operator = operator
        self._dims = dims
        self._mine = mine
        self._other = other
        self._rng = rng
        self._outputs = [(t.name, t.sizes(dims), t.dtype) for t in operator.by_role("output")]
        self._sizes = [_bytes(shape, dtype) for _, shape, dtype in self._outputs]
        self._inputs = [t.name for t in operator.by_role("input")]
        self._feed = Feed(operator, dims, rng)
        self.weights = {t.name: self._feed.first[t.name] for t in operator.by_role("weight")}
        self._region: Region = mine.inputs
        self._idle_ns = 0
        self._busy_ns = 0
        self._cpu_ns = 0
        self._poison = poison_word(rng)

    def run(
        self,
        effort: Effort,
        *,
        prepare: Callable[[int], None] | None = None,
        go_on: Callable[[Timing], bool] | None = None,
    ) -> Timing:
        """Set both sides up and time passes until `go_on` says no or the effort is spent.

        `prepare` hears how long the candidate's packing took. Raises `Refusal` for the candidate's
        faults only.
        """
        self._region.rewind()
        offsets = [self._region.put(array) for array in self.weights.values()]
        base = self._region.take(0)
        took = self._mine.setup(self._dims, offsets)
        if prepare is not None:
            prepare(took.prepare_ns)
        if self._other is not None:
            with _blameless():
                self._other.setup(self._dims, offsets)
        timing = Timing(weights=self.weights)
        calls = timing.batch = self._size(base)
        turn = 0
        while len(timing.mine_ns) < effort.most:
            self._one_pass(timing, calls, base, turn)
            turn += 1
            if go_on is not None and not go_on(timing):
                break
        self._check_clocks(turn)
        return timing

    @property
    def _sides(self) -> list[Session]:
        return [side for side in (self._mine, self._other) if side is not None]

    def _size(self, base: int) -> int:
        most = _calls_that_fit(self._operator, self._dims)
        batch = self._lay(3, base)
        guess = []
        self._load(self._mine, batch)
        self._poison_outputs(batch)
        for call in range(3):
            self._write(batch, call, 1)
            guess.append(self._timed(self._mine, call, 1).wall_ns)
        return int(max(1, min(most, BATCH_NS // max(1, min(guess)))))

    def _lay(self, calls: int, base: int) -> _Batch:
        """New contents and new addresses for every call; nothing is written yet."""
        region, jitter = self._region, int(self._rng.integers(64))
        region.rewind(base // 64 + 1 + jitter)
        contents = [self._feed.next() for _ in range(calls)]
        inputs = [[region.take(array.nbytes) for array in content] for content in contents]
        self._mine.outputs.rewind(jitter)
        outputs = [[self._mine.outputs.take(size) for size in self._sizes] for _ in range(calls)]
        end = self._mine.outputs.take(0)
        return _Batch(list(zip(inputs, outputs, strict=True)), contents, end)

    def _poison_outputs(self, batch: _Batch) -> None:
        self._poison = poison_word(self._rng)
        for side in self._sides:
            side.outputs.bytes[: batch.output_end].view(np.uint32)[:] = np.uint32(self._poison)

    def _write(self, batch: _Batch, first: int, calls: int) -> None:
        for call in range(first, first + calls):
            for at, array in zip(batch.calls[call][0], batch.contents[call], strict=True):
                self._region.write(at, array)

    def _load(self, side: Session, batch: _Batch) -> None:
        if side is not self._other:
            side.load(batch.calls)
            return
        with _blameless():
            side.load(batch.calls)

    def _timed(self, side: Session, first: int, calls: int) -> Window:
        if side is not self._other:
            return side.go(first, calls)
        with _blameless():
            return side.go(first, calls)

    def _one_pass(self, timing: Timing, calls: int, base: int, turn: int) -> None:
        batch = self._lay(3 * calls, base)
        sides = self._sides
        if turn % 2:
            sides.reverse()
        for side in sides:
            self._load(side, batch)
        # From here on both sides stand still except while they are timed.
        self._poison_outputs(batch)
        windows: dict[tuple[int, str], Window] = {}
        # ABBA: A short, B short, B long, A long; the next pass begins with the other side.
        self._write(batch, 0, calls)
        for side in sides:
            windows[id(side), "short"] = self._timed(side, 0, calls)
        self._write(batch, calls, 2 * calls)
        for side in reversed(sides):
            windows[id(side), "long"] = self._timed(side, calls, 2 * calls)
        for name in ("short", "long"):
            mine = windows[id(self._mine), name]
            self._idle_ns += mine.after_ns
            self._busy_ns += mine.wall_ns
            self._cpu_ns += mine.cpu_ns or 0
        self._snap(timing, batch, calls)
        self._agree(timing, batch)
        timing.calls += 3 * calls
        timing.disturbed += any(_disturbed(window) for window in windows.values())
        for side in sides:
            own = side is self._mine
            slopes = timing.mine_ns if own else timing.other_ns
            totals = timing.mine_total_ns if own else timing.other_total_ns
            first, second = _spent(windows[id(side), "short"]), _spent(windows[id(side), "long"])
            slopes.append((second - first) / calls)
            totals.append((second + first) / (3 * calls))

    def _snap(self, timing: Timing, batch: _Batch, calls: int) -> None:
        # At least one call in ten over all passes, the last one of a batch as likely as any two
        # others.
        last = len(batch.calls) - 1
        count = max(1, len(batch.calls) // 10)
        ends = (last, calls - 1)
        chosen = {ends[int(self._rng.random() < 0.3)]} if self._rng.random() < 0.5 else set()
        chosen |= {int(self._rng.integers(last + 1)) for _ in range(count)}
        timing.snapshots += [self._snapshot(batch, call) for call in sorted(chosen)]

    def _snapshot(self, batch: _Batch, call: int) -> Snapshot:
        outputs = {
            name: self._mine.outputs.get(at, shape, dtype)
            for (name, shape, dtype), at in zip(self._outputs, batch.calls[call][1], strict=True)
        }
        inputs = dict(zip(self._inputs, batch.contents[call], strict=True))
        return Snapshot(inputs, outputs, self._poison)

    def _agree(self, timing: Timing, batch: _Batch) -> None:
        """Every timed output, a stride of it: written, and where there is an incumbent, close to
        its answer. What differs is a case for the oracle: two honest kernels may break a tie
        differently.
        """
        for call, (_, outputs) in enumerate(batch.calls):
            for (name, _, dtype), size, at in zip(self._outputs, self._sizes, outputs, strict=True):
                end = at + size
                mine = self._mine.outputs.bytes[at:end].view(dtype)
                if not mine.size:
                    continue
                step = max(1, mine.size // 512)
                pick = slice(int(self._rng.integers(step)), None, step)
                if still_poisoned(mine[pick], self._poison).any():
                    raise Refusal("not_written", f"a timed call left {name} unwritten")
                if self._other is None:
                    continue
                other = self._other.outputs.bytes[at:end].view(dtype)
                if disagrees(mine, other, pick) and len(timing.suspects) < SUSPECTS:
                    timing.suspects.append(self._snapshot(batch, call))
                    break

    def _check_clocks(self, passes: int) -> None:
        allowance = IDLE_ALLOWANCE_NS * max(1, passes)
        if self._cpu_ns > MORE_THAN_ONE_CORE * self._busy_ns + allowance:
            raise Refusal(
                "clock_mismatch",
                f"{self._cpu_ns} ns of CPU time in {self._busy_ns} ns: more than one core",
            )
        if self._idle_ns > allowance + IDLE_SHARE * self._busy_ns:
            raise Refusal(
                "clock_mismatch",
                f"used {self._idle_ns} ns of CPU time after its answers, {self._busy_ns} ns before",
            )


@contextmanager
def _blameless() -> Iterator[None]:
    """An incumbent was accepted before: when it fails now, the trouble is ours, not the
    candidate's.
    """
    try:
        yield
    except Refusal as error:
        raise JudgeError(f"the incumbent failed while it was timed: {error}") from error


def _disturbed(window: Window) -> bool:
    """Whether others ran on the core meanwhile: the wall clock went on and the process did not."""
    return window.cpu_ns is not None and window.wall_ns > DISTURBED * window.cpu_ns + 50_000


def _spent(window: Window) -> int:
    """Wall time, or in a disturbed window the CPU time that the system booked to the process.

    The two agree otherwise. A candidate cannot make its CPU time smaller than its work: it has no
    threads, no children and no system call to sleep in.
    """
    if window.cpu_ns is not None and _disturbed(window):
        return window.cpu_ns
    return window.wall_ns


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize


def ratio_interval(
    log_ratios: Sequence[float], rng: np.random.Generator, resamples: int = 2000
) -> tuple[float, float, float]:
    """Median ratio with a 95 % percentile bootstrap interval over passes (Efron 1979)."""
    data = np.asarray(log_ratios, dtype=np.float64)
    draws = data[rng.integers(0, data.size, size=(resamples, data.size))]
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return float(np.exp(np.median(data))), float(np.exp(low)), float(np.exp(high))
