"""How a program walks the rows of a matrix: blocks of rows, pieces of a row, rows in registers.

In: sizes, loads. Out: loops and values in a program under way. Never here: any one operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kernelgen.schedule.schedule import Value as Choice
from kernelgen.schedule.space import SearchSpace
from kernelgen.tile.build import Build, Index, Memory, Reach, Value, fill, lane, select, span
from kernelgen.tile.check import MOST_LANES

MOST_HELD = 48
"""Vectors of one row that a program may name one by one; more would be code nobody reads."""


def fitting(n: int, vector: int, most: int) -> int:
    """Lanes of a piece of a row of n: up to `most` vectors, as few idle lanes as possible."""
    if n < vector:
        return 1 << (n - 1).bit_length()
    most = max(1, min(most, MOST_LANES // vector))
    best = min(range(1, most + 1), key=lambda count: (-(-n // (count * vector)) * count, -count))
    return best * vector


MOST_SUMS = 8
"""Vectors that one pass adds up side by side."""


@dataclass(frozen=True)
class Piece:
    """`lanes` places of a row from `start` on; `left` of them exist, or all when None."""

    start: Value | int
    lanes: int
    left: int | None = None

    @property
    def span(self) -> Reach:
        return span(self.start, self.lanes, self.left)

    def only(self, x: Value, other: float) -> Value:
        """`x` where the row has elements, `other` in the idle lanes."""
        if self.left is None:
            return x
        return select(lane(self.lanes) < self.left, x, other)


def pieces(n: int, lanes: int) -> tuple[Piece, ...]:
    """All pieces of a row, written out."""
    return tuple(
        Piece(start, lanes, None if start + lanes <= n else n - start)
        for start in range(0, n, lanes)
    )


def walk(b: Build, var: str, n: int, lanes: int, start: Value | int = 0) -> Iterator[Piece]:
    """The pieces of n places from `start` on: a loop over the whole ones, then the rest."""
    ends = n // lanes * lanes
    if ends == lanes:
        yield Piece(start, lanes)
    elif ends:
        with b.loop(var, 0, ends, lanes) as j:
            yield Piece(j if start == 0 else start + j, lanes)
    if ends < n:
        yield Piece(start + ends, lanes, n - ends)


class Row:
    """Rows that are gone over several times: `held` in registers, or loaded each time, the first
    time by `load`, later by `again` where that is cheaper.
    """

    def __init__(
        self,
        b: Build,
        n: int,
        lanes: int,
        load: Callable[[Piece], Value],
        *,
        held: bool,
        again: Callable[[Piece], Value] | None = None,
    ) -> None:
        self._b, self._n, self._lanes, self._held = b, n, lanes, held
        self._load, self._again = load, again or load
        self._names: dict[Piece, Value] = {}

    def each(self) -> Iterator[tuple[Piece, Value]]:
        load, self._load = self._load, self._again
        if not self._held:
            for piece in walk(self._b, "j", self._n, self._lanes):
                yield piece, self._b.let(self._b.fresh("x"), load(piece))
            return
        for piece in pieces(self._n, self._lanes):
            if piece not in self._names:
                self._names[piece] = self._b.let(self._b.fresh("x"), load(piece))
            yield piece, self._names[piece]


def block(i: Value, rows: int) -> Index:
    """The index of `rows` rows from i on; one row alone has no axis."""
    return i if rows == 1 else span(i, rows)


def reader(memory: Memory, at: Index) -> Callable[[Piece], Value]:
    """Loads pieces of the rows `at`."""
    return lambda piece: memory[at, piece.span]


def summed(x: Memory, residual: Memory | None, at: Index) -> Callable[[Piece], Value]:
    """Loads pieces of the rows `at` of x, or of x + residual."""
    if residual is None:
        return reader(x, at)
    return lambda piece: x[at, piece.span] + residual[at, piece.span]


def blocks(b: Build, size: Value, rows: int) -> Iterator[tuple[Value, int]]:
    """Rows in blocks, then the rest one by one; blocks are independent of each other."""
    whole = size // rows * rows
    with b.parallel("i", 0, whole, rows) as i:
        yield i, rows
    if rows > 1:
        with b.parallel("i", whole, size) as i:
            yield i, 1


def filled(number: float, rows: int, lanes: int) -> Value:
    return fill(number, "f32", lanes) if rows == 1 else fill(number, "f32", rows, lanes)


def may_hold(n: int, rows: int, lanes: int, vector: int) -> str | None:
    """None, or why rows of n cannot be kept in registers, naming the axis."""
    vectors = rows * -(-n // lanes) * max(1, lanes // vector)
    if vectors <= MOST_HELD:
        return None
    return f"hold: {vectors} vectors in registers, wanted at most {MOST_HELD}"


LINE = 16
"""Floats of a cache line."""


def fetch(b: Build, memory: Memory, row: Value, piece: Piece) -> None:
    """Asks for the lines of a piece of `row`, which may lie beyond the last one."""
    for line in range(0, piece.lanes, LINE):
        b.prefetch(memory, (row, piece.start + line))


def norm_space(name: str, n: int, wide: tuple[int, ...]) -> SearchSpace:
    """Schedules of a norm over rows of n: `sums` vectors make a piece, `rows` rows go together,
    `hold` keeps them in registers between the passes.
    """

    def rule(choices: Mapping[str, Choice]) -> str | None:
        vector, rows, sums = (int(choices[axis]) for axis in ("vector", "rows", "sums"))
        if rows * sums > MOST_SUMS:
            return f"sums: got {sums} vectors for {rows} rows, wanted at most {MOST_SUMS} in all"
        if not choices["hold"]:
            return None
        return may_hold(n, rows, fitting(n, vector, sums), vector)

    axes = {"vector": wide, "rows": (1, 2, 4), "sums": (1, 2, 4, 8), "hold": (0, 1)}
    room = 24 if wide[-1] >= 16 else 12
    held = int(-(-n // wide[-1]) <= room)
    start = {"vector": wide[-1], "rows": 1 + held, "sums": 4, "hold": held}
    return SearchSpace(name, axes, start, rule)
