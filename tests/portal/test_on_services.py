"""The same tests on PostgreSQL, and a real worker that Redis wakes: settings change, code does not.

Run by `make services-test`, which starts both on loopback and sets DATABASE_URL and REDIS_URL.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FILES = (
    "test_api.py",
    "test_billing.py",
    "test_billing_close.py",
    "test_billing_corrections.py",
    "test_billing_credit_race.py",
    "test_billing_sufficiency.py",
    "test_billing_year.py",
    "test_contract_signing.py",
    "test_events_chain.py",
    "test_jobs.py",
    "test_reviews.py",
    "test_usage_api.py",
    "test_usage_decisions.py",
    "test_usage_explorer.py",
    "test_usage_ingest.py",
)

pytestmark = pytest.mark.services


@pytest.fixture
def services() -> dict[str, str]:
    """The environment that `tools/with_services.sh` made; without it these tests fail."""
    for name in ("DATABASE_URL", "REDIS_URL"):
        if name not in os.environ:
            pytest.fail(f"{name} is not set: run 'make services-test'")
    assert os.environ["DATABASE_URL"].startswith("postgres")
    return dict(os.environ)


def test_database_tests_pass_on_postgresql(services: dict[str, str]) -> None:
    paths = [str(Path(__file__).with_name(name)) for name in FILES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *paths],
        cwd=PROJECT,
        env=services,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_redis_wakes_a_worker(services: dict[str, str], tmp_path: Path) -> None:
    """A job asked for in one process is worked on in another within a second or two.

    The job names a contract version that does not exist, so the worker ends it as failed: the
    row, not a message, says what happened.
    """
    environment = {
        **services,
        "IGNITION_HOME": str(tmp_path / "home"),
        "DJANGO_SETTINGS_MODULE": "portal.settings.embedded",
        "IGNITION_JOB_MAX_ATTEMPTS": "1",
        "PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "platform")]),
    }

    def python(code: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            env=environment, capture_output=True, text=True, timeout=120, check=True,
        ).stdout  # fmt: skip

    (tmp_path / "home").mkdir()
    python("from django.core.management import call_command; call_command('migrate', verbosity=0)")
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "portal", "worker", "--pool", "solo"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        python(
            "import uuid\n"
            "from portal.accounts.access import Platform\n"
            "from portal.accounts.services import organisation_create\n"
            "from portal.runs import jobs\n"
            "own = organisation_create(slug='own', name='Own')\n"
            "job = jobs.job_request(actor=Platform(own), organisation=own, kind='measure',\n"
            "    key='k', arguments={'contract_version': str(uuid.uuid4())})\n"
            "jobs.wake(job)\n"
        )
        state = ""
        for _ in range(120):
            state = python(
                "from portal.runs.models import Job\n"
                "job = Job.objects.get()\n"
                "print(job.state, job.error)"
            )
            if not state.startswith(("queued", "running")):
                break
            time.sleep(0.5)
        assert state.startswith("failed"), state
        assert "ContractVersion matching query does not exist" in state
    finally:
        worker.terminate()
        worker.wait(timeout=60)
