"""The LoadGen side of one test: threads, batches and callbacks around opened systems.

In: a spec, the library, and a function that opens a system. Out: a finished test whose logs lie in
the run folder. LoadGen's callbacks only enqueue; systems run on their own threads. Any exception
anywhere ends the process at once through ``fail``: an exception that reaches LoadGen's C++ side
ends in a segmentation fault later, with the reason lost.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy.typing as npt

from metering.loadgen.arrange import arrange
from metering.loadgen.ledger import CompletionLedger
from metering.loadgen.settings import needs_first_token, test_settings
from metering.loadgen.spec import RunSpec
from metering.loadgen.tasks import OpenSystem, Worker, open_worker

Fail = Callable[[str, BaseException], NoReturn]

OPENING = "opening"
"""The phase until every instance is open and warm; a stack that compiles does so in it."""

_HEARTBEAT_S = 0.1
_WARMUP_BATCHES = 64
# Scenarios whose queries have many samples.
_CUT = ("Offline", "MultiStream")


class Harness:
    """One test of one spec; use once."""

    def __init__(
        self,
        spec: RunSpec,
        library: Sequence[npt.NDArray[Any]],
        open_system: OpenSystem,
        fail: Fail,
        loadgen: Any,
    ) -> None:
        self.spec = spec
        self.library = library
        whole = spec.mode == "accuracy" or spec.sampled_outputs > 0
        self.ledger = CompletionLedger(
            loadgen, whole_outputs=whole, first_tokens=needs_first_token(spec)
        )
        # What an arrangement sorts by: tokens of a text, columns of an image.
        self._lengths = [sample.shape[-1] for sample in library]
        self.phase = OPENING
        self._open_system = open_system
        self._fail = fail
        self._loadgen = loadgen
        self._queries: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[None] = queue.SimpleQueue()

    @contextlib.contextmanager
    def _guard(self, where: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._fail(where, error)

    # LoadGen's callbacks: on its threads, holding the GIL, so they must return at once.

    def issue_query(self, samples: Any) -> None:
        with self._guard("issue_query"):
            target = self._queries if self.spec.scenario in _CUT else self._work
            target.put(samples)

    def flush_queries(self) -> None:
        """Nothing is held back, so there is nothing to flush."""

    def load_samples(self, indices: Any) -> None:
        with self._guard("load_samples"):
            if max(indices) >= len(self.library):
                raise IndexError(f"LoadGen asked for sample {max(indices)}")

    def unload_samples(self, indices: Any) -> None:
        """The library stays in memory for the whole process."""

    # Our threads.

    def _dispatch(self) -> None:
        """Cut each query of many samples into batches; this time is inside the measured query."""
        with self._guard("dispatch"):
            sut = self.spec.sut
            while (samples := self._queries.get()) is not None:
                pairs = [(sample.id, sample.index) for sample in samples]
                self.ledger.admit([pair[0] for pair in pairs])
                lengths = [self._lengths[index] for _, index in pairs]
                for batch in arrange(lengths, sut.arrangement, sut.batch):
                    self._work.put([pairs[position] for position in batch])

    def _serve(self, instance: int) -> None:
        with self._guard(f"instance {instance}"):
            spec = self.spec
            # Threads that a runtime starts inherit this mask, so instances do not share cores.
            os.sched_setaffinity(0, spec.instance_cores(instance))
            worker = open_worker(spec, self._open_system, self.ledger)
            self._warm_up(worker)
            self._ready.put(None)
            cut, server = spec.scenario in _CUT, spec.scenario == "Server"
            while (item := self._work.get()) is not None:
                if not cut:
                    samples = self._with_waiting(item) if server else item
                    item = [(sample.id, sample.index) for sample in samples]
                    self.ledger.admit([pair[0] for pair in item])
                worker.answer(
                    [pair[0] for pair in item], [self.library[index] for _, index in item]
                )
            worker.close()

    def _with_waiting(self, query: Any) -> list[Any]:
        """A Server query and those already waiting behind it, at most ``sut.batch`` in all."""
        samples = list(query)
        while len(samples) < self.spec.sut.batch:
            try:
                samples.extend(self._work.get_nowait())
            except queue.Empty:
                break
        return samples

    def _warm_up(self, worker: Worker) -> None:
        """Untimed calls over the library, in the arrangement of the test, within ``warmup_ms``."""
        sut = self.spec.sut
        batches = arrange(self._lengths, sut.arrangement, sut.batch)
        stride = max(1, len(batches) // _WARMUP_BATCHES)
        deadline = time.monotonic() + self.spec.warmup_ms / 1000
        for batch in batches[::stride]:
            if time.monotonic() >= deadline:
                return
            worker.warm_up([self.library[position] for position in batch])

    def _beat(self, path: Path) -> None:
        with self._guard("heartbeat"):
            while True:
                told = self.ledger
                path.write_text(f"{self.phase} {told.completed} {told.issued} {told.tokens}\n")
                time.sleep(_HEARTBEAT_S)

    def run(self, out: Path) -> None:
        """Open, warm up, run the test, check that nothing is outstanding."""
        loadgen, spec = self._loadgen, self.spec
        threading.Thread(target=self._beat, args=(out / "heartbeat",), daemon=True).start()
        threading.Thread(target=self._dispatch, daemon=True).start()
        servers = [
            threading.Thread(target=self._serve, args=(instance,), daemon=True)
            for instance in range(spec.sut.instances)
        ]
        for server in servers:
            server.start()
        for _ in servers:
            self._ready.get()
        self.phase = "testing"
        log_settings = loadgen.LogSettings()
        log_output = loadgen.LogOutputSettings()
        log_output.outdir = str(out)
        log_output.copy_summary_to_stdout = False
        log_settings.log_output = log_output
        # The trace is on by default and grows to hundreds of megabytes.
        log_settings.enable_trace = False
        sut = loadgen.ConstructSUT(self.issue_query, self.flush_queries)
        size = len(self.library)
        qsl = loadgen.ConstructQSL(size, size, self.load_samples, self.unload_samples)
        with self._guard("test"):
            # By default LoadGen reads audit.config of the current folder, which overrides the mode.
            loadgen.StartTestWithLogSettings(
                sut, qsl, test_settings(loadgen, spec), log_settings, str(out / "no-audit.config")
            )
            loadgen.DestroyQSL(qsl)
            loadgen.DestroySUT(sut)
            if self.ledger.outstanding:
                raise RuntimeError(f"{self.ledger.outstanding} samples were never completed")
        self.phase = "ended"
