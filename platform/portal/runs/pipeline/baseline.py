"""Step "baseline": sweep the stock stacks, freeze the fastest correct one, log it.

In: a signed contract version on the machine it names. Out: one Baseline row, its runs in the
evidence folder and its digest in the transparency log, all before any candidate exists.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kernelgen.machine import describe
from metering import baseline as engine
from metering.contract import Contract
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan
from portal.accounts.access import Actor
from portal.contracts.models import ContractVersion
from portal.keystore import platform_keys, transparency_log
from portal.runs.models import Baseline
from portal.runs.pipeline.evidence import write_agreement
from portal.runs.services import BaselineFigures, RunsError, baseline_freeze, require_signed
from portal.workspace import absolute, sha256_file

Line = Callable[[str], None]


def require_this_machine(contract_version: ContractVersion) -> None:
    """RunsError unless this is the machine the contract names: nothing else is comparable."""
    here = describe(measure=False)
    wanted = contract_version.system
    if here.fingerprint != wanted.fingerprint:
        raise RunsError(
            f"system: this machine ({here.cpu_model}, {here.fingerprint[:12]}) is not"
            f" {wanted} ({wanted.fingerprint[:12]}); run on that machine, or register this one"
            " as a new revision and draft a new contract version"
        )


def fix_baseline(
    *,
    actor: Actor,
    contract_version: ContractVersion,
    line: Line,
    as_found: SutSpec | None = None,
) -> Baseline:
    """Return the frozen baseline of a contract version, measuring what is still missing.

    `as_found`, the customer's own configuration, is measured and recorded beside it.
    """
    found = Baseline.objects.filter(contract_version=contract_version).first()
    if found:
        return Baseline.objects.get(pk=found.pk)
    require_signed(contract_version)
    require_this_machine(contract_version)
    folder = write_agreement(contract_version) / "baseline"
    plan = MeasurementPlan.from_json(contract_version.plan)
    mix = contract_version.mix

    def told(step: engine.SweepStep) -> None:
        rate = step.result.samples_per_second
        line(
            f"{step.stage} {step.done}/{step.total}: {step.sut.stack} {step.sut.instances}x"
            f"{step.sut.threads} threads, {step.sut.arrangement} {step.sut.batch}:"
            f" {step.result.state}{f', {rate:.0f} samples/s' if rate else ''}"
        )

    measured = engine.sweep(
        plan,
        absolute(mix.model.path),
        absolute(mix.samples_path),
        folder,
        told,
        as_found=as_found,
    )
    contract = Contract.from_json(contract_version.contract)
    frozen = _freeze_once(measured, folder, engine.BaselinePolicy(contract.baseline_policy.kind))
    document = folder / "baseline.json"
    # Lines as in the log's other entries; a stranger with the evidence can write it again.
    entry = (
        "ignition-baseline/v1\n"
        f"baseline-sha256 {sha256_file(document)}\n"
        f"plan-sha256 {contract_version.plan_sha256}\n"
    ).encode("ascii")
    log = transparency_log()
    log.append(entry)
    log.checkpoint(platform_keys().note)
    return baseline_freeze(
        actor=actor,
        contract_version=contract_version,
        figures=BaselineFigures(
            stack=frozen.stack,
            stack_version=frozen.version,
            threads=frozen.sut.threads * frozen.sut.instances,
            arrangement=frozen.sut.arrangement,
            batch=frozen.sut.batch,
            samples_per_second=frozen.samples_per_second,
            frozen_at=frozen.frozen_at,
            document=frozen.to_dict(),
        ),
        document_file=document,
        evidence=folder.parent,
    )


def _freeze_once(
    measured: engine.Sweep, folder: Path, policy: engine.BaselinePolicy
) -> engine.Baseline:
    """Freeze now, or give back what a killed run froze from the same runs."""
    if (folder / "baseline.json").exists():
        earlier = engine.load(folder)
        again = engine.freeze(measured, frozen_at=earlier.frozen_at, policy=policy)
        engine.save(again, folder)
        return again
    frozen = engine.freeze(measured, frozen_at=datetime.now(UTC), policy=policy)
    engine.save(frozen, folder)
    return frozen
