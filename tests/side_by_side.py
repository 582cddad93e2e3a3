"""Two test processes on one machine, without one disturbing what the other times.

`pytest -n 2` calls in here (see conftest.py). All tests that may time something make one unit of
work, which goes to the first process and runs there in the order of a run without `-n`: no two of
them are ever on the way at once. The other process takes the files named in `TIMELESS`, one by one,
and keeps off the machine's first core, which is the one that timing is pinned to.

In: the node ids of the collected tests. Out: which process runs which, on which cores.
Never here: what is tested or left out; every collected test runs exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

# Files whose verdicts depend on values alone. A file that is not here is taken to time something.
TIMELESS = (
    "tests/e2e/",
    "tests/kernelgen/test_cross.py",
    "tests/kernelgen/test_emit.py",
    "tests/kernelgen/test_gemm_",
    "tests/kernelgen/test_graph.py",
    "tests/kernelgen/test_matrix.py",
    "tests/kernelgen/test_ops.py",
    "tests/kernelgen/test_ops_linear.py",
    "tests/kernelgen/test_ops_rows.py",
    "tests/kernelgen/test_ops_sequence.py",
    "tests/kernelgen/test_package.py",
    "tests/kernelgen/test_schedule.py",
    "tests/kernelgen/test_sketches.py",
    "tests/kernelgen/test_targets.py",
    "tests/kernelgen/test_tile.py",
    "tests/kernelgen/test_tile_fuzz.py",
    "tests/kernelgen/test_turns.py",
    "tests/kernelgen/test_vocabulary.py",
    "tests/kernelgen/test_workload.py",
    "tests/kernelgen/test_zoo.py",
    "tests/metering/measure/test_endpoint_address.py",
    "tests/metering/measure/test_endpoint_client.py",
    "tests/metering/measure/test_reading.py",
    "tests/metering/measure/test_text_lines.py",
    "tests/metering/measure/test_uplift_plots.py",
    "tests/metering/test_",
    "tests/portal/test_access.py",
    "tests/portal/test_api.py",
    "tests/portal/test_as_found.py",
    "tests/portal/test_billing",
    "tests/portal/test_break_even_page.py",
    "tests/portal/test_contract_signing.py",
    "tests/portal/test_documents.py",
    "tests/portal/test_events_chain.py",
    "tests/portal/test_export_formats.py",
    "tests/portal/test_jobs.py",
    "tests/portal/test_pipeline_money.py",
    "tests/portal/test_pipeline_sufficiency.py",
    "tests/portal/test_registry_services.py",
    "tests/portal/test_results.py",
    "tests/portal/test_reviews.py",
    "tests/portal/test_usage_",
    "tests/portal/test_web_",
    "tests/portal/test_workspace.py",
    "tests/reports/",
    "tests/test_layout.py",
    "tests/test_side_by_side.py",
)
TIMED = "timed"
FIRST = "gw0"
"""Name of the first process, the only one that takes the timed unit while it lives."""


def unit(nodeid: str) -> str:
    """The unit of work a test belongs to: its file, or `TIMED` for all that may time something."""
    file = nodeid.split("::", 1)[0]
    return file if file.startswith(TIMELESS) else TIMED


class SideBySide(LoadScopeScheduling):
    """Units in the order of collection, the timed one to the first process before all others."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if TIMED in self.workqueue:
            self.workqueue.move_to_end(TIMED, last=node.gateway.id != FIRST)
        super()._assign_work_unit(node)


def keep_off_the_first_core(worker: str | None) -> None:
    """Leave the core that timing is pinned to, in every process but the first."""
    allowed = os.sched_getaffinity(0)
    if worker not in (None, FIRST) and len(allowed) > 1:
        os.sched_setaffinity(0, allowed - {min(allowed)})


class TimedBesideOthersError(RuntimeError):
    """A file named in `TIMELESS` timed something."""


@contextmanager
def no_clock(worker: str | None) -> Iterator[None]:
    """In every process but the first, measuring in the process itself is an error."""
    if worker in (None, FIRST):
        yield
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise TimedBesideOthersError(
            "this test times something: take its file out of TIMELESS in tests/side_by_side.py"
        )

    with pytest.MonkeyPatch.context() as patch:
        for place in (
            "kernelgen.bench.interleave.pinned",
            "kernelgen.judge.clock.Match.run",
            "kernelgen.machine._measure",
            "metering.loadgen.supervisor._launch_spec",
        ):
            patch.setattr(place, refuse)
        yield
