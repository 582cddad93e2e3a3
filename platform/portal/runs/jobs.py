"""The queue of record: jobs are rows, and who holds a row's lease may work on it.

In: a request. Out: the job's row, moved by conditional updates only. Celery (or the calling
process) is merely woken: a lost message, a killed worker or a restarted broker delays a job until
the next sweep, and never loses it or runs it twice at the same time.
"""

import os
import socket
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q
from django.utils import timezone

from portal.accounts.access import Actor, Platform, require
from portal.accounts.models import Organisation
from portal.events.services import event_record
from portal.runs.models import Job, JobStep

Handler = Callable[["Lease"], None]
Listener = Callable[[str, str], None]
State = Job.State


class LeaseLost(Exception):
    """Another worker took the job over, or it was cancelled: stop, and write nothing more."""


class JobCancelled(LeaseLost):
    """Somebody asked for the job to stop."""


class Lease:
    """The right to work on one job, until `lease_until`; renewed by `heartbeat`."""

    def __init__(self, job: Job, owner: str) -> None:
        self.job = job
        self.owner = owner
        # Who else hears each line of progress, such as the terminal a job is started from.
        self.listener: Listener = lambda step, text: None

    def heartbeat(self) -> None:
        """Renew the lease. LeaseLost when it is another's now, JobCancelled when asked to stop."""
        held = Job.objects.filter(pk=self.job.pk, state=State.RUNNING, lease_owner=self.owner)
        if not held.update(lease_until=timezone.now() + _lease_time()):
            raise LeaseLost(f"job {self.job.pk}: the lease is gone")
        if held.filter(cancel_requested_at__isnull=False).exists():
            raise JobCancelled(f"job {self.job.pk}: cancel was asked for")

    def say(self, progress: str, *, step: str | None = None) -> None:
        """Store the last line of progress (and the step) for the page that watches."""
        values: dict[str, object] = {"progress": progress[:2000]}
        if step is not None:
            values["step"] = step
        held = Job.objects.filter(pk=self.job.pk, state=State.RUNNING, lease_owner=self.owner)
        if not held.update(**values):
            raise LeaseLost(f"job {self.job.pk}: the lease is gone")
        self.listener(step or "", progress)

    @contextmanager
    def step(self, position: int, name: str, title: str) -> Iterator[Callable[[str], None]]:
        """Mark one step as running, then done or failed; yields a function for progress lines."""
        self.heartbeat()
        self.say(title, step=name)
        row, _ = JobStep.objects.update_or_create(
            job=self.job,
            name=name,
            defaults={
                "position": position,
                "title": title,
                "state": JobStep.State.RUNNING,
                "started_at": timezone.now(),
                "finished_at": None,
            },
        )

        def line(text: str) -> None:
            JobStep.objects.filter(pk=row.pk).update(detail=text[:2000])
            self.say(text)

        try:
            yield line
        except BaseException:
            JobStep.objects.filter(pk=row.pk).update(
                state=JobStep.State.FAILED, finished_at=timezone.now()
            )
            raise
        JobStep.objects.filter(pk=row.pk).update(
            state=JobStep.State.DONE, finished_at=timezone.now()
        )


def _lease_time() -> timedelta:
    return timedelta(seconds=settings.JOB_LEASE_SECONDS)


def new_owner() -> str:
    """A name for one holder: host, process, and a random part no restart repeats."""
    return f"{socket.gethostname()[:40]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


@transaction.atomic
def job_request(
    *,
    actor: Actor,
    organisation: Organisation,
    kind: str,
    key: str,
    arguments: Mapping[str, object],
    action: str = "job.request",
) -> Job:
    """Put work in the queue; the same kind and key is the same job for ever.

    A failed or cancelled job that is asked for again is queued again with its attempts reset.
    `action` is what the actor must be allowed to do for this kind of work.
    """
    require(actor, action, organisation)
    job, made = Job.objects.get_or_create(
        organisation=organisation,
        kind=kind,
        key=key,
        defaults={
            "arguments": dict(arguments),
            "requested_by": actor.user,
            "max_attempts": settings.JOB_MAX_ATTEMPTS,
        },
    )
    again = False
    if not made and job.state in (State.FAILED, State.CANCELLED):
        again = bool(
            Job.objects.filter(pk=job.pk, state=job.state).update(
                state=State.QUEUED, attempts=0, error="", cancel_requested_at=None, finished_at=None
            )
        )
        job.refresh_from_db()
    if made or again:
        event_record(
            action="job.request",
            actor=actor,
            subject=job,
            organisation=organisation,
            data={"kind": kind, "key": key, "again": again},
        )
    return job


@transaction.atomic
def job_cancel(*, actor: Actor, job: Job) -> Job:
    """Ask a job to stop: a queued one stops now, a running one at its next heartbeat."""
    require(actor, "job.cancel", job.organisation)
    now = timezone.now()
    stopped = Job.objects.filter(pk=job.pk, state=State.QUEUED).update(
        state=State.CANCELLED, cancel_requested_at=now, finished_at=now
    )
    asked = Job.objects.filter(
        pk=job.pk, state=State.RUNNING, cancel_requested_at__isnull=True
    ).update(cancel_requested_at=now)
    if stopped or asked:
        event_record(
            action="job.cancel",
            actor=actor,
            subject=job,
            organisation=job.organisation,
            data={"was_running": bool(asked)},
        )
    job.refresh_from_db()
    return job


@transaction.atomic
def claim(*, owner: str, job_id: uuid.UUID | None = None) -> Lease | None:
    """Take one queued job (or this one): a conditional update, so that one claimer wins."""
    waiting = Job.objects.filter(state=State.QUEUED)
    if job_id is not None:
        waiting = waiting.filter(pk=job_id)
    for candidate in waiting.order_by("created_at")[:10]:
        now = timezone.now()
        won = Job.objects.filter(pk=candidate.pk, state=State.QUEUED).update(
            state=State.RUNNING,
            lease_owner=owner,
            lease_until=now + _lease_time(),
            attempts=F("attempts") + 1,
            started_at=now,
            finished_at=None,
            error="",
        )
        if won:
            candidate.refresh_from_db()
            return Lease(candidate, owner)
    return None


@transaction.atomic
def finish(lease: Lease, *, state: str, error: str = "") -> None:
    """Give the lease back with the job's end; LeaseLost when it was no longer held."""
    done = Job.objects.filter(pk=lease.job.pk, state=State.RUNNING, lease_owner=lease.owner).update(
        state=state,
        error=error[:8000],
        lease_owner="",
        lease_until=None,
        finished_at=None if state == State.QUEUED else timezone.now(),
    )
    if not done:
        raise LeaseLost(f"job {lease.job.pk}: the lease is gone")
    lease.job.refresh_from_db()
    event_record(
        action=f"job.{state}",
        actor=Platform(lease.job.organisation, lease.job.requested_by),
        subject=lease.job,
        organisation=lease.job.organisation,
        data={"kind": lease.job.kind, "attempts": lease.job.attempts},
    )


@transaction.atomic
def sweep() -> tuple[list[uuid.UUID], list[uuid.UUID]]:
    """Take back expired leases: queued again, or failed once the attempts are used up.

    Returns the ids (queued again, failed). Safe to run from any number of processes.
    """
    now = timezone.now()
    again: list[uuid.UUID] = []
    failed: list[uuid.UUID] = []
    expired = Job.objects.filter(state=State.RUNNING, lease_until__lt=now)
    for job in expired.select_related("organisation", "requested_by"):
        spent = job.attempts >= job.max_attempts
        stop = job.cancel_requested_at is not None
        state = State.CANCELLED if stop else State.FAILED if spent else State.QUEUED
        taken = Job.objects.filter(
            Q(lease_until__lt=now), pk=job.pk, state=State.RUNNING, lease_owner=job.lease_owner
        ).update(
            state=state,
            lease_owner="",
            lease_until=None,
            error=f"lost {job.attempts} times: the worker stopped answering" if spent else "",
            finished_at=None if state == State.QUEUED else now,
        )
        if not taken:
            continue
        (again if state == State.QUEUED else failed).append(job.pk)
        event_record(
            action="job.take_back",
            actor=Platform(job.organisation, job.requested_by),
            subject=job,
            organisation=job.organisation,
            data={"attempts": job.attempts, "state": str(state)},
        )
    return again, failed


@transaction.atomic
def reclaim_dead(*, host: str | None = None) -> list[uuid.UUID]:
    """Queue again what a process of this host held that no longer lives (before its lease ends).

    Only for leases of this very host: another host's processes cannot be looked at from here.
    """
    here = (host or socket.gethostname())[:40]
    freed = []
    for job in Job.objects.filter(state=State.RUNNING, lease_owner__startswith=f"{here}:"):
        pid = int(job.lease_owner.split(":")[1])
        if _alive(pid):
            continue
        Job.objects.filter(pk=job.pk, lease_owner=job.lease_owner).update(
            lease_until=timezone.now() - timedelta(seconds=1)
        )
        freed.append(job.pk)
    if freed:
        sweep()
    return freed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Heart:
    """Beats in a thread while engines work; remembers a lost lease for the next step to see."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.stopped = threading.Event()
        self.lost: LeaseLost | None = None
        self.thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def _beat(self) -> None:
        try:
            while not self.stopped.wait(settings.JOB_LEASE_SECONDS / 3):
                try:
                    self.lease.heartbeat()
                except LeaseLost as error:
                    self.lost = error
                    return
        finally:
            connection.close()

    def __enter__(self) -> "_Heart":
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopped.set()
        self.thread.join(timeout=10)


def work(lease: Lease, handler: Handler) -> str:
    """Run the handler under the lease and store how it ended; returns the end state.

    An error queues the job again until its attempts are used up. KeyboardInterrupt queues it
    again at once and is raised on: whoever pressed Ctrl-C wants out, not a failed job.
    """
    with _Heart(lease):
        try:
            handler(lease)
        except JobCancelled as cancelled:
            finish(lease, state=State.CANCELLED, error=str(cancelled))
            return State.CANCELLED
        except LeaseLost:
            # The new holder's word counts; this process writes nothing.
            return State.RUNNING
        except KeyboardInterrupt:
            Job.objects.filter(pk=lease.job.pk).update(attempts=F("attempts") - 1)
            finish(lease, state=State.QUEUED, error="interrupted")
            raise
        except Exception as error:
            spent = lease.job.attempts >= lease.job.max_attempts
            told = "".join(traceback.format_exception_only(error)).strip()
            finish(lease, state=State.FAILED if spent else State.QUEUED, error=told)
            raise
    try:
        finish(lease, state=State.DONE)
    except LeaseLost:
        # Taken over in the last moment: the effects are there, the new holder will find them.
        return State.RUNNING
    return State.DONE


def oldest_waiting() -> uuid.UUID | None:
    """The id of the job that has waited longest, or None."""
    return (
        Job.objects.filter(state=State.QUEUED)
        .order_by("created_at")
        .values_list("pk", flat=True)
        .first()
    )


def wake(job: Job) -> None:
    """Tell a worker that this job waits, once the row is committed.

    Nothing is lost when nobody hears: workers also look for themselves. Without a broker between
    processes there is nobody to tell.
    """
    from portal.runs.tasks import run_job

    if settings.REDIS_URL or settings.CELERY_TASK_ALWAYS_EAGER:
        transaction.on_commit(lambda: run_job.delay(str(job.pk)))
