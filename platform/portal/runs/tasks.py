"""Celery's part: wake up, claim, work. The message carries an id and nothing else.

The same look that takes back lost leases marks baselines that are due, once an hour in a process:
there is no scheduler beside the workers.
"""

import logging
import time
import uuid

from celery import shared_task
from django.utils import timezone

from portal.runs import jobs
from portal.runs.handlers import KINDS, handler_for

log = logging.getLogger(__name__)

LOOK_FOR_DUE_EVERY_S = 3600.0
_looked_at: list[float] = []


@shared_task(name="portal.runs.tasks.run_job", acks_late=True)
def run_job(job_id: str) -> str:
    """Work on one job if it still waits; a second message for it does nothing."""
    lease = jobs.claim(owner=jobs.new_owner(), job_id=uuid.UUID(job_id))
    if lease is None:
        return "not waiting"
    try:
        return jobs.work(lease, _handle)
    except Exception:
        # Anything a handler may raise. `jobs.work` has put it on the job's row with the next state;
        # what fails while writing leaves a lease that runs out and is swept. Raised on,
        # it would let Celery decide about a retry too, and where tasks run eagerly it would end
        # the request that only asked for the work.
        log.exception("job %s failed", job_id)
        return "failed"


def _handle(lease: jobs.Lease) -> None:
    # Looked up under the lease: that nobody here knows the kind is an end like any other, for a
    # job from a newer release too.
    kind = lease.job.kind
    if kind not in KINDS:
        raise ValueError(f"kind: got {kind!r}, wanted one of {', '.join(sorted(KINDS))}")
    handler_for(kind)(lease)


@shared_task(name="portal.runs.tasks.sweep")
def sweep() -> str:
    """Take back what dead workers held, then work on the oldest job that waits, if any."""
    jobs.sweep()
    jobs.reclaim_dead()
    _look_for_due()
    waiting = jobs.oldest_waiting()
    return "idle" if waiting is None else run_job(str(waiting))


def _look_for_due() -> None:
    now = time.monotonic()
    if _looked_at and now - _looked_at[-1] < LOOK_FOR_DUE_EVERY_S:
        return
    _looked_at[:] = [now]
    try:
        mark_due()
    except Exception:
        # Whatever a stored entry or an installed stack may raise: the queue goes on without it.
        log.exception("baselines that are due could not be marked")


@shared_task(name="portal.runs.tasks.mark_due")
def mark_due() -> int:
    """Mark every registered baseline that has to be measured again; returns how many are new."""
    from portal.runs.registry import due_mark

    return len(due_mark(now=timezone.now()))
