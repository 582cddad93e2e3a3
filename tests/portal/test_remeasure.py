"""A baseline is frozen, entered and measured again by the jobs a worker runs, on a real sweep."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kernelgen.machine import describe
from metering.baseline import sweeping
from metering.baseline.registry import hold
from metering.plan import MeasurementPlan, Seeds, SweepSpace, short_run_plan
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft
from portal.events.models import Event
from portal.keystore import transparency_log
from portal.registry.models import ModelMix, PriceBook
from portal.registry.services import mix_register, model_register, system_register
from portal.runs import jobs
from portal.runs.handlers import handler_for
from portal.runs.models import Baseline, BaselineEntry, Job
from portal.runs.pipeline.baseline import fix_baseline
from portal.runs.pipeline.evidence import remeasured_folder
from portal.runs.registry import entries_of
from portal.runs.requests import remeasure_request
from portal.workspace import absolute, write
from tests.metering.measure.conftest import ONE_CORE, inputs  # noqa: F401
from tests.portal.conftest import Cast, example_contract

pytestmark = [pytest.mark.slow, pytest.mark.django_db]


@pytest.fixture
def small_mix(cast: Cast, home: Path, inputs: dict[str, Any]) -> ModelMix:  # noqa: F811
    """The small encoder of the measurement tests, registered as a customer would."""
    model, samples = home / "cache/models/encoder.onnx", home / "portal/mixes/samples.npz"
    write(model, Path(inputs["model"]).read_bytes())
    write(samples, Path(inputs["samples"]).read_bytes())
    count = len(inputs["library"])
    row = model_register(
        actor=cast.owner, organisation=cast.organisation, name="encoder", path=model,
        licence="Apache-2.0", source="made by a test",
    )  # fmt: skip
    return mix_register(
        actor=cast.owner, organisation=cast.organisation, name="ids", model=row,
        traffic_source="made by a test", length_histogram={4: count}, samples=samples,
        sample_count=count, held_out=samples, held_out_count=count,
    )  # fmt: skip


@pytest.fixture
def signed(cast: Cast, draft: Any, small_mix: ModelMix, sign_plan: Any) -> ContractVersion:
    """A contract on this very machine whose sweep has one configuration."""
    plan: MeasurementPlan = replace(
        short_run_plan(
            "P-SMALL", cores=ONE_CORE, zone="Europe/Berlin", seeds=Seeds(1, 2, 3, 4),
            stacks=("onnxruntime",), run_seconds=1, pairs=6,
        ),
        sweep=SweepSpace(("onnxruntime",), (1,), ("padded",), (8,), ("all",)),
    )  # fmt: skip
    version = contract_draft(
        actor=cast.owner,
        organisation=cast.organisation,
        contract=example_contract(contract_id="C-SMALL"),
        plan=plan,
        system=system_register(
            actor=cast.owner, organisation=cast.organisation, name="here",
            machine=describe(measure=False),
        ),
        mix=small_mix,
        price_book=PriceBook.objects.get(),
    )  # fmt: skip
    for party in ("provider", "customer", "auditor"):
        sign_plan(version, party)
    return version


def test_a_baseline_is_entered_and_measured_again(
    cast: Cast, signed: ContractVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One final round each: what is measured again is proved here, not how steadily.
    monkeypatch.setattr(sweeping, "ROUNDS", 1)
    frozen = fix_baseline(actor=cast.platform, contract_version=signed, line=lambda text: None)
    first = BaselineEntry.objects.get()
    assert (first.number, first.baseline_sha256) == (0, frozen.sha256)
    document, leaves = dict(frozen.document), _leaves()
    job = remeasure_request(actor=cast.owner, baseline=frozen)
    lease = jobs.claim(owner=jobs.new_owner(), job_id=job.pk)
    assert lease is not None
    assert jobs.work(lease, handler_for(job.kind)) == Job.State.DONE
    second = BaselineEntry.objects.get(number=1)
    assert absolute(second.evidence_path) == remeasured_folder(signed, 1)
    assert second.samples_per_second > Decimal(0)
    # Both hold against their evidence, worked out again from the runs.
    for row, entry in zip((first, second), entries_of([first, second]), strict=True):
        hold(entry, absolute(row.evidence_path))
    # The first stays as it is, in the row and on disk; the log has one leaf more.
    again = Baseline.objects.get()
    assert (again.sha256, again.document) == (frozen.sha256, document)
    assert _leaves() == leaves + 1
    assert Event.objects.filter(action="baseline.register").count() == 2
    # Done twice, it is one entry; the next request is for the next.
    assert remeasure_request(actor=cast.owner, baseline=frozen).arguments["number"] == 2


def _leaves() -> int:
    return len((transparency_log().directory / "entries.jsonl").read_bytes().splitlines())
