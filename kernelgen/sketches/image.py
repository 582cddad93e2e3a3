"""A band of an image in a padded private buffer, ready to be read in runs of output pixels.

In: an operator with kernel, stride (1 or 2) and padding, and its input. Out: statements that fill
the band, and where a run of it lies. Never here: what is summed.

Rows and columns are sorted by their remainders under the stride into planes, each plane row as
long as an output row and what its window needs beyond it. So what a run of output pixels needs for
one place of the window lies side by side, and a run may even go on over the end of a row: the
pixels there come out as junk that is not kept. Beyond the image a band holds zeros, or with `edge`
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
    """`rows` output rows of `channels` channels; runs have up to `lanes` pixels."""

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
        beyond = (of.kernel - 1) // of.stride
        size = (build.dim("w") + beyond) * (rows + beyond) + (lanes + of.kernel)
        shape = (channels, of.stride, of.stride, size)
        return cls(build, build.buffer("band", "f32", shape, "private"), of, rows, lanes, vector)

    @property
    def beyond(self) -> int:
        """Plane rows, and columns, that the last window needs past the last output pixel."""
        return (self.of.kernel - 1) // self.of.stride

    @property
    def pitch(self) -> Value:
        """Length of a plane row."""
        return self.build.dim("w") + self.beyond

    @property
    def extra(self) -> int:
        return margin(self.of.kernel, self.of.stride, self.of.padding)

    def take(self, channel: Arg, pixel: Arg, r: int, q: int, lanes: int) -> Value:
        """What `lanes` output pixels see at row r, column q of their windows; `pixel` counts along
        plane rows: y pitch + x.
        """
        stride = self.of.stride
        start = value(pixel) + self.pitch * (r // stride) + q // stride
        return self.memory[channel, r % stride, q % stride, span(start, lanes)]

    def load(
        self, x: Memory, image: Arg, first: Arg, source: Arg, to: Arg, *, edge: bool = False
    ) -> None:
        """Copy what up to `rows` output rows from `first` on need of channel `source` to `to`."""
        b, of = self.build, self.of
        tall = b.dim("h") * of.stride + self.extra
        here = minimum(b.dim("h") - value(first), self.rows)
        lines = b.let(b.fresh("lines"), here + self.beyond)
        with b.loop(b.fresh("line"), 0, lines) as line:
            for phase in range(of.stride):
                # Counted with the padding above, so that nothing is negative.
                y = b.let(b.fresh("y"), (value(first) + line) * of.stride + phase)
                place = (to, phase, line * self.pitch)
                if edge:
                    inside = minimum(maximum(y, of.padding) - of.padding, tall - 1)
                    near = b.let(b.fresh("near"), inside)
                    self._row(x, (image, source, near), place, edge=True)
                    continue
                with b.when(y < of.padding):
                    self._blank(place)
                with b.when(word("le", of.padding, y)):
                    with b.when(y < tall + of.padding):
                        self._row(x, (image, source, y - of.padding), place, edge=False)
                    with b.when(word("le", tall + of.padding, y)):
                        self._blank(place)
        zeros = fill(0.0, "f32", self.vector)
        end = b.let(b.fresh("end"), self.pitch * lines)
        for phase in range(of.stride):
            for column in range(of.stride):
                for at in range(0, self.lanes + of.kernel, self.vector):
                    left = min(self.vector, self.lanes + of.kernel - at)
                    self.memory[to, phase, column, span(end + at, self.vector, left)] = zeros

    def clear(self, to: Arg) -> None:
        """Zeros all over channel `to`, for `inside` to fill again and again: what lies beyond the
        image is the same for every channel.
        """
        b, v, stride = self.build, self.vector, self.of.stride
        size = self.pitch * (self.rows + self.beyond) + (self.lanes + self.of.kernel)
        zeros = fill(0.0, "f32", v)
        for phase in range(stride):
            for column in range(stride):
                with b.loop(b.fresh("j"), 0, size, v) as j:
                    self.memory[to, phase, column, span(j, v, size - j)] = zeros

    def inside(self, x: Memory, image: Arg, first: Arg, source: Arg, to: Arg) -> None:
        """As `load`, into a channel that was cleared: only the rows and columns of the image."""
        b, of = self.build, self.of
        tall = b.dim("h") * of.stride + self.extra
        here = minimum(b.dim("h") - value(first), self.rows)
        with b.loop(b.fresh("line"), 0, here + self.beyond) as line:
            for phase in range(of.stride):
                y = b.let(b.fresh("y"), (value(first) + line) * of.stride + phase)
                with (
                    b.when(word("le", of.padding, y)),
                    b.when(y < tall + of.padding),
                ):
                    place = (to, phase, line * self.pitch)
                    self._copy(x, (image, source, y - of.padding), place)

    def _blank(self, place: tuple[Arg, int, Value]) -> None:
        for column in range(self.of.stride):
            self._along(place, column, 0, self.pitch, fill(0.0, "f32", self.vector))

    def _along(
        self, place: tuple[Arg, int, Value], column: int, start: Arg, stop: Arg, what: Value
    ) -> None:
        b, v = self.build, self.vector
        to, phase, origin = place
        with b.loop(b.fresh("j"), start, stop, v) as j:
            self.memory[to, phase, column, span(origin + j, v, value(stop) - j)] = what

    def _row(
        self, x: Memory, at: tuple[Arg, Arg, Arg], place: tuple[Arg, int, Value], *, edge: bool
    ) -> None:
        b, v, stride, padding = self.build, self.vector, self.of.stride, self.of.padding
        wide = b.dim("w") * stride + self.extra
        first = x[(*at, 0)] if edge else value(0.0)
        last = x[(*at, wide - 1)] if edge else value(0.0)
        count = b.let(b.fresh("count"), wide // stride)
        for column in range(stride):
            # Padded column X = x + padding lies in plane X % stride at X // stride.
            shift = ((column - padding) % stride + padding) // stride
            if shift:
                self._along(place, column, 0, shift, fill(first, "f32", v))
            self._along(place, column, count + shift, self.pitch, fill(last, "f32", v))
        self._copy(x, at, place)

    def _copy(self, x: Memory, at: tuple[Arg, Arg, Arg], place: tuple[Arg, int, Value]) -> None:
        """One row of the image to its places."""
        b, v, stride, padding = self.build, self.vector, self.of.stride, self.of.padding
        wide = b.dim("w") * stride + self.extra
        count = wide // stride
        with b.loop(b.fresh("j"), 0, count, v) as j:
            if stride == 1:
                halves = [(0, x[(*at, span(j, v, wide - j))])]
            else:
                pair = b.let(b.fresh("pair"), x[(*at, span(j * 2, 2 * v, wide - j * 2))])
                halves = [(0, word("even", pair)), (1, word("odd", pair))]
            to, phase, origin = place
            for source, what in halves:
                column = (source + padding) % stride
                shift = (source + padding) // stride
                kept = minimum(count, self.pitch - shift)
                target = span(origin + (j + shift), v, kept - j)
                self.memory[to, phase, column, target] = what


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


def over_pixels(
    build: Build, count: Value, vector: int, vectors: int, tile: Callable[[Value, int], None]
) -> None:
    """`tile(pixel, lanes)` for runs that cover `count` pixels, the last reaching beyond them."""
    lanes = vector * vectors
    whole = build.let(build.fresh("whole"), count // lanes * lanes)
    with build.loop(build.fresh("pixel"), 0, whole, lanes) as pixel:
        tile(pixel, lanes)
    if vectors > 1:
        with build.loop(build.fresh("pixel"), whole, count, vector) as pixel:
            tile(pixel, vector)
    else:
        with build.when(whole < count):
            tile(whole, vector)
