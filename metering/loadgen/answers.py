"""How the answers of each task are written into LoadGen's accuracy log, and read back from it.

In: what a system returned, or the bytes of ``mlperf_log_accuracy.json``. Out: bytes per answer, or
answers with their library positions. An embedding is its float32 values, a text is UTF-8, generated
tokens are int32, all little-endian; in the log they stand in hex. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from metering.loadgen.spec import RunSpec

TOKEN_BYTES = 4


@dataclass(frozen=True)
class Record:
    """One answer of the log. ``first`` and ``tokens`` are LoadGen's own, in token mode only."""

    position: int
    data: bytes
    first: bytes | None = None
    tokens: int | None = None


def encode_texts(texts: Sequence[str], count: int) -> list[bytes]:
    """UTF-8 of ``count`` texts. Raises ValueError when there are not so many texts."""
    if len(texts) != count or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"the system returned {len(texts)} answers, wanted {count} texts")
    return [text.encode() for text in texts]


def encode_tokens(tokens: Sequence[int]) -> bytes:
    """Little-endian int32. Raises ValueError for what is no token id."""
    ids = np.asarray(tokens, dtype=np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < 2**31:
        raise ValueError(f"token ids from {ids.min()} to {ids.max()}, wanted 0 to {2**31 - 1}")
    return ids.astype("<i4").tobytes()


def decode_tokens(data: bytes) -> list[int]:
    return [int(token) for token in np.frombuffer(data, dtype="<i4")]


def read_records(accuracy: bytes) -> list[Record]:
    """Every answer of a whole log, in library order. Raises ValueError, TypeError, KeyError."""
    return sorted(map(_record, json.loads(accuracy)), key=lambda record: record.position)


def _record(entry: Any) -> Record:
    first = entry.get("token_data")
    return Record(
        position=int(entry["qsl_idx"]),
        data=bytes.fromhex(entry["data"]),
        first=None if first is None else bytes.fromhex(first),
        tokens=entry.get("token_count"),
    )


def wrong_answers(spec: RunSpec, records: Sequence[Record]) -> list[str]:
    """What is wrong with the form of the answers; whether they are right is not asked here."""
    if spec.task == "embedding":
        sizes = {len(record.data) for record in records}
        if len(sizes) != 1 or sizes.pop() % 4 != 0:
            return ["the outputs differ in size or are not whole float32 values"]
        return []
    check = _wrong_text if spec.task == "text_recognition" else _wrong_tokens
    reasons = ((record.position, check(spec, record)) for record in records)
    return [f"sample {position}: {reason}" for position, reason in reasons if reason]


def _wrong_text(spec: RunSpec, record: Record) -> str:
    try:
        record.data.decode()
    except UnicodeDecodeError:
        return "its text is not UTF-8"
    return ""


def _wrong_tokens(spec: RunSpec, record: Record) -> str:
    if len(record.data) % TOKEN_BYTES:
        return "its answer is not whole int32 tokens"
    tokens = decode_tokens(record.data)
    if not 2 <= len(tokens) <= spec.max_new_tokens:
        return f"an answer of {len(tokens)} tokens, wanted 2 to {spec.max_new_tokens}"
    if spec.end_token in tokens[:-1]:
        return "tokens after the end token"
    if len(tokens) < spec.max_new_tokens and spec.end_token != tokens[-1]:
        return "an answer that ends before its limit and without the end token"
    if record.tokens != len(tokens):
        return f"LoadGen was told of {record.tokens} tokens, the answer has {len(tokens)}"
    if record.first not in (None, record.data[:TOKEN_BYTES]):
        return "the token reported first is not the first of the answer"
    return ""


def embeddings(records: Sequence[Record]) -> npt.NDArray[np.float32]:
    """(n, d) float32 of n records of the task embedding."""
    joined = b"".join(record.data for record in records)
    return np.frombuffer(joined, dtype="<f4").reshape(len(records), -1)
