"""Celery's part: wake up, claim, work. The message carries an id and nothing else."""

import uuid

from celery import shared_task

from portal.runs import jobs
from portal.runs.handlers import handler_for


@shared_task(name="portal.runs.tasks.run_job", acks_late=True)
def run_job(job_id: str) -> str:
    """Work on one job if it still waits; a second message for it does nothing."""
    lease = jobs.claim(owner=jobs.new_owner(), job_id=uuid.UUID(job_id))
    if lease is None:
        return "not waiting"
    return jobs.work(lease, handler_for(lease.job.kind))


@shared_task(name="portal.runs.tasks.sweep")
def sweep() -> int:
    """Take back what dead workers held, and wake workers for everything that waits."""
    again, _ = jobs.sweep()
    for job_id in again:
        run_job.delay(str(job_id))
    return len(again)
