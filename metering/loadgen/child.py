"""The process that runs exactly one LoadGen test: ``python -m metering.loadgen.child SPEC OUT``.

In: a launch spec with real paths, a run folder, and the parent's process id. Out: LoadGen's logs,
``child.json`` when the test ended, ``error.json`` when something raised. The process puts itself
under a warden, limits and pins itself first, dies with its parent, and leaves through ``os._exit``
so that no runtime's destructor decides the exit status. It judges nothing: that is the supervisor's
work.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from metering.loadgen import warden
from metering.loadgen.files import write_json
from metering.loadgen.harness import Harness
from metering.loadgen.spec import RunSpec, Task
from metering.loadgen.tasks import OpenSystem

EXIT_ERROR = 3
_MESSAGE_CHARACTERS = 2000


def limit_resources(spec: RunSpec) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, spec.memory_limit_bytes),
        (resource.RLIMIT_FSIZE, spec.file_limit_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


class _Failure:
    """Writes the first failure of any thread and ends the process."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, where: str, error: BaseException) -> NoReturn:
        with self._lock:  # Never released: the first failure is the one that counts.
            report = {
                "where": where,
                "type": type(error).__name__,
                "message": str(error)[:_MESSAGE_CHARACTERS],
                "traceback": "".join(traceback.format_exception(error))[-4 * _MESSAGE_CHARACTERS :],
            }
            try:
                write_json(self._out / "error.json", report)
            finally:
                os._exit(EXIT_ERROR)


def execute(spec: RunSpec, out: Path, open_system: OpenSystem) -> NoReturn:
    """Run the test with systems from ``open_system`` and leave the process."""
    fail = _Failure(out)
    try:
        import mlperf_loadgen  # never mlcommons_loadgen: importing that first hides this one

        from metering.loadgen.library import load_samples

        os.sched_setaffinity(0, spec.cores)
        library = load_samples(Path(spec.samples), spec.task)
        if spec.library_size not in (0, len(library)):
            raise ValueError(f"samples: got {len(library)}, wanted {spec.library_size} as recorded")
        harness = Harness(spec, library, open_system, fail, mlperf_loadgen)
        harness.run(out)
        write_json(
            out / "child.json",
            {"issued": harness.ledger.issued, "completed": harness.ledger.completed},
        )
    except BaseException as error:
        fail("start", error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def prepare(arguments: list[str]) -> tuple[RunSpec, Path]:
    """Tie this process to its parent, read the launch spec, limit resources."""
    launch, out, parent = arguments
    warden.stand(int(parent))
    spec = RunSpec.from_dict(json.loads(Path(launch).read_bytes()))
    limit_resources(spec)
    return spec, Path(out)


def main(arguments: list[str]) -> NoReturn:
    spec, out = prepare(arguments)
    from metering import stacks

    openers: dict[Task, OpenSystem] = {
        "embedding": stacks.open_system,
        "text_recognition": stacks.open_recogniser,
        "generation": stacks.open_generator,
    }
    execute(spec, out, openers[spec.task])


if __name__ == "__main__":
    main(sys.argv[1:])
