"""Jobs: one holder at a time, lost leases come back, attempts end, cancel is heard."""

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from portal.accounts.access import NotAllowed
from portal.runs import jobs
from portal.runs.models import Job, JobStep
from portal.runs.tasks import run_job


@pytest.fixture
def job(cast) -> Job:
    return jobs.job_request(
        actor=cast.owner, organisation=cast.organisation, kind="main", key="k", arguments={}
    )


def expire(job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(lease_until=timezone.now() - timedelta(seconds=1))


def test_same_key_is_the_same_job(cast, job):
    again = jobs.job_request(
        actor=cast.owner, organisation=cast.organisation, kind="main", key="k", arguments={"a": 1}
    )
    assert again.pk == job.pk
    assert Job.objects.count() == 1


@pytest.mark.parametrize("who", ["auditor", "finance"])
def test_who_may_ask_for_work(cast, who):
    with pytest.raises(NotAllowed):
        jobs.job_request(
            actor=getattr(cast, who),
            organisation=cast.organisation,
            kind="main",
            key="k2",
            arguments={},
        )


def test_one_claimer_wins(job):
    first = jobs.claim(owner="a:1:x", job_id=job.pk)
    assert first is not None
    assert first.job.attempts == 1
    assert jobs.claim(owner="b:2:y", job_id=job.pk) is None


@pytest.mark.django_db(transaction=True)
def test_one_claimer_wins_among_threads(threads_db, job):
    got: list[bool] = []

    def claimer(number: int) -> None:
        try:
            got.append(jobs.claim(owner=f"t:{number}:x", job_id=job.pk) is not None)
        finally:
            connection.close()

    threads = [threading.Thread(target=claimer, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 5 + [True]


def test_done(job):
    lease = jobs.claim(owner="a:1:x")
    assert lease is not None

    def handler(held: jobs.Lease) -> None:
        with held.step(1, "plan", "Plan") as line:
            line("half way")

    assert jobs.work(lease, handler) == "done"
    job.refresh_from_db()
    assert (job.state, job.step, job.progress, job.lease_owner) == ("done", "plan", "half way", "")
    step = JobStep.objects.get(job=job)
    assert (step.state, step.detail) == ("done", "half way")


def test_error_queues_again_until_attempts_are_spent(job, settings):
    def handler(held: jobs.Lease) -> None:
        with held.step(1, "plan", "Plan"):
            raise ValueError("pairs: got 2, wanted 6")

    states = []
    for _ in range(3):
        lease = jobs.claim(owner="a:1:x", job_id=job.pk)
        assert lease is not None
        with pytest.raises(ValueError, match="wanted 6"):
            jobs.work(lease, handler)
        job.refresh_from_db()
        states.append(job.state)
    assert states == ["queued", "queued", "failed"]
    assert "pairs: got 2, wanted 6" in job.error
    assert jobs.claim(owner="a:1:x", job_id=job.pk) is None
    assert JobStep.objects.get(job=job).state == "failed"


def test_a_kind_nobody_handles_ends_with_a_reason_and_without_a_lease(cast):
    job = jobs.job_request(
        actor=cast.owner, organisation=cast.organisation, kind="dream", key="k", arguments={}
    )
    ends = []
    for _ in range(job.max_attempts):
        assert run_job(str(job.pk)) == "failed"
        job.refresh_from_db()
        ends.append((job.state, job.lease_owner, job.lease_until))
        assert "'dream'" in job.error
        assert "measure" in job.error
    assert ends == [("queued", "", None)] * (job.max_attempts - 1) + [("failed", "", None)]
    assert run_job(str(job.pk)) == "not waiting"


def test_failed_job_can_be_asked_for_again(cast, job):
    Job.objects.filter(pk=job.pk).update(state="failed", attempts=3, finished_at=timezone.now())
    again = jobs.job_request(
        actor=cast.owner, organisation=cast.organisation, kind="main", key="k", arguments={}
    )
    assert (again.pk, again.state, again.attempts) == (job.pk, "queued", 0)


def test_sweeper_takes_back_expired_leases(job):
    lease = jobs.claim(owner="a:1:x")
    assert lease is not None
    assert jobs.sweep() == ([], [])
    expire(job)
    assert jobs.sweep() == ([job.pk], [])
    job.refresh_from_db()
    assert job.state == "queued"
    with pytest.raises(jobs.LeaseLost):
        lease.heartbeat()
    with pytest.raises(jobs.LeaseLost):
        lease.say("still here")


def test_sweeper_fails_what_died_too_often(job):
    for _ in range(3):
        assert jobs.claim(owner="a:1:x") is not None
        expire(job)
        swept = jobs.sweep()
    assert swept == ([], [job.pk])
    job.refresh_from_db()
    assert job.state == "failed"
    assert "lost 3 times" in job.error


def test_old_holder_cannot_end_a_job_that_moved_on(job):
    old = jobs.claim(owner="a:1:x")
    assert old is not None
    expire(job)
    jobs.sweep()
    new = jobs.claim(owner="b:2:y")
    assert new is not None
    with pytest.raises(jobs.LeaseLost):
        jobs.finish(old, state="done")
    job.refresh_from_db()
    assert (job.state, job.lease_owner) == ("running", "b:2:y")


def test_cancel_of_a_waiting_job(cast, job):
    assert jobs.job_cancel(actor=cast.owner, job=job).state == "cancelled"
    assert jobs.claim(owner="a:1:x", job_id=job.pk) is None


def test_cancel_of_a_running_job_is_heard_at_the_next_step(cast, job):
    lease = jobs.claim(owner="a:1:x")
    assert lease is not None

    def handler(held: jobs.Lease) -> None:
        with held.step(1, "plan", "Plan"):
            pass
        jobs.job_cancel(actor=cast.owner, job=held.job)
        with held.step(2, "baseline", "Baseline"):
            raise AssertionError("must not run")

    assert jobs.work(lease, handler) == "cancelled"
    job.refresh_from_db()
    assert job.state == "cancelled"


def test_ctrl_c_keeps_the_job_waiting(job):
    lease = jobs.claim(owner="a:1:x")
    assert lease is not None

    def handler(held: jobs.Lease) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.work(lease, handler)
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("queued", 0)


def test_dead_process_of_this_host_is_noticed_at_once(job):
    import os
    import subprocess

    child = subprocess.Popen(["true"])
    child.wait()
    owner = jobs.new_owner().replace(f":{os.getpid()}:", f":{child.pid}:")
    assert jobs.claim(owner=owner) is not None
    assert jobs.reclaim_dead() == [job.pk]
    job.refresh_from_db()
    assert job.state == "queued"


def test_living_process_keeps_its_lease(job):
    assert jobs.claim(owner=jobs.new_owner()) is not None
    assert jobs.reclaim_dead() == []
    job.refresh_from_db()
    assert job.state == "running"


def test_operators_of_the_host_see_all_jobs_outsiders_none(cast, job):
    from portal.runs.selectors import job_list

    assert job_list(actor=cast.host).count() == 1
    assert job_list(actor=cast.operator).count() == 1
    assert job_list(actor=cast.owner).count() == 1
    assert job_list(actor=cast.finance).count() == 0
    assert job_list(actor=cast.outsider).count() == 0


def test_no_measuring_before_all_have_signed(cast, draft):
    from portal.runs.requests import measure_request
    from portal.runs.services import RunsError

    with pytest.raises(RunsError, match="not signed by all three"):
        measure_request(actor=cast.owner, contract_version=draft)
    assert Job.objects.count() == 0


def test_asking_twice_is_one_job(cast, agreed):
    from metering.loadgen.spec import SutSpec
    from portal.runs.requests import measure_request

    found = SutSpec("onnxruntime", threads=2, arrangement="single")
    first = measure_request(actor=cast.owner, contract_version=agreed, as_found=found)
    assert SutSpec.from_dict(first.arguments["as_found"]) == found
    assert measure_request(actor=cast.colleague, contract_version=agreed).pk == first.pk
    assert (first.kind, first.requested_by) == ("measure", cast.owner.user)
