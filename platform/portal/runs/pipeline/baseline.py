"""Step "baseline": sweep the stock stacks, freeze the fastest correct one, log and register it.

In: a signed contract version on the machine it names. Out: one Baseline row, its runs in the
evidence folder, its digest in the transparency log and its signed line in the registry, all before
any candidate exists; later, one more line for each re-measurement. Never here: a change of a
baseline that was frozen.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kernelgen.machine import describe
from metering import baseline as engine
from metering.baseline import registry
from metering.contract import Contract
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan
from portal.accounts.access import Actor
from portal.contracts.models import ContractVersion
from portal.keystore import platform_keys, transparency_log
from portal.runs.models import Baseline, BaselineEntry
from portal.runs.pipeline.evidence import remeasured_folder, write_agreement
from portal.runs.registry import entry_store
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
        # A run that was killed in between may have left it out of the registry.
        evidence = absolute(found.evidence_path)
        register(actor=actor, contract_version=contract_version, evidence=evidence)
        return Baseline.objects.get(pk=found.pk)
    folder = write_agreement(contract_version) / "baseline"
    frozen = sweep_baseline(
        contract_version=contract_version, folder=folder, line=line, as_found=as_found
    )
    baseline = baseline_freeze(
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
        document_file=folder / "baseline.json",
        evidence=folder.parent,
    )
    register(actor=actor, contract_version=contract_version, evidence=folder.parent)
    return baseline


def remeasure(
    *, actor: Actor, contract_version: ContractVersion, number: int, line: Line
) -> BaselineEntry:
    """Sweep again with what is installed now and add the result to the registry as `number`.

    The first baseline, and everything that was measured against it, stays as it is.
    """
    baseline = Baseline.objects.get(contract_version=contract_version)
    # Baselines of releases before the registry are entered when it is first needed.
    register(
        actor=actor, contract_version=contract_version, evidence=absolute(baseline.evidence_path)
    )
    folder = write_agreement(contract_version, remeasured_folder(contract_version, number))
    sweep_baseline(contract_version=contract_version, folder=folder / "baseline", line=line)
    return register(actor=actor, contract_version=contract_version, evidence=folder)


def register(*, actor: Actor, contract_version: ContractVersion, evidence: Path) -> BaselineEntry:
    """The registry's entry of an evidence folder, worked out from its runs and signed when new."""
    sha256 = sha256_file(evidence / "baseline" / "baseline.json")
    rows: list[BaselineEntry] = list(
        BaselineEntry.objects.filter(contract_version=contract_version).order_by("number")
    )
    for row in rows:
        if row.baseline_sha256 == sha256:
            return row
    line, _ = registry.next_line(
        [row.line.encode() for row in rows], evidence, platform_keys().statement
    )
    return entry_store(actor=actor, contract_version=contract_version, line=line, evidence=evidence)


def sweep_baseline(
    *,
    contract_version: ContractVersion,
    folder: Path,
    line: Line,
    as_found: SutSpec | None = None,
) -> engine.Baseline:
    """Sweep the stock stacks in `folder`, freeze the best and log its digest; resumed when begun.

    RunsError unless all parties signed and this is the machine of the contract.
    """
    require_signed(contract_version)
    require_this_machine(contract_version)
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
    # Lines as in the log's other entries; a stranger with the evidence can write it again.
    entry = (
        "ignition-baseline/v1\n"
        f"baseline-sha256 {sha256_file(folder / 'baseline.json')}\n"
        f"plan-sha256 {contract_version.plan_sha256}\n"
    ).encode("ascii")
    log = transparency_log()
    log.append(entry)
    log.checkpoint(platform_keys().note)
    return frozen


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
