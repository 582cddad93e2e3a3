"""Celery's part: wake up, claim, work. The message carries an id and nothing else."""

import logging
import uuid

from celery import shared_task

from portal.runs import jobs
from portal.runs.handlers import handler_for

log = logging.getLogger(__name__)


@shared_task(name="portal.runs.tasks.run_job", acks_late=True)
def run_job(job_id: str) -> str:
    """Work on one job if it still waits; a second message for it does nothing."""
    lease = jobs.claim(owner=jobs.new_owner(), job_id=uuid.UUID(job_id))
    if lease is None:
        return "not waiting"
    try:
        return jobs.work(lease, handler_for(lease.job.kind))
    except Exception:
        # Anything a handler may raise. `jobs.work` has put it on the job's row with the next state;
        # what fails before or while writing leaves a lease that runs out and is swept. Raised on,
        # it would let Celery decide about a retry too, and where tasks run eagerly it would end
        # the request that only asked for the work.
        log.exception("job %s failed", job_id)
        return "failed"


@shared_task(name="portal.runs.tasks.sweep")
def sweep() -> str:
    """Take back what dead workers held, then work on the oldest job that waits, if any."""
    jobs.sweep()
    jobs.reclaim_dead()
    waiting = jobs.oldest_waiting()
    return "idle" if waiting is None else run_job(str(waiting))
