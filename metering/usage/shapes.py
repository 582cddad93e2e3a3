"""Shapes: lines that are written alike are read side by side, column by column.

Writers of usage repeat themselves: the same keys in the same order with the same spaces. A shape
is learnt from one line that `read_event` accepts; it then recognises, in one pass of numpy over a
block of lines, all others that differ only in their values. Whatever it does not recognise to the
byte (escapes, other keys, a negative volume, a time that is not plain) is left to `read_event`, so
that a shape can miss a line but never misread one.

In: a block of lines. Out: columns of the lines it recognised, their canonical contents included.
Never here: a verdict on a line; a floating-point number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metering import canonical
from metering.refusal import Refusal
from metering.usage.events import MAX_LINE_BYTES, MAX_NAME, NegativeVolume, read_event

__all__ = ["Block", "Ints", "Parsed", "Shape", "learn"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_QUOTE, _NEWLINE, _BACKSLASH = 0x22, 0x0A, 0x5C
_WORD = 8
# Years, days and offsets that exist and that `read_event` takes; all others go to it.
_TIME = (
    r"\A(?:(?:19(?:7[1-9]|[89]\d)|20\d\d)-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))|20(?:[02468][048]|[13579][26])-02-29)"
    r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:0\d|1[0-3]):[0-5]\d)\"\z"
)
_PLAIN_TIME_LENGTH = len('2026-11-03T08:00:00Z"')
# 1971 and 2100 in microseconds: the years that `_TIME` takes.
_FIRST_MOMENT, _LAST_MOMENT = 365 * 86_400 * 10**6, 47_482 * 86_400 * 10**6
_VALUES = ("source", "id", "time", "receivedtime")


class Block:
    """Whole lines, each ended by a line feed, cut at every quotation mark.

    A line's pieces run from delimiter to delimiter (quotation mark or line feed), the closing one
    included. `plain[i]`: line i holds no backslash, no control character, sound UTF-8 and is not
    too long, so that its strings are what stands between its quotation marks.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        padded = np.frombuffer(data + b"\0" * _WORD, np.uint8)
        octets = padded[: len(data)]
        self.ends = np.flatnonzero((octets == _QUOTE) | (octets == _NEWLINE))
        last = np.flatnonzero(octets[self.ends] == _NEWLINE)
        self.first = np.concatenate((np.zeros(1, np.int64), last[:-1] + 1))
        self.pieces = last - self.first + 1
        self.line_ends = self.ends[last]
        self.line_starts = np.concatenate((np.zeros(1, np.int64), self.line_ends[:-1] + 1))
        # Eight bytes from every position on, as one number.
        self.words = np.ndarray((len(data) + 1,), "<u8", buffer=padded, strides=(1,))
        self.plain = self.line_ends - self.line_starts <= MAX_LINE_BYTES
        self._find_plain(octets)
        offsets = np.concatenate((np.zeros(1, np.int64), self.ends + 1)).astype(np.int32)
        self._strings = pa.Array.from_buffers(
            pa.binary(), len(self.ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )

    def __len__(self) -> int:
        return len(self.line_ends)

    def line(self, number: int) -> bytes:
        """Line `number` without its line feed."""
        return self.data[self.line_starts[number] : self.line_ends[number]]

    def starts_of(self, rows: Ints, piece: int) -> Ints:
        """Where piece `piece` of each row begins."""
        if piece == 0:
            return self.line_starts[rows]
        return self.ends[self.first[rows] + (piece - 1)] + 1

    def column(self, rows: Ints, piece: int) -> Any:
        """Text of piece `piece` of each row with its delimiter; only for plain rows."""
        return self._strings.take(pa.array(self.first[rows] + piece)).view(pa.string())

    def holds(self, starts: Ints, text: bytes) -> Mask:
        """Whether `text` stands at each of `starts`, compared eight bytes at a time."""
        found = np.ones(len(starts), np.bool_)
        last = len(text) - _WORD
        mask = np.uint64((1 << 8 * min(len(text), _WORD)) - 1)
        for offset in [*range(0, last, _WORD), max(last, 0)]:
            word = np.uint64(int.from_bytes(text[offset : offset + _WORD], "little"))
            # What would leave the block is looked for in its padding, and not found there.
            place = np.minimum(starts + offset, len(self.data))
            found &= (self.words[place] & mask) == word
        return found

    def _find_plain(self, octets: npt.NDArray[np.uint8]) -> None:
        control = octets < 0x20
        if np.count_nonzero(control) != len(self):
            self._not_plain(np.flatnonzero(control & (octets != _NEWLINE)))
        if b"\\" in self.data:
            self._not_plain(np.flatnonzero(octets == _BACKSLASH))
        if not self.data.isascii():
            try:
                self.data.decode("utf-8")
            except UnicodeDecodeError:
                self._not_plain(np.flatnonzero(octets >= 0x80))

    def _not_plain(self, places: Ints) -> None:
        self.plain[np.searchsorted(self.line_ends, places)] = False


@dataclass(frozen=True)
class Parsed:
    """Recognised lines of one block: their numbers in it and one column per field.

    `keys`: source and id as JSON writes them, each closed by its quotation mark. `models` and
    `systems` are dictionary arrays of the same text. Times are microseconds since 1970; `received`
    is None when these lines have no time of receipt.
    """

    rows: Ints
    keys: Any
    contents: Any
    occurred: Ints
    received: Ints | None
    models: Any
    systems: Any
    samples: Ints


@dataclass(frozen=True)
class Shape:
    """One way to write an event.

    `fixed`: runs of bytes by the piece they begin at. `places`: the piece of each text value.
    `volume`: the piece that holds the samples between `before` and `after`. `template`: the
    canonical content, names of columns between its fixed parts.
    """

    pieces: int
    fixed: Mapping[int, bytes]
    places: Mapping[str, int]
    volume: int
    before: str
    after: str
    template: tuple[tuple[bool, str], ...]

    def parse(self, block: Block, wanted: Mask) -> Parsed | None:
        """The lines among `wanted` that have this shape; None when there are none."""
        rows = np.flatnonzero(wanted & (block.pieces == self.pieces))
        found = np.ones(len(rows), np.bool_)
        for piece, text in self.fixed.items():
            found &= block.holds(block.starts_of(rows, piece), text)
        rows = rows[found]
        columns = {name: block.column(rows, piece) for name, piece in self.places.items()}
        columns["samples"] = block.column(rows, self.volume)
        sound = self._sound(block, rows, columns)
        if not sound.all():
            rows = rows[sound]
            columns = {name: column.filter(pa.array(sound)) for name, column in columns.items()}
        return self._parsed(rows, columns) if len(rows) else None

    def _sound(self, block: Block, rows: Ints, columns: Mapping[str, Any]) -> Mask:
        """Where no name is empty or long, times are plain and the samples are a plain number."""
        around = (re.escape(self.before), re.escape(self.after))
        digits = rf"\A{around[0]}(?:0|[1-9]\d{{0,14}}){around[1]}\z"
        found = _mask(pc.match_substring_regex(columns["samples"], digits))
        for name, column in columns.items():
            if name in ("time", "receivedtime"):
                found &= _times(block, block.starts_of(rows, self.places[name]), column)
            elif name in ("source", "id", "model", "system"):
                # Bytes with the closing quotation mark; longer names are counted in characters
                # by `read_event`.
                length = pc.binary_length(column)
                found &= _mask(pc.greater(length, 1)) & _mask(pc.less_equal(length, MAX_NAME))
        return found

    def _parsed(self, rows: Ints, columns: dict[str, Any]) -> Parsed:
        occurred, columns["time"] = _instants(columns["time"])
        received = None
        if "receivedtime" in columns:
            received, _ = _instants(columns["receivedtime"])
        columns["samples"] = pc.ascii_trim(columns["samples"], self.before + self.after)
        parts = [columns[text] if named else pa.scalar(text) for named, text in self.template]
        return Parsed(
            rows=rows,
            keys=pc.binary_join_element_wise(columns["source"], columns["id"], ""),
            contents=pc.binary_join_element_wise(*parts, ""),
            occurred=occurred,
            received=received,
            models=columns["model"].dictionary_encode(),
            systems=columns["system"].dictionary_encode(),
            samples=columns["samples"].cast(pa.int64()).to_numpy(),
        )


def learn(line: bytes) -> Shape | None:
    """The shape of `line` (without line feed); None when it is no event or not plainly written."""
    try:
        read_event(line)
    except (Refusal, NegativeVolume):
        return None
    event = cast("dict[str, object]", canonical.loads(line))
    parts = line.split(b'"')
    pieces = [*(part + b'"' for part in parts[:-1]), parts[-1] + b"\n"]
    strings: list[str] = []  # what must stand between the quotation marks, in order
    places: dict[str, int] = {}
    volume = -1
    for key, value in event.items():
        strings.append(key)
        if key == "data":
            for name, inner in cast("dict[str, object]", value).items():
                strings.append(name)
                if isinstance(inner, str):
                    places[name] = 2 * len(strings) + 1
                    strings.append(inner)
                else:
                    volume = 2 * len(strings)
        elif isinstance(value, str) and key.isascii():
            if key in _VALUES:
                places[key] = 2 * len(strings) + 1
            elif key not in ("specversion", "type", "datacontenttype"):
                places[f"@{key}"] = 2 * len(strings) + 1
            strings.append(value)
        else:
            return None
    written = [text.encode("utf-8", "surrogatepass") + b'"' for text in strings]
    number = re.fullmatch(rb"([^\d-]+)\d+(\D+)", pieces[volume], re.DOTALL)
    if pieces[1::2] != written or number is None:
        return None
    return Shape(
        pieces=len(pieces),
        fixed=_runs(pieces, {*places.values(), volume}),
        places=places,
        volume=volume,
        before=number[1].decode(),
        after=number[2].decode(),
        template=_template(event),
    )


def _runs(pieces: list[bytes], values: set[int]) -> dict[int, bytes]:
    """Neighbouring fixed pieces in one, by the first of them."""
    runs: dict[int, bytes] = {}
    start = None
    for number, text in enumerate(pieces):
        if number in values:
            start = None
        elif start is None:
            start = number
            runs[start] = text
        else:
            runs[start] += text
    return runs


def _template(event: Mapping[str, object]) -> tuple[tuple[bool, str], ...]:
    """RFC 8785 text of the content: keys sorted, (True, column) where a value goes.

    A column of text brings its closing quotation mark along.
    """
    parts: list[tuple[bool, str]] = []
    fixed = "{"
    for key in sorted(set(event) - {"receivedtime"}):
        fixed += f'"{key}":'
        if key == "data":
            fixed += '{"model":"'
            parts += [(False, fixed), (True, "model"), (False, ',"samples":'), (True, "samples")]
            parts += [(False, ',"system":"'), (True, "system")]
            fixed = "},"
        elif key in ("specversion", "type", "datacontenttype"):
            fixed += f'"{event[key]}",'
        else:
            name = key if key in _VALUES else f"@{key}"
            parts += [(False, fixed + '"'), (True, name)]
            fixed = ","
    return (*parts, (False, fixed.removesuffix(",") + "}"))


def _times(block: Block, starts: Ints, column: Any) -> Mask:
    """Which of the times that begin at `starts` are plain.

    A column of nothing but `2026-11-03T08:00:00Z` is left to Arrow's parser, which takes such text
    exactly where the day and the time exist; anything else is matched text by text.
    """
    same = block.holds(starts + 10, b"T") & block.holds(starts + 19, b'Z"')
    if same.all() and _all_plain(column):
        try:
            moments = pc.ascii_rtrim(column, '"').cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid:
            return _mask(pc.match_substring_regex(column, _TIME))
        value = moments.cast(pa.int64()).to_numpy()
        return cast(Mask, (value >= _FIRST_MOMENT) & (value < _LAST_MOMENT))
    return _mask(pc.match_substring_regex(column, _TIME))


def _all_plain(column: Any) -> bool:
    return bool(pc.all(pc.equal(pc.binary_length(column), _PLAIN_TIME_LENGTH)).as_py())


def _instants(column: Any) -> tuple[Ints, Any]:
    """Microseconds since 1970, and the text that the content has for them, still quoted."""
    text = pc.ascii_rtrim(column, '"')
    plain = _all_plain(column)
    if not plain:
        # Digits beyond the microsecond are not kept, as `parse_instant` does not keep them.
        text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    moments = text.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    if plain:
        return moments, column
    written = pa.array(np.datetime_as_string(moments.view("datetime64[us]")))
    written = pc.replace_substring_regex(written, r"\.000000\z", "")
    return moments, pc.binary_join_element_wise(written, 'Z"', "")


def _mask(found: Any) -> Mask:
    return cast(Mask, found.to_numpy(zero_copy_only=False).copy())
