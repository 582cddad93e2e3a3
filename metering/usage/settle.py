"""Keys: which of the events under one (source, id) stands for all of them.

In: columns of events, contents stored before, what people decided. Out: which rows are
repetitions, which are in conflict and among how many contents.
Never here: a period, a preference between two contents that no person stated.

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

from metering.refusal import Refusal
from metering.usage.batch import NO_TIME, Columns, key_text
from metering.usage.decisions import Decision, Decisions
from metering.usage.shapes import Ints

__all__ = ["Settled", "settle"]

Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Settled:
    """Rows that do not stand for their key.

    `contents`: how many contents a conflict is among. `decided`: of rows in conflict, the decision
    by which other content stands for their key.
    """

    duplicate: Ints
    conflict: Ints
    contents: Mapping[int, int]
    decided: Mapping[int, Decision]


def settle(
    columns: Columns,
    stored: Mapping[tuple[str, str], str],
    decisions: Decisions | None = None,
) -> Settled:
    """Settle the keys of `columns` against each other and against `stored` content digests.

    A decision holds while every content under its key is one it was made between; then the decided
    content stands for the key, and the others remain in conflict.
    """
    none = np.zeros(0, np.int64)
    encoded = columns.keys.dictionary_encode()
    chunks = [chunk for chunk in encoded.chunks if len(chunk)]
    if not chunks:
        return Settled(none, none, {}, {})
    keys = chunks[-1].dictionary
    if len(keys) == len(columns) and not stored and not decisions:
        return Settled(none, none, {}, {})
    codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)
    is_stored, before = _stored(keys, stored)
    group = is_stored | (np.bincount(codes, minlength=len(keys)) > 1)
    ruling = _in_force(columns, keys, codes, stored, decisions or {})
    ruled, chosen = np.zeros(len(keys), np.bool_), before.copy()
    for code, decision in ruling.items():
        group[code] = ruled[code] = True
        chosen[code] = _words(np.frombuffer(bytes.fromhex(decision.content), np.uint8))
    rows = np.flatnonzero(group[codes])
    if not len(rows):
        return Settled(none, none, {}, {})
    received = columns.received[rows]
    unknown = received == NO_TIME
    arrival = np.where(unknown, columns.occurred[rows], received)
    # What a decision set aside comes last, so that the first of a key can stand for it.
    wrong = ruled[codes[rows]] & _differ(_words(columns.contents[rows]), chosen[codes[rows]])
    rows = rows[np.lexsort((columns.lines[rows], arrival, unknown, wrong, codes[rows]))]
    codes = codes[rows]
    contents = _words(columns.contents[rows])
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    sizes = np.diff(np.concatenate((starts, [len(rows)])))
    leader = np.repeat(starts, sizes)
    kept = is_stored[codes]
    settled = kept | ruled[codes]
    standard = np.where(settled[:, None], chosen[codes], contents[leader])
    differs = _differ(contents, standard)
    torn = np.repeat(np.logical_or.reduceat(differs, starts), sizes)
    # What equals the stored or decided content is no conflict, whatever else came under its key.
    conflict = torn & ~(settled & ~differs)
    first = np.zeros(len(rows), np.bool_)
    first[starts] = True
    duplicate = ~conflict & ~(first & ~kept)
    return Settled(
        duplicate=rows[duplicate],
        conflict=rows[conflict],
        contents=_count(rows, codes, contents, conflict, kept, before),
        decided={
            int(rows[place]): ruling[int(codes[place])]
            for place in np.flatnonzero(conflict & ruled[codes]).tolist()
        },
    )


def _in_force(
    columns: Columns,
    keys: Any,
    codes: Ints,
    stored: Mapping[tuple[str, str], str],
    decisions: Decisions,
) -> dict[int, Decision]:
    """By key's number, the decisions that hold: no content came that they did not look at."""
    if not decisions:
        return {}
    ordered = list(decisions.values())
    names = pa.array([key_text(*decision.key) for decision in ordered], keys.type)
    places = pc.index_in(names, value_set=keys).to_pylist()
    named = {
        code: decision for code, decision in zip(places, ordered, strict=True) if code is not None
    }
    seen: dict[int, set[str]] = {code: set() for code in named}
    for row in np.flatnonzero(np.isin(codes, list(named))).tolist():
        seen[int(codes[row])].add(columns.contents[row].tobytes().hex())
    holding = {}
    for code, decision in named.items():
        before = stored.get(decision.key)
        if (seen[code] | ({before} if before else set())) <= set(decision.contents):
            if before not in (None, decision.content):
                raise Refusal(
                    "decisions", f"{decision.key} decided for {decision.content}",
                    f"{before}, which counts already", "correct the totals it counts in",
                )  # fmt: skip
            holding[code] = decision
    return holding


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


def _differ(contents: Words, standard: Words) -> Mask:
    """Whether each row's digest is another than the one beside it."""
    differ: Mask = (contents != standard).any(axis=1)
    return differ


def _words(digests: npt.NDArray[np.uint8]) -> Words:
    return np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 4)
