"""Which response ids LoadGen waits for: each may be completed exactly once.

In: ids as queries arrive, outputs as systems return them. Out: calls to LoadGen. An id is a raw C++
pointer: an unknown one is a segmentation fault, a second completion is an error line under a
verdict that still reads VALID. Both are refused here, before LoadGen sees them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class CompletionError(RuntimeError):
    """A completion that LoadGen must never see."""


class CompletionLedger:
    """Thread-safe; one per test. ``loadgen`` is the ``mlperf_loadgen`` module."""

    def __init__(self, loadgen: Any, *, whole_outputs: bool) -> None:
        self._loadgen = loadgen
        self._whole_outputs = whole_outputs
        self._outstanding: set[int] = set()
        self._lock = threading.Lock()
        self.issued = 0
        self.completed = 0

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
        with self._lock:
            for response_id in ids:
                if response_id not in self._outstanding:
                    raise CompletionError(
                        "a sample was completed twice, or a response id was never issued"
                    )
                self._outstanding.remove(response_id)
        row_bytes = rows.strides[0]
        size = row_bytes if self._whole_outputs else min(8, row_bytes)
        address = rows.ctypes.data
        responses = [
            self._loadgen.QuerySampleResponse(response_id, address + row_bytes * row, size)
            for row, response_id in enumerate(ids)
        ]
        # LoadGen copies from a raw pointer inside this call: ``rows`` stays alive until it returns.
        self._loadgen.QuerySamplesComplete(responses)
        with self._lock:
            self.completed += len(ids)
