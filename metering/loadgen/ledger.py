"""Which response ids LoadGen waits for: each may be completed exactly once.

In: ids as queries arrive, outputs as systems return them. Out: calls to LoadGen. An id is a raw C++
pointer: an unknown one is a segmentation fault, a second completion is an error line under a
verdict that still reads VALID. In token mode a completion without a first token is a segmentation
fault, and an answer of one token a nonsense time per token. All are refused here, before LoadGen
sees them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from metering.loadgen.answers import TOKEN_BYTES, encode_tokens


class CompletionError(RuntimeError):
    """A completion that LoadGen must never see."""


class CompletionLedger:
    """Thread-safe; one per test. ``loadgen`` is the ``mlperf_loadgen`` module.

    ``first_tokens``: every answer has to be begun with :meth:`begin` before it is completed.
    """

    def __init__(self, loadgen: Any, *, whole_outputs: bool, first_tokens: bool = False) -> None:
        self._loadgen = loadgen
        self._whole_outputs = whole_outputs
        self._first_tokens = first_tokens
        self._outstanding: set[int] = set()
        self._begun: set[int] = set()
        self._lock = threading.Lock()
        self.issued = 0
        self.completed = 0
        self.tokens = 0
        """Generated so far, of unfinished answers too: a sign of life, counted without a lock."""

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def admit(self, ids: Sequence[int]) -> None:
        """Register the ids of one query."""
        with self._lock:
            before = len(self._outstanding)
            self._outstanding.update(ids)
            if len(self._outstanding) != before + len(ids):
                raise CompletionError("LoadGen issued a response id that is still outstanding")
            self.issued += len(ids)

    def begin(self, response_id: int, first: bytes) -> None:
        """Report the first token of an answer: LoadGen takes the time of this call."""
        with self._lock:
            if response_id not in self._outstanding or response_id in self._begun:
                raise CompletionError("a first token of an answer that has begun or ended before")
            self._begun.add(response_id)
        if self._first_tokens:
            data = np.frombuffer(first, dtype=np.uint8)
            response = self._loadgen.QuerySampleResponse(response_id, data.ctypes.data, data.nbytes)
            self._loadgen.FirstTokenComplete([response])

    def complete(self, ids: Sequence[int], outputs: npt.NDArray[np.float32]) -> None:
        """Answer ``ids`` with the rows of ``outputs`` (n, d) float32, in order.

        Raises CompletionError for a wrong shape, or an id unknown or completed before.
        """
        rows = np.ascontiguousarray(outputs)
        if rows.dtype != np.float32 or rows.ndim != 2 or len(rows) != len(ids) or rows.size == 0:
            raise CompletionError(
                f"the system returned {rows.dtype} {rows.shape} for {len(ids)} samples, "
                f"wanted float32 ({len(ids)}, d)"
            )
        self._settle(ids)
        row_bytes = rows.strides[0]
        size = row_bytes if self._whole_outputs else min(8, row_bytes)
        address = rows.ctypes.data
        responses = [
            self._loadgen.QuerySampleResponse(response_id, address + row_bytes * row, size)
            for row, response_id in enumerate(ids)
        ]
        # LoadGen copies from a raw pointer inside this call: ``rows`` stays alive until it returns.
        self._loadgen.QuerySamplesComplete(responses)
        self._count(len(ids))

    def complete_bytes(self, ids: Sequence[int], answers: Sequence[bytes]) -> None:
        """Answer ``ids`` with bytes of any length, in order; raises as :meth:`complete`."""
        self._settle(ids)
        # One byte more, so that an empty answer has an address too.
        joined = np.frombuffer(b"".join(answers) + b"\0", dtype=np.uint8)
        address, responses = joined.ctypes.data, []
        for response_id, answer in zip(ids, answers, strict=True):
            size = len(answer) if self._whole_outputs else min(8, len(answer))
            responses.append(self._loadgen.QuerySampleResponse(response_id, address, size))
            address += len(answer)
        self._loadgen.QuerySamplesComplete(responses)
        self._count(len(ids))

    def complete_tokens(self, response_id: int, tokens: Sequence[int]) -> None:
        """Answer ``response_id`` with generated token ids; raises as :meth:`complete`."""
        if len(tokens) < 2:
            raise CompletionError(
                f"an answer of {len(tokens)} tokens has no time per output token; leave its prompt "
                "out of the library"
            )
        with self._lock:
            if response_id not in self._begun:
                raise CompletionError("an answer was completed before its first token")
            self._begun.remove(response_id)
        self._settle([response_id])
        data = np.frombuffer(encode_tokens(tokens), dtype=np.uint8)
        size = data.nbytes if self._whole_outputs else TOKEN_BYTES
        response = self._loadgen.QuerySampleResponse(
            response_id, data.ctypes.data, size, len(tokens)
        )
        self._loadgen.QuerySamplesComplete([response])
        self._count(1)

    def _settle(self, ids: Sequence[int]) -> None:
        with self._lock:
            for response_id in ids:
                if response_id not in self._outstanding:
                    raise CompletionError(
                        "a sample was completed twice, or a response id was never issued"
                    )
                self._outstanding.remove(response_id)

    def _count(self, answers: int) -> None:
        with self._lock:
            self.completed += answers
