"""Keys: which of the events under one (source, id) stands for all of them.

In: columns of events, contents stored before. Out: which rows are repetitions, which are in
conflict and among how many contents.
Never here: a period, a preference between two contents.

Of equal events the one received first stands for all (those without a time of receipt last, then
the lower line), so the order of lines is irrelevant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from metering.usage.batch import NO_TIME, Columns, key_text
from metering.usage.shapes import Ints

__all__ = ["Settled", "settle"]

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Settled:
    """Rows that do not stand for their key. `contents`: how many contents a conflict is among."""

    duplicate: Ints
    conflict: Ints
    contents: Mapping[int, int]


def settle(columns: Columns, stored: Mapping[tuple[str, str], str]) -> Settled:
    """Settle the keys of `columns` against each other and against `stored` content digests."""
    none = np.zeros(0, np.int64)
    encoded = columns.keys.dictionary_encode()
    chunks = [chunk for chunk in encoded.chunks if len(chunk)]
    if not chunks:
        return Settled(none, none, {})
    keys = chunks[-1].dictionary
    if len(keys) == len(columns) and not stored:
        return Settled(none, none, {})
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)
    is_stored, before = _stored(keys, stored)
    group = is_stored | (np.bincount(codes, minlength=len(keys)) > 1)
    rows = np.flatnonzero(group[codes])
    if not len(rows):
        return Settled(none, none, {})
    received = columns.received[rows]
    unknown = received == NO_TIME
    arrival = np.where(unknown, columns.occurred[rows], received)
    rows = rows[np.lexsort((columns.lines[rows], arrival, unknown, codes[rows]))]
    codes = codes[rows]
    contents = _words(columns.contents[rows])
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    sizes = np.diff(np.concatenate((starts, [len(rows)])))
    leader = np.repeat(starts, sizes)
    kept = is_stored[codes]
    standard = np.where(kept[:, None], before[codes], contents[leader])
    differs = (contents != standard).any(axis=1)
    torn = np.repeat(np.logical_or.reduceat(differs, starts), sizes)
    # What equals the stored content repeats it, whatever else came under its key.
    conflict = torn & ~(kept & ~differs)
    first = np.zeros(len(rows), np.bool_)
    first[starts] = True
    duplicate = ~conflict & ~(first & ~kept)
    return Settled(
        duplicate=rows[duplicate],
        conflict=rows[conflict],
        contents=_count(rows, codes, contents, conflict, kept, before),
    )


def _stored(keys: Any, stored: Mapping[tuple[str, str], str]) -> tuple[Mask, Words]:
    """By key: whether it was stored before, and the digest of what was stored as four words."""
    found = np.zeros(len(keys), np.bool_)
    before = np.zeros((len(keys), 4), np.uint64)
    if stored:
        names = pa.array([key_text(*key) for key in stored], keys.type)
        places = pc.index_in(keys, value_set=names).fill_null(-1).to_numpy()
        found = places >= 0
        digests = np.frombuffer(b"".join(map(bytes.fromhex, stored.values())), np.uint8)
        before[found] = _words(digests.reshape(-1, 32))[places[found]]
    return found, before


def _count(
    rows: Ints, codes: Ints, contents: Words, conflict: Mask, kept: Mask, before: Words
) -> dict[int, int]:
    """How many contents there are under the key of each conflicting row."""
    seen: dict[int, set[bytes]] = {}
    for place in np.flatnonzero(conflict).tolist():
        code = int(codes[place])
        known = seen.setdefault(code, {before[code].tobytes()} if kept[place] else set())
        known.add(contents[place].tobytes())
    return {int(rows[p]): len(seen[int(codes[p])]) for p in np.flatnonzero(conflict).tolist()}


def _words(digests: npt.NDArray[np.uint8]) -> Words:
    return np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 4)
