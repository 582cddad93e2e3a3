"""A band of an image in a padded private buffer, ready to be read in runs of output columns.

In: an operator with kernel, stride (1 or 2), padding, and its input. Out: statements that fill the
band, and where a run of it lies. Never here: what is summed.

Columns are sorted by their remainder under the stride, so that the columns a run of outputs needs
for one place of the window lie side by side. Beyond the image a band holds zeros, or with `edge`
copies of the nearest pixel: for a maximum they change nothing, since every window that looks
beyond an edge also looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernelgen.ops.conv import margin
from kernelgen.tile.build import (
    Arg,
    Build,
    Memory,
    Value,
    fill,
    maximum,
    minimum,
    span,
    value,
    word,
)

STRIDES = (1, 2)


class Windowed(Protocol):
    """An operator that walks a square window over images; its dims are n, h, w of the output."""

    @property
    def kernel(self) -> int: ...

    @property
    def stride(self) -> int: ...

    @property
    def padding(self) -> int: ...


@dataclass(frozen=True)
class Band:
    """`rows` output rows of `channels` channels; `lanes` columns may be read past the last one."""

    build: Build
    memory: Memory
    of: Windowed
    rows: int
    lanes: int
    vector: int

    @classmethod
    def make(
        cls, build: Build, of: Windowed, *, channels: int, rows: int, lanes: int, vector: int
    ) -> Band:
        high = (rows - 1) * of.stride + of.kernel
        wide = build.dim("w") + (lanes + of.kernel)
        memory = build.buffer("band", "f32", (channels, high, of.stride, wide), "private")
        return cls(build, memory, of, rows, lanes, vector)

    @property
    def extra(self) -> int:
        return margin(self.of.kernel, self.of.stride, self.of.padding)

    def take(self, channel: Arg, row: Arg, place: int, at: Arg, lanes: int) -> Value:
        """What `lanes` output columns from `at` on see at column `place` of their window, in row
        `row` of the band.
        """
        stride = self.of.stride
        start = value(at) + place // stride
        return self.memory[channel, row, place % stride, span(start, lanes)]

    def load(
        self, x: Memory, image: Arg, first: Arg, source: Arg, to: Arg, *, edge: bool = False
    ) -> None:
        """Copy what `rows` output rows from `first` on need of channel `source` to `to`."""
        b, of = self.build, self.of
        tall = b.dim("h") * of.stride + self.extra
        count = minimum(b.dim("h") - value(first), self.rows)
        high = b.let(b.fresh("high"), (count - 1) * of.stride + of.kernel)
        with b.loop(b.fresh("row"), 0, high) as row:
            # Counted with the padding above, so that nothing is negative.
            y = b.let(b.fresh("y"), value(first) * of.stride + row)
            if edge:
                inside = minimum(maximum(y, of.padding) - of.padding, tall - 1)
                self._row(x, (image, source, b.let(b.fresh("near"), inside)), to, row, edge)
                return
            with b.when(y < of.padding):
                self._blank(to, row)
            with b.when(word("le", of.padding, y)):
                with b.when(y < tall + of.padding):
                    self._row(x, (image, source, y - of.padding), to, row, edge)
                with b.when(word("le", tall + of.padding, y)):
                    self._blank(to, row)

    def _wide(self) -> Value:
        return self.build.dim("w") + (self.lanes + self.of.kernel)

    def _blank(self, to: Arg, row: Arg) -> None:
        zeros = fill(0.0, "f32", self.vector)
        for phase in range(self.of.stride):
            self._along(phase, 0, self._wide(), lambda j: zeros, to, row)

    def _along(
        self, phase: int, start: Arg, stop: Arg, of: Callable[[Value], Value], to: Arg, row: Arg
    ) -> None:
        b, v = self.build, self.vector
        with b.loop(b.fresh("j"), start, stop, v) as j:
            left = value(stop) - j
            self.memory[to, row, phase, span(j, v, left)] = of(j)

    def _row(self, x: Memory, at: tuple[Arg, Arg, Arg], to: Arg, row: Arg, edge: bool) -> None:
        b, v, stride, padding = self.build, self.vector, self.of.stride, self.of.padding
        wide = b.dim("w") * stride + self.extra
        first = x[(*at, 0)] if edge else value(0.0)
        last = x[(*at, wide - 1)] if edge else value(0.0)
        count = b.let(b.fresh("count"), wide // stride)
        for phase in range(stride):
            # Padded column X = x + padding lies in phase X % stride at X // stride.
            origin = (phase - padding) % stride
            shift = (origin + padding) // stride
            if shift:
                self.memory[to, row, phase, span(0, v, shift)] = fill(first, "f32", v)
            self._along(phase, count + shift, self._wide(), lambda j: fill(last, "f32", v), to, row)
        with b.loop(b.fresh("j"), 0, count, v) as j:
            if stride == 1:
                self._put(to, row, 0, j, padding, x[(*at, span(j, v, wide - j))], count)
                return
            pair = b.let(b.fresh("pair"), x[(*at, span(j * 2, 2 * v, wide - j * 2))])
            for origin, name in ((0, "even"), (1, "odd")):
                phase = (origin + padding) % 2
                half = word(name, pair)
                self._put(to, row, phase, j, (origin + padding) // 2, half, count)

    def _put(
        self, to: Arg, row: Arg, phase: int, j: Value, shift: int, what: Value, count: Value
    ) -> None:
        self.memory[to, row, phase, span(j + shift, self.vector, count - j)] = what


def over_columns(
    build: Build, vector: int, vectors: int, tile: Callable[[Value, int], None]
) -> None:
    """`tile(at, lanes)` for every run of output columns: wide runs first, then single vectors, the
    last of which may reach beyond the row.
    """
    w, lanes = build.dim("w"), vector * vectors
    whole = build.let(build.fresh("whole"), w // lanes * lanes)
    with build.loop(build.fresh("at"), 0, whole, lanes) as at:
        tile(at, lanes)
    if vectors > 1:
        with build.loop(build.fresh("at"), whole, w, vector) as at:
            tile(at, vector)
    else:
        with build.when(whole < w):
            tile(whole, vector)
