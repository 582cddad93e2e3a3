"""Float32 products on a matrix unit for bfloat16, at float32 accuracy.

In: buffers of a program under way, sizes. Out: the statements of a whole product. Never here: lower
accuracy. A float32 has 24 significant bits; it is split exactly into three bfloat16 of 8 bits each
(x = high + middle + low, Henry, Tang, Heinecke 2019), and of the nine products the six that matter
at 2^-24 are summed in float32: high high, high middle, middle high, high low, low high, middle
middle.

Rows are split once per row block. Weights are split while they stream past, one step ahead of the
dot products, from the same panels that multiply-adds read: three bfloat16 take half as much memory
again as the float they came from, and memory is what a short input waits for. Splitting, and what
follows finished sums, is written between the dot products, so that the vector units work beside the
matrix unit.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelgen.sketches.gemm_epilogue import Epilogue
from kernelgen.sketches.gemm_plain import Panels
from kernelgen.tile.build import (
    Build,
    Memory,
    Reach,
    Value,
    fill,
    maximum,
    minimum,
    select,
    span,
    word,
)

STEP = 32
"""Rows, columns and inner length of one step: two tiles of 16 rows, two of 16 columns."""

SLICE = 4
"""Steps along k whose split weights stay in the first cache while all rows of a block use them."""

SLOTS = SLICE + 1
"""One more: the first step of the next slice is split during the last of this one."""

PARTS = 3
SIDE = STEP // 2
PIECE = 4
"""Rows of a strip of 16 columns of weights that are split together."""

PIECES = 2 * SIDE // PIECE

TOP = -65536
"""The upper half of 32 bits: where a bfloat16 lies in a float32."""

HALF = 32768

LARGEST = 255.0 * 2.0**120
"""The largest bfloat16. A float above it is split from there: rounded up it would be infinite."""

EARLY = (0, 4)
"""Turns of `ORDER` with a piece of weights before the dot products too: eight pieces in all."""

ORDER = ((0, 2), (0, 1), (0, 0), (2, 0), (1, 0), (1, 1))
"""Parts of a and w that meet, 0 the high one: the small products first where loads allow it."""


@dataclass(frozen=True)
class Unit:
    """The product on the matrix unit. `split`: rows of a as [pair of tiles][step][part][32 rows][32
    k]; `slots`: weights as [slot][part][16 times 2 k][32 columns]; `sums`: f32 [pairs + 1][32][32].
    """

    b: Build
    own: Panels
    after: Epilogue
    block: int
    split: Memory
    slots: Memory
    sums: Memory

    @staticmethod
    def of(b: Build, own: Panels, after: Epilogue, block: int) -> Unit:
        pairs = (minimum(b.dim("m"), block) + (STEP - 1)) // STEP
        steps = own.deep // STEP
        split = b.buffer("split", "i32", (pairs * (steps * PARTS * STEP), SIDE), "local")
        slots = b.buffer("slots", "i32", (SLOTS * PARTS * SIDE, STEP), "local")
        sums = b.buffer("tile_sums", "f32", (pairs * STEP + STEP, STEP), "local")
        return Unit(b, own, after, block, split, slots, sums)

    @property
    def steps(self) -> int:
        return self.own.deep // STEP

    def blocks(self) -> None:
        """Row blocks of nearly equal height; in each all columns, then the norm."""
        b, m = self.b, self.b.dim("m")
        blocks = b.let("blocks", (m + (self.block - 1)) // self.block)
        with b.loop("turn", 0, blocks) as turn:
            first = b.let("first", turn * m // blocks)
            count = b.let("count", (turn + 1) * m // blocks - first)
            pairs = b.let("pairs", (count + (STEP - 1)) // STEP)
            self._split_rows(first, count, pairs)
            self._aim(b.let("number", 0), b.let("to_row", 0))
            for piece in range(PIECES):
                self._split_weights(piece)
            for name in ("rest_sums", "rest_row", "rest_count", "rest_column"):
                b.let(name, 0)
            # One pair walks all of k with its sums in the unit. More share a slice of weights.
            size = b.let("size", select(pairs.equals(1), self.steps, SLICE))
            b.let("ring", select(pairs.equals(1), 2, SLOTS))
            columns = -(-self.after.n // STEP)
            with b.loop("c", 0, columns) as c, b.loop("s", 0, self.steps) as s:
                begins = b.let("begins", (s % size).equals(0))
                with b.when(begins):
                    self._slice(first, count, pairs, c, s)
            self._finish(b.let("from_row", 0), b.let("to_row", STEP))
            self.after.norm(b, first, count)

    def _slice(self, first: Value, count: Value, pairs: Value, c: Value, s: Value) -> None:
        """All pairs of tiles on the steps from `s` on: the first pair splits the weights, others
        find them split.
        """
        b = self.b
        end = b.let("end", minimum(s + b.dim("size"), self.steps))
        b.let("pace", (end - s + (STEP - 1)) // (end - s))
        with b.loop("pair", 0, pairs) as pair:
            # One place more than pairs: sums wait there while the next column of tiles begins.
            mine = b.let("mine", (c * pairs + pair) % (pairs + 1) * STEP)
            with b.when(pair.equals(0)):
                self._walk(pair, c, s, end, mine, tall=True, fresh=True)
            with b.otherwise():
                with b.when(count - pair * STEP > SIDE):
                    self._walk(pair, c, s, end, mine, tall=True, fresh=False)
                with b.otherwise():
                    self._walk(pair, c, s, end, mine, tall=False, fresh=False)
            b.let("rest_count", 0)
            with b.when(end.equals(self.steps)):
                b.let("rest_sums", mine)
                b.let("rest_row", first + pair * STEP)
                b.let("rest_count", minimum(count - pair * STEP, STEP))
                b.let("rest_column", c * STEP)

    def _walk(
        self,
        pair: Value,
        c: Value,
        s: Value,
        end: Value,
        mine: Value,
        *,
        tall: bool,
        fresh: bool,
    ) -> None:
        """The steps s to `end` of one pair of tiles (of one tile where not `tall`)."""
        b, accs = self.b, range(4 if tall else 2)
        places = [(span(mine + SIDE * (i // 2), SIDE), span(SIDE * (i % 2), SIDE)) for i in accs]
        for i in accs:
            b.let(f"acc{i}", fill(0.0, "f32", SIDE, SIDE))
        with b.when(s > 0):
            for i in accs:
                b.let(f"acc{i}", self.sums[places[i]])
        with b.loop("step", s, end) as step:
            number = b.let("number", c * self.steps + step)
            rows = b.let("rows", (pair * self.steps + step) * (PARTS * STEP))
            slot = b.let("slot", number % b.dim("ring") * (PARTS * SIDE))
            if fresh:
                last = -(-self.after.n // STEP) * self.steps - 1
                to = b.let("to_row", (number + 1) % b.dim("ring") * (PARTS * SIDE))
                self._aim(b.let("next", minimum(number + 1, last)), to)
            pieces = iter(range(PIECES))
            for turn in range(len(ORDER)):
                self._load(rows, slot, turn, tall=tall)
                if fresh and turn in EARLY:
                    self._ahead(next(pieces))
                self._dots(tall=tall)
                if fresh:
                    self._ahead(next(pieces))
            begin = b.let("from_row", (step - s) * b.dim("pace"))
            self._finish(begin, b.let("to_row", begin + b.dim("pace")))
        for i in accs:
            self.sums[places[i]] = b.dim(f"acc{i}")

    def _load(self, rows: Value, slot: Value, turn: int, *, tall: bool) -> None:
        """One part of a and one of w into the unit, where they are not there yet."""
        b = self.b
        (high, wide), before = ORDER[turn], ORDER[turn - 1] if turn else (-1, -1)
        if high != before[0]:
            for i in range(2 if tall else 1):
                at = span(rows + (high * STEP + i * SIDE), SIDE)
                b.let(f"a{i}", self.split[at, span(0, SIDE)])
        if wide != before[1]:
            for j in range(2):
                at = span(slot + wide * SIDE, SIDE)
                b.let(f"w{j}", self.slots[at, span(j * SIDE, SIDE)])

    def _dots(self, *, tall: bool) -> None:
        """Dot products of 16 x 16 x 32 of what is loaded."""
        b = self.b
        for i in range(2 if tall else 1):
            for j in range(2):
                acc = b.dim(f"acc{2 * i + j}")
                b.let(f"acc{2 * i + j}", word("dot_bf16", acc, b.dim(f"a{i}"), b.dim(f"w{j}")))

    def _aim(self, number: Value, to: Value) -> None:
        """Names the places of the weights of a step: row and column of its two strips."""
        b, lanes, deep = self.b, self.own.lanes, self.own.deep
        column, step = number // self.steps * STEP, number % self.steps * STEP
        most = -(-self.after.n // lanes) * lanes - SIDE
        for j in range(2):
            at = b.let(f"strip{j}", minimum(column + j * SIDE, most))
            b.let(f"row{j}", at // lanes * deep + step)
            b.let(f"column{j}", at % lanes)
            if self.own.distance:
                far = step + SLICE * STEP
                if lanes == SIDE:
                    # Strips lie one behind the other; the next is the other half of this step.
                    far = select(far < deep, far, far + deep)
                b.let(f"far{j}", at // lanes * deep + far)
        b.let("to", to)

    def _ahead(self, piece: int) -> None:
        """Splits a piece of the next step's weights and asks for the same a slice further on."""
        if self.own.distance:
            j, i = piece % 2, piece // 2 * PIECE
            for row in (*range(i, i + PIECE), *range(SIDE + i, SIDE + i + PIECE)):
                far = (self.b.dim(f"far{j}") + row, self.b.dim(f"column{j}"))
                self.b.prefetch(self.own.weights, far)
        self._split_weights(piece)

    def _split_rows(self, first: Value, count: Value, pairs: Value) -> None:
        b, k = self.b, self.own.k
        with b.loop("r", 0, pairs * STEP) as r, b.loop("step", 0, self.steps) as step:
            to = b.let("to_row", (r // STEP * self.steps + step) * (PARTS * STEP) + r % STEP)
            for name in ("x", "y"):
                b.let(name, fill(0.0, "f32", SIDE))
            with b.when(r < count):
                for i, name in enumerate(("x", "y")):
                    at = step * STEP + i * SIDE
                    b.let(name, self.own.a[first + r, _upto(at, SIDE, k)])
            x, y = b.dim("x"), b.dim("y")
            for part in range(PARTS):
                xs = b.let("xs", _nearest(x, part))
                ys = b.let("ys", _nearest(y, part))
                self.split[to + part * STEP, span(0, SIDE)] = ys | ((xs >> 16) & 65535)
                if part + 1 < PARTS:
                    b.let("x", x - word("from_bits", xs))
                    b.let("y", y - word("from_bits", ys))

    def _split_weights(self, piece: int) -> None:
        """Four rows of a strip, and those 16 further, to the halves of four rows of a slot. Cut,
        not rounded: the three still add up to the float, and it takes fewer instructions.
        """
        b, j, i = self.b, piece % 2, piece // 2 * PIECE
        row, across = b.dim(f"row{j}"), span(b.dim(f"column{j}"), SIDE)
        x = b.let("x", self.own.weights[span(row + i, PIECE), across])
        y = b.let("y", self.own.weights[span(row + (SIDE + i), PIECE), across])
        for part in range(PARTS):
            low, high = word("bits", x), word("bits", y) & TOP
            at = (span(b.dim("to") + (part * SIDE + i), PIECE), span(j * SIDE, SIDE))
            self.slots[at] = high | ((low >> 16) & 65535)
            if part + 1 < PARTS:
                b.let("x", x - word("from_bits", word("bits", x) & TOP))
                b.let("y", y - word("from_bits", word("bits", y) & TOP))

    def _finish(self, begin: Value, end: Value) -> None:
        """What follows the sums of an earlier pair, rows `begin` to `end` of it."""
        b = self.b
        with b.loop("e", begin, minimum(end, b.dim("rest_count"))) as e:
            sums = self.sums[b.let("summed", b.dim("rest_sums") + e), span(0, STEP)]
            where = (b.dim("rest_row") + e, b.dim("rest_column"))
            self.after.finish(b, where, sums, STEP)


def _nearest(x: Value, part: int) -> Value:
    """Bits of the bfloat16 that is one part of a float. The high one is rounded, so that what is
    left has either sign and the products left out do not add up to one side; the others are cut. A
    NaN stands in these, for its bits may not be added to.
    """
    if part:
        return word("bits", x) & TOP
    return (word("bits", minimum(maximum(x, -LARGEST), LARGEST)) + HALF) & TOP


def _upto(at: Value, lanes: int, k: int) -> Reach:
    return span(at, lanes) if k % STEP == 0 else span(at, lanes, k - at)
