"""The registry: what gets in, what is refused, what a policy makes of re-measurements, when due."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from metering import baseline, stacks
from metering.__main__ import main
from metering.baseline.comparability import NotComparable, key_of
from metering.baseline.recount import read_plan, recompute_baseline
from metering.baseline.registry import (
    Entry,
    append,
    counting_at,
    effective,
    hold,
    load,
    measured,
)
from metering.baseline.schedule import due
from metering.contract import BaselinePolicy
from metering.loadgen import EvidenceError
from metering.plan import MeasurementPlan
from metering.refusal import Refusal
from metering.stacks import StackInfo

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
START = datetime(2027, 1, 1, tzinfo=UTC)
SYSTEM = {"name": "search-node", "revision": 1, "machine": {"fingerprint": "f" * 64}}


def registered(evidence: Path, **system: Any) -> Path:
    """The documents that the portal lays beside a measurement."""
    document = json.loads((evidence / "baseline/baseline.json").read_bytes())
    mix = {name: document[name] for name in ("model_sha256", "samples_sha256")}
    (evidence / "mix.json").write_text(json.dumps({**mix, "unit": "sentence"}))
    (evidence / "system.json").write_text(json.dumps({**SYSTEM, **system}))
    return evidence


def later(evidence: Path, out: Path, days: int) -> Path:
    """The recorded runs as a measurement of another day, before any candidate."""
    shutil.copytree(evidence, out)
    shutil.rmtree(out / "uplift")
    path = out / "baseline/baseline.json"
    document = json.loads(path.read_bytes())
    moment = datetime.fromisoformat(document["frozen_at"]) + timedelta(days=days)
    document["frozen_at"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    path.write_text(json.dumps(document))
    return out


@pytest.fixture
def keys(tmp_path: Path) -> tuple[str, str]:
    """Paths of a private and a public key in PEM."""
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    private.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return str(private), str(public)


def test_a_measured_baseline_is_registered_with_what_was_found(
    evidence: Path, tmp_path: Path
) -> None:
    path = tmp_path / "registry.jsonl"
    first = append(path, registered(evidence), KEY)
    frozen = recompute_baseline(evidence / "baseline", read_plan(evidence))
    assert (first.number, first.previous) == (0, "")
    assert first.samples_per_second == frozen.samples_per_second
    # The customer's own configuration stands beside the best stock one.
    assert frozen.as_found is not None
    assert first.as_found == frozen.as_found.samples_per_second
    assert first.as_found is not None
    assert first.as_found <= first.samples_per_second
    second = append(path, later(evidence, tmp_path / "second", 30), KEY)
    assert load(path, KEY.public_key()) == (first, second)
    hold(first, evidence)
    hold(second, tmp_path / "second")
    with pytest.raises(EvidenceError, match="baseline_sha256 is"):
        hold(first, tmp_path / "second")
    with pytest.raises(Refusal, match=r"frozen_at: got .*; wanted later than"):
        append(path, evidence, KEY)


def test_what_no_run_stands_behind_is_not_registered(evidence: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.jsonl"
    with pytest.raises(EvidenceError, match=r"system\.json"):
        append(path, evidence, KEY)
    registered(evidence)
    document = evidence / "baseline/baseline.json"
    text = document.read_text()
    rate = json.loads(text)["samples_per_second"]
    document.write_text(text.replace(f'"{rate}"', f'"{Decimal(rate) / 2}"'))
    with pytest.raises(EvidenceError, match="samples_per_second"):
        append(path, evidence, KEY)
    data = json.loads(text)
    document.write_text(json.dumps({**data, "frozen_at": "2040-01-01T00:00:00Z"}))
    with pytest.raises(EvidenceError, match="before the baseline was frozen"):
        append(path, evidence, KEY)
    assert not path.exists()


def test_another_key_is_not_comparable_and_both_values_are_named(
    evidence: Path, tmp_path: Path
) -> None:
    path = tmp_path / "registry.jsonl"
    first = append(path, registered(evidence), KEY)
    other = registered(later(evidence, tmp_path / "other", 1), revision=2)
    with pytest.raises(NotComparable) as caught:
        append(path, other, KEY)
    assert str(caught.value) == "not comparable: system.revision: got 2, wanted 1"
    mine = key_of(evidence)
    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "scenario": lambda plan: plan.update(scenario="SingleStream"),
        "precision": lambda plan: plan.update(precision="bfloat16"),
        "settings.cores": lambda plan: plan.update(cores=[0, 1]),
        "settings.run_seconds": lambda plan: plan.update(run_seconds=2),
        "settings.accuracy_floor_cosine": lambda plan: plan.update(accuracy_floor_cosine="0.9"),
        "settings.method_version": lambda plan: plan.update(method_version="ignition-method-9"),
        "settings.seeds": lambda plan: plan["seeds"].update(qsl="1"),
    }
    plan_path = other / "plan.json"
    whole = plan_path.read_text()
    registered(other)
    for name, change in changes.items():
        document = json.loads(whole)
        change(document)
        plan_path.write_text(json.dumps(document))
        found = key_of(other)
        assert mine.differences(found) == (
            f"{name}: got {found.fields[name]}, wanted {mine.fields[name]}",
        )
    # Newer stacks are why one measures again, so the sweep is free.
    document = json.loads(whole)
    document["sweep"]["stacks"] = ["onnxruntime", "openvino", "torch"]
    plan_path.write_text(json.dumps(document))
    assert not mine.differences(key_of(other))
    mix = other / "mix.json"
    mix.write_text(mix.read_text().replace(mine.fields["mix.samples_sha256"], "0" * 64))
    assert "mix.samples_sha256: got 000" in mine.differences(key_of(other))[0]
    assert load(path, KEY.public_key()) == (first,)


def test_a_registry_that_was_changed_does_not_load(evidence: Path, tmp_path: Path) -> None:
    path = tmp_path / "registry.jsonl"
    append(path, registered(evidence), KEY)
    for number in (1, 2):
        append(path, later(evidence, tmp_path / f"n{number}", number), KEY)
    good = path.read_bytes().splitlines()
    rate = json.loads(good[1])["entry"]["samples_per_second"].encode()
    stranger = Ed25519PrivateKey.from_private_bytes(bytes([1] * 32)).public_key()
    for lines, reason in (
        ([good[0], good[1].replace(rate, b"1"), good[2]], "line 2: the signature"),
        ([good[0], good[2]], "line 2: does not follow"),
        ([good[1], good[2]], "line 1: does not follow"),
        ([good[1], good[0], good[2]], "line 1: does not follow"),
        ([good[0], b"{}"], "line 2: line.entry"),
        ([], "holds no baseline"),
    ):
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        with pytest.raises(EvidenceError, match=reason):
            load(path, KEY.public_key())
    path.write_bytes(b"".join(line + b"\n" for line in good))
    with pytest.raises(EvidenceError, match="not that of the key"):
        load(path, stranger)


@pytest.fixture
def series(evidence: Path) -> tuple[Entry, ...]:
    """The recorded baseline, and as if later ones had come to costs of 2.40, 2.00, 2.10."""
    first = measured(registered(evidence))
    return tuple(
        dataclasses.replace(
            first,
            number=number,
            cores=1,
            frozen_at=START + timedelta(days=30 * number),
            samples_per_second=Decimal(1_000_000) / Decimal(cost),
        )
        for number, cost in enumerate(("2.40", "2.00", "2.10"))
    )


def costs(found: Any) -> list[Decimal]:
    return [one.effective_cost.quantize(Decimal("0.001")) for one in found]


def test_policies_over_measured_baselines(series: tuple[Entry, ...]) -> None:
    d = Decimal
    assert costs(effective(series, BaselinePolicy())) == [d("2.400")]
    ratchet = effective(series, BaselinePolicy("ratchet"))
    assert costs(ratchet) == [d("2.400"), d("2.000"), d("2.000")]
    # A cost that never rises is a rate that never falls, though the third was measured slower.
    assert ratchet[2].samples_per_second == ratchet[1].samples_per_second
    assert ratchet[2].entry.samples_per_second < ratchet[1].entry.samples_per_second
    glide = effective(series, BaselinePolicy("glide", d("0.25")))
    assert costs(glide) == [d("2.400"), d("2.300"), d("2.250")]
    moments = [one.counts_from for one in glide]
    assert moments == [entry.frozen_at for entry in series]
    assert counting_at(ratchet, START + timedelta(days=29)).entry is series[0]
    assert counting_at(ratchet, START + timedelta(days=30)).entry is series[1]
    with pytest.raises(Refusal, match="after the first baseline"):
        counting_at(ratchet, START - timedelta(days=1))


def test_a_reset_counts_from_the_contracts_date(series: tuple[Entry, ...]) -> None:
    d = Decimal
    dates = [START + timedelta(days=days) for days in (10, 45, 200)]
    found = effective(series, BaselinePolicy("reset"), dates)
    # Nothing new on day 10; on day 45 the second; on day 200 the third, though it is slower.
    assert costs(found) == [d("2.400"), d("2.000"), d("2.100")]
    assert [one.counts_from for one in found] == [START, dates[1], dates[2]]
    assert len(effective(series, BaselinePolicy("reset"), dates[:1])) == 1
    for policy, moments in (("reset", []), ("ratchet", dates)):
        with pytest.raises(Refusal, match="resets"):
            effective(series, BaselinePolicy(policy), moments)


def test_when_a_baseline_is_due(series: tuple[Entry, ...]) -> None:
    first = series[0]
    same = [StackInfo(known.name, known.version, known.digest, True, "") for known in first.stacks]
    soon, late = START + timedelta(days=89), START + timedelta(days=90)
    assert not due(first, every_days=90, now=soon, installed=same).reasons
    over = due(first, every_days=90, now=late, installed=same)
    assert over.by == late
    assert over.reasons == ("the 90 days since 2027-01-01T00:00:00Z are over",)
    newer = [dataclasses.replace(same[0], version="9.9", digest="e" * 64), *same[1:]]
    (reason,) = due(first, every_days=90, now=soon, installed=newer).reasons
    assert "9.9 (eeeeeeeeeeee) is installed, measured was " in reason
    assert first.stacks[0].digest[:12] in reason
    # One that the plan does not let compete, or that is gone, makes nothing due.
    torch = StackInfo("torch", "2", "t", True, "")
    gone = [dataclasses.replace(same[0], available=False), *same[1:]]
    for installed in ([*same, torch], gone):
        assert not due(first, every_days=90, now=soon, installed=installed).reasons
    absent = dataclasses.replace(first, stacks=first.stacks[1:])
    (reason,) = due(absent, every_days=90, now=soon, installed=same).reasons
    assert reason.endswith("is installed and was never measured")
    with pytest.raises(Refusal, match="every_days"):
        due(first, every_days=0, now=soon, installed=same)


def test_the_command_says_what_counts_and_what_is_due(
    evidence: Path, tmp_path: Path, keys: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    private, public = keys
    path = str(tmp_path / "registry.jsonl")
    assert main(["baseline", "add", path, str(registered(evidence)), "--key", private]) == 0
    second = str(later(evidence, tmp_path / "second", 40))
    assert main(["baseline", "add", path, second, "--key", private]) == 0
    assert "as found" in capsys.readouterr().out
    assert main(["baseline", "add", path, second, "--key", private]) == 1
    assert "not registered: frozen_at" in capsys.readouterr().err
    show = ["baseline", "show", path, "--public", public]
    assert main([*show, "--policy", "ratchet", "--evidence", str(evidence), second, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["checked"], len(found["effective"])) == (2, 2)
    assert main([*show, "--policy", "glide"]) == 2
    assert "fraction" in capsys.readouterr().err
    assert main([*show, "--at", "2040-01-01T00:00:00Z"]) == 0
    assert "counts at 2040" in capsys.readouterr().out
    (tmp_path / "second/baseline/runs").rename(tmp_path / "elsewhere")
    assert main([*show, "--evidence", str(evidence), second]) == 1
    assert "registry does not hold" in capsys.readouterr().err
    due_in = ["baseline", "due", path, "--public", public, "--every-days"]
    assert main([*due_in, "9999", "--at", "2040-01-01T00:00:00Z", "--json"]) in (0, 1)
    capsys.readouterr()
    assert main([*due_in, "1", "--at", "2040-01-01T00:00:00Z"]) == 1
    assert "the 1 days since" in capsys.readouterr().out
    other = registered(tmp_path / "second", revision=2)
    assert main(["baseline", "compare", str(evidence), str(other)]) == 1
    assert "system.revision: got 2, wanted 1" in capsys.readouterr().out
    assert main(["baseline", "compare", str(evidence), str(evidence)]) == 0
    assert main(["baseline", "add", path, str(evidence), "--key", public]) == 2
    assert "wanted a PEM" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_second_measurement_joins_the_first(
    evidence: Path, inputs: dict[str, Any], tmp_path: Path
) -> None:
    """Swept again with the stacks of this machine: other builds, other rates, one key."""
    path = tmp_path / "registry.jsonl"
    first = append(path, registered(evidence), KEY)
    again = tmp_path / "again"
    again.mkdir()
    shutil.copy(evidence / "plan.json", again)
    plan = MeasurementPlan.from_json(json.loads((again / "plan.json").read_bytes()))
    swept = baseline.sweep(plan, inputs["model"], inputs["samples"], again / "baseline")
    baseline.save(baseline.freeze(swept, frozen_at=datetime.now(UTC)), again / "baseline")
    model = json.loads((evidence / "mix.json").read_bytes())
    assert swept.model_sha256 == model["model_sha256"]
    second = append(path, registered(again), KEY)
    hold(second, again)
    found = effective((first, second), BaselinePolicy("ratchet"))
    assert found[1].effective_cost <= found[0].effective_cost
    assert not due(
        second, every_days=90, now=second.frozen_at, installed=stacks.discover_stock()
    ).reasons
