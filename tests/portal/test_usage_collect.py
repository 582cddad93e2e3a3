"""A counter of a real exporter, scraped and delivered to the real portal: once, whatever fails."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, start_http_server

from metering.__main__ import main
from portal.accounts.services import token_create
from portal.billing.models import UsageEvent
from tests.portal.test_usage_sdk import cutting


@pytest.fixture
def counter():
    """A counter, and the address that shows it."""
    registry = CollectorRegistry()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    counter = Counter("served_samples", "Samples", ["model", "system"], registry=registry)
    yield counter.labels("text-encoder", "search-1"), f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def collect(counter, threads_db, cast, agreed, live_server, tmp_path: Path, monkeypatch):
    """Run the command; its exit status."""
    _, token = token_create(actor=cast.owner, name="collector", scopes=["usage:write"])
    monkeypatch.setenv("IGNITION_TOKEN", token)
    portal = f"{live_server.url}/api/v1/usage/events"

    def act(deliver: str = portal, source: str = "prometheus/gateway-1") -> int:
        return main(
            ["usage", "scrape", counter[1], "--counter", "served_samples", "--source", source,
             "--state", str(tmp_path / "state.json"), "--deliver", deliver]
        )  # fmt: skip

    act.portal = portal
    return act


def volume() -> int:
    return sum(UsageEvent.objects.values_list("samples", flat=True))


def test_growth_is_delivered_once_though_answers_are_lost(counter, collect, capsys):
    samples, _ = counter
    samples.inc(1_000)
    assert collect() == 0
    assert "first: " in capsys.readouterr().err
    samples.inc(32)
    with cutting(collect.portal, cuts=1) as url:
        assert collect(url) == 2
    assert "nothing is lost" in capsys.readouterr().err
    assert volume() == 32
    samples.inc(8)
    assert collect() == 0
    assert capsys.readouterr().out == "1 new, 2 delivered, 0 waiting\n"
    assert collect() == 0
    assert (volume(), UsageEvent.objects.count()) == (40, 2)


def test_a_state_file_belongs_to_one_source(counter, collect, capsys):
    counter[0].inc(1)
    assert collect() == 0
    capsys.readouterr()
    assert collect(source="another") == 2
    assert "one state file for each source" in capsys.readouterr().err
    assert collect("ftp://nowhere/") == 0  # nothing waits, so nothing is sent
    counter[0].inc(1)
    assert collect("ftp://nowhere/") == 2
    assert volume() == 0
