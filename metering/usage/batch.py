"""Batches: the lines of a file or a delivery, as columns.

In: lines of text or bytes, or an open binary file.
Out: one `EventBatch`: the events that can be counted, the lines that cannot and why, the number
of rows and the SHA-256 of the input as it came. Memory grows by about 150 bytes an event.
Never here: de-duplication (that needs the whole batch, see `aggregate`), a line dropped.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metering import canonical
from metering.refusal import Refusal
from metering.usage.events import NegativeVolume, Refused, UsageEvent, read_event
from metering.usage.shapes import Block, Ints, Parsed, Shape, learn

__all__ = ["NO_TIME", "Columns", "EventBatch", "key_text", "microseconds", "moment", "read_events"]

BLOCK_BYTES = 4 * 2**20
# Far beyond the longest line that can be an event; memory must not follow a file without lines.
MAX_UNBROKEN_BYTES = 256 * 2**20
# A writer has a handful of shapes; a file that mixes more is read line by line beyond these.
MAX_SHAPES = 16
# Lines that no shape took and that are tried as examples, in one block.
MAX_EXAMPLES = 32
NO_TIME = np.iinfo(np.int64).min
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, eq=False)
class Columns:
    """Events side by side, in no particular order; row i of every column is one event.

    `keys`: (source, id) as `key_text` writes them. `contents`: SHA-256 digests, 32 bytes a row.
    Times: microseconds since 1970, `received` NO_TIME when there is none. `pairs`: index into
    `names`, the (model, system) pairs that occur.
    """

    lines: Ints
    keys: Any
    contents: npt.NDArray[np.uint8]
    occurred: Ints
    received: Ints
    pairs: npt.NDArray[np.int32]
    names: tuple[tuple[str, str], ...]
    samples: Ints

    def __len__(self) -> int:
        return len(self.lines)

    def event(self, row: int) -> UsageEvent:
        """Row `row` as an event."""
        source, identifier = _key(self.keys[row].as_py())
        model, system = self.names[self.pairs[row]]
        received = int(self.received[row])
        return UsageEvent(
            source=source,
            id=identifier,
            occurred_at=moment(int(self.occurred[row])),
            received_at=None if received == NO_TIME else moment(received),
            model=model,
            system=system,
            samples=int(self.samples[row]),
            content=self.contents[row].tobytes().hex(),
            line=int(self.lines[row]),
        )


@dataclass(frozen=True, eq=False)
class EventBatch:
    """A file or request as read: rows = events + refused. Blank lines are not rows."""

    columns: Columns
    refused: tuple[Refused, ...]
    rows: int
    sha256: str

    @cached_property
    def events(self) -> tuple[UsageEvent, ...]:
        """The countable events in the order of their lines."""
        order = np.argsort(self.columns.lines, kind="stable")
        return tuple(self.columns.event(int(row)) for row in order)


def read_events(lines: Iterable[str | bytes]) -> EventBatch:
    """Read JSON lines. Never raises on a bad line: it is refused with its number and reason.

    The digest covers each line without its line ending, joined by line feeds, so a file hashes
    the same however it was split. A binary file is read in blocks, anything else line by line.
    """
    reader = _Reader()
    if isinstance(lines, io.BufferedIOBase | io.RawIOBase):
        for data in _blocks(cast("io.BufferedIOBase", lines)):
            reader.take(data)
    else:
        for data, odd in _joined(lines):
            reader.take(data, odd)
    return reader.batch()


def key_text(source: str, identifier: str) -> str:
    """(source, id) as one text that no other pair has: both as JSON, each closed by its quote."""
    return _json_text(source) + _json_text(identifier)


def microseconds(instant: datetime) -> int:
    """Whole microseconds since 1970 of an aware time."""
    return (instant - _EPOCH) // _MICROSECOND


def moment(value: int) -> datetime:
    """Inverse of `microseconds`."""
    return _EPOCH + timedelta(microseconds=value)


class _Reader:
    """Takes blocks of lines one after the other; every line ends in a column or is refused."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._shapes: list[Shape] = []
        self._parts: list[tuple[Any, ...]] = []
        self._names: dict[tuple[str, str], int] = {}
        self._refused: list[Refused] = []
        self._rows = 0
        self._lines = 0

    def take(self, data: bytes, odd: dict[int, bytes] | None = None) -> None:
        """Read one block of whole lines; `odd` are lines of it that hold line feeds themselves."""
        if b"\r" in data:
            data = re.sub(rb"\r+\n", b"\n", data)
        if not odd:
            self._digest.update(data)
        block = Block(data)
        if odd:
            for number in range(len(block)):
                self._digest.update(odd.get(number, block.line(number)) + b"\n")
        left = self._by_shapes(block)
        events: list[UsageEvent] = []
        for number in np.flatnonzero(left).tolist():
            line = odd[number] if odd and number in odd else block.line(number)
            if not line.strip():
                continue
            self._rows += 1
            self._by_itself(line, self._lines + number + 1, events)
        if events:
            self._add_events(events)
        self._lines += len(block)

    def batch(self) -> EventBatch:
        """Everything taken so far."""
        if not self._parts:
            self._add_events([])
        lines, keys, contents, occurred, received, pairs, samples = zip(*self._parts, strict=True)
        columns = Columns(
            lines=np.concatenate(lines),
            keys=pa.chunked_array(keys, pa.string()),
            contents=np.frombuffer(b"".join(contents), np.uint8).reshape(-1, 32),
            occurred=np.concatenate(occurred),
            received=np.concatenate(received),
            pairs=np.concatenate(pairs),
            names=tuple(self._names),
            samples=np.concatenate(samples),
        )
        refused = tuple(sorted(self._refused, key=lambda item: item.line))
        return EventBatch(columns, refused, self._rows, self._digest.hexdigest())

    def _by_shapes(self, block: Block) -> npt.NDArray[np.bool_]:
        """Read what the shapes recognise; the mask of the lines that are left."""
        left = np.ones(len(block), np.bool_)
        for shape in self._shapes:
            self._use(shape, block, left)
        examples = 0
        while len(self._shapes) < MAX_SHAPES and examples < MAX_EXAMPLES:
            candidates = np.flatnonzero(left & block.plain & (block.pieces > 1))
            if len(candidates) <= examples:
                break
            found = learn(block.line(int(candidates[examples])))
            examples += 1
            if found is not None and found not in self._shapes:
                self._shapes.append(found)
                self._use(found, block, left)
                examples = 0
        return left

    def _use(self, shape: Shape, block: Block, left: npt.NDArray[np.bool_]) -> None:
        parsed = shape.parse(block, left & block.plain)
        if parsed is not None:
            left[parsed.rows] = False
            self._rows += len(parsed.rows)
            self._add_parsed(parsed)

    def _by_itself(self, line: bytes, number: int, events: list[UsageEvent]) -> None:
        try:
            events.append(read_event(line, number))
        except NegativeVolume as error:
            self._refused.append(Refused(number, "negative", str(error), error.key))
        except Refusal as error:
            self._refused.append(Refused(number, "malformed", str(error)))

    def _add_parsed(self, parsed: Parsed) -> None:
        received = parsed.received
        self._parts.append(
            (
                parsed.rows + (self._lines + 1),
                parsed.keys,
                _digests(parsed.contents),
                parsed.occurred,
                np.full(len(parsed.rows), NO_TIME) if received is None else received,
                self._pairs(parsed),
                parsed.samples,
            )
        )

    def _pairs(self, parsed: Parsed) -> npt.NDArray[np.int32]:
        """Index of each row's (model, system) among all pairs seen."""
        models, systems = parsed.models, parsed.systems
        width = len(systems.dictionary)
        both = models.indices.to_numpy().astype(np.int64) * width + systems.indices.to_numpy()
        present, inverse = np.unique(both, return_inverse=True)
        model_names, system_names = models.dictionary.to_pylist(), systems.dictionary.to_pylist()
        numbers = [
            self._pair(model_names[code // width][:-1], system_names[code % width][:-1])
            for code in present.tolist()
        ]
        return np.array(numbers, np.int32)[inverse]

    def _pair(self, model: str, system: str) -> int:
        return self._names.setdefault((model, system), len(self._names))

    def _add_events(self, events: list[UsageEvent]) -> None:
        self._parts.append(
            (
                np.array([event.line for event in events], np.int64),
                pa.array([key_text(*event.key) for event in events], pa.string()),
                b"".join(bytes.fromhex(event.content) for event in events),
                np.array([microseconds(event.occurred_at) for event in events], np.int64),
                np.array(
                    [
                        NO_TIME if event.received_at is None else microseconds(event.received_at)
                        for event in events
                    ],
                    np.int64,
                ),
                np.array([self._pair(event.model, event.system) for event in events], np.int32),
                np.array([event.samples for event in events], np.int64),
            )
        )


def _blocks(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Whole lines of a file, about `BLOCK_BYTES` at a time; the last line gets its line feed."""
    waiting: list[bytes] = []
    while data := stream.read(BLOCK_BYTES):
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            waiting.append(data)
            if sum(map(len, waiting)) > MAX_UNBROKEN_BYTES:
                raise Refusal(
                    "file",
                    f"{MAX_UNBROKEN_BYTES} bytes on one line",
                    "a line feed after each event",
                )
            continue
        yield b"".join([*waiting, data[:cut]])
        waiting = [data[cut:]]
    if rest := b"".join(waiting):
        yield rest + b"\n"


def _joined(lines: Iterable[str | bytes]) -> Iterator[tuple[bytes, dict[int, bytes]]]:
    """The same blocks from single lines, with those lines that hold line feeds themselves."""
    held: list[bytes] = []
    odd: dict[int, bytes] = {}
    size = 0
    for raw in lines:
        line = (raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw).rstrip(
            b"\r\n"
        )
        if b"\n" in line:
            odd[len(held)] = line
            line = b""
        held.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield b"\n".join(held) + b"\n", odd
            held, odd, size = [], {}, 0
    if held:
        yield b"\n".join(held) + b"\n", odd


def _digests(contents: Any) -> bytes:
    """SHA-256 of each content, one after the other."""
    digest = hashlib.sha256
    return b"".join([digest(text).digest() for text in contents.cast(pa.binary()).to_pylist()])


def _json_text(text: str) -> str:
    return canonical.dumps(text).decode()[1:]


def _key(text: str) -> tuple[str, str]:
    if "\\" not in text:
        source, identifier, _ = text.split('"')
        return source, identifier
    text = '"' + text
    source, end = json.JSONDecoder().raw_decode(text)
    return source, json.loads('"' + text[end:])
