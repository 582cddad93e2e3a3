"""A child program for tests only: the product's own child, with a system that misbehaves.

``hostile_child.py CASE SPEC OUT PARENT``. It reuses everything of ``metering.loadgen.child`` and
swaps one part, so that what is tested is the real harness and the real LoadGen. The product never
loads this file: the supervisor's public ``run`` has no way to name another child.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import mlperf_loadgen
import numpy as np

from metering.loadgen import child, harness, ledger

CASE = sys.argv[1]
WIDTH = 8


def outputs(count: int) -> np.ndarray:
    return np.ones((count, WIDTH), dtype=np.float32)


class Honest:
    def infer(self, batch):
        return outputs(len(batch))

    def close(self):
        pass


class Hostile(Honest):
    """``infer`` does what CASE says, once the test has started (never while warming up)."""

    def infer(self, batch):
        return ACTIONS[CASE](batch)


def never(batch):
    threading.Event().wait()


def never_holding_the_interpreter(batch):
    ctypes.PyDLL(None).sleep(3600)


def never_and_deaf(batch):
    threading.Event().wait()


def slow_but_alive(batch):
    threading.Event().wait(0.25)
    return outputs(len(batch))


def five_milliseconds(batch):
    threading.Event().wait(0.005)
    return outputs(len(batch))


def raises(batch):
    raise ValueError("model exploded")


def segfault(batch):
    ctypes.string_at(0)


def killed(batch):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_while_writing(batch):
    Path(f"../.error.json.{os.getpid()}.tmp").write_text('{"where": "inst')
    os.kill(os.getpid(), signal.SIGKILL)


def silent(batch):
    os._exit(0)


def silent_with_status(batch):
    os._exit(7)


def too_few_rows(batch):
    return outputs(len(batch) - 1)


def wrong_type(batch):
    return outputs(len(batch)).astype(np.float64)


def too_much_memory(batch):
    return np.ones(2**32)


def too_much_disk(batch):
    with open("big", "wb") as stream:
        for _ in range(64):
            stream.write(bytes(2**20))
    return outputs(len(batch))


def memory_in_processes(batch):
    code = "import time; held = b'x' * (300 << 20); time.sleep(3600)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", code])
    threading.Event().wait()


def many_small_files(batch):
    for number in range(40):
        Path(f"part-{number}").write_bytes(bytes(100_000))
    threading.Event().wait()


def files_in_the_temporary_folder(batch):
    for _ in range(40):
        handle, _name = tempfile.mkstemp()
        os.write(handle, bytes(100_000))
    threading.Event().wait()


def leaves_a_daemon(batch):
    """In a session of its own, its parent gone: no signal to the group finds it."""
    code = "import subprocess; subprocess.Popen(['sleep', '3600'], start_new_session=True)"
    subprocess.run([sys.executable, "-S", "-c", code], start_new_session=True, check=True)
    ACTIONS["leaves_a_daemon"] = five_milliseconds
    return outputs(len(batch))


def leaves_a_process(batch):
    process = subprocess.Popen(["sleep", "3600"])
    Path("../../grandchild.pid").write_text(str(process.pid))
    return outputs(len(batch))


ACTIONS = {
    action.__name__: action
    for action in (
        never,
        never_holding_the_interpreter,
        never_and_deaf,
        slow_but_alive,
        five_milliseconds,
        raises,
        segfault,
        killed,
        killed_while_writing,
        silent,
        silent_with_status,
        too_few_rows,
        wrong_type,
        too_much_memory,
        too_much_disk,
        memory_in_processes,
        many_small_files,
        files_in_the_temporary_folder,
        leaves_a_daemon,
        leaves_a_process,
    )
}


def complete_twice():
    real = ledger.CompletionLedger.complete

    def complete(self, ids, rows):
        real(self, ids, rows)
        real(self, ids, rows)

    ledger.CompletionLedger.complete = complete


def complete_twice_behind_the_ledger():
    real = ledger.CompletionLedger.complete

    def complete(self, ids, rows):
        responses = [mlperf_loadgen.QuerySampleResponse(i, rows.ctypes.data, 4) for i in ids[:1]]
        mlperf_loadgen.QuerySamplesComplete(responses)
        real(self, ids, rows)

    ledger.CompletionLedger.complete = complete


def complete_unknown():
    real = ledger.CompletionLedger.complete
    ledger.CompletionLedger.complete = lambda self, ids, rows: real(self, [12345], rows[:1])


def raise_in_issue_query():
    class Raising(harness.Harness):
        def issue_query(self, samples):
            self._queries = self._work = None  # the real callback fails inside LoadGen's call
            super().issue_query(samples)

    child.Harness = Raising


def raise_in_load_samples():
    class Raising(harness.Harness):
        def load_samples(self, indices):
            self.library = []
            super().load_samples(indices)

    child.Harness = Raising


def missing_outdir():
    real = mlperf_loadgen.StartTestWithLogSettings

    def start(sut, qsl, settings, log_settings, audit):
        output = log_settings.log_output
        output.outdir = "/nonexistent/folder"
        log_settings.log_output = output
        real(sut, qsl, settings, log_settings, audit)

    mlperf_loadgen.StartTestWithLogSettings = start


def other_settings():
    real = harness.test_settings

    def changed(loadgen, spec):
        settings = real(loadgen, spec)
        settings.qsl_rng_seed = 1
        return settings

    harness.test_settings = changed


def equal_issue():
    real = harness.test_settings

    def changed(loadgen, spec):
        settings = real(loadgen, spec)
        settings.sample_concatenate_permutation = True
        return settings

    harness.test_settings = changed


def other_bound():
    real = harness.test_settings

    def changed(loadgen, spec):
        settings = real(loadgen, spec)
        settings.server_target_latency_ns = 10**12
        return settings

    harness.test_settings = changed


def stray_audit_config():
    Path("audit.config").write_text("*.*.min_duration = 200\n*.*.mode = 1\n")


def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


PATCHES = {
    "complete_twice": complete_twice,
    "complete_twice_behind_the_ledger": complete_twice_behind_the_ledger,
    "complete_unknown": complete_unknown,
    "raise_in_issue_query": raise_in_issue_query,
    "raise_in_load_samples": raise_in_load_samples,
    "missing_outdir": missing_outdir,
    "other_settings": other_settings,
    "other_bound": other_bound,
    "equal_issue": equal_issue,
    "stray_audit_config": stray_audit_config,
    "never_and_deaf": deaf,
    "honest": lambda: None,
}

if __name__ == "__main__":
    spec, out = child.prepare(sys.argv[2:])
    PATCHES.get(CASE, lambda: None)()
    system = Hostile if CASE in ACTIONS else Honest

    def opened(sut, model, output):
        if CASE == "opens_slowly":
            threading.Event().wait(1.6)
        return system()

    child.execute(spec, out, opened)
