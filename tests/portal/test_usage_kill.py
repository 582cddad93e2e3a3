"""Exactly once while workers are killed: gunicorn, PostgreSQL, SIGKILL in the middle of deliveries.

Run by `make services-test`. Customers send each batch until it is acknowledged, as the SDK does;
whatever a dying worker did or did not commit, every event is in the database exactly once.
"""

import os
from pathlib import Path

import pytest

from tests.benchmarks.usage_server import bodies, held, send_all, serving

pytestmark = pytest.mark.services

CUSTOMERS, DELIVERIES, SIZE = 2, 8, 250


def test_every_acknowledged_event_is_there_once_though_workers_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        pytest.fail("DATABASE_URL is not set: run 'make services-test'")
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE", raising=False)
    customers = [bodies(f"gateway-{number}", DELIVERIES, SIZE) for number in range(CUSTOMERS)]
    with serving(tmp_path / "home", os.environ) as server:
        outcome = send_all(server, customers, SIZE, kill_every=4)
        again = send_all(server, [customers[0][:2]], SIZE, kill_every=None)
    wanted = CUSTOMERS * DELIVERIES * SIZE
    assert server.killed > 0
    assert outcome.events == wanted
    assert set(outcome.answers) == set(again.answers) == {200}
    assert held(os.environ["DATABASE_URL"]) == (wanted, wanted, wanted * 10)
