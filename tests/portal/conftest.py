"""The cast and the stage of every portal test.

Owner and colleague are customers of one organisation, auditor, finance and operator belong to it
too, the operator of the operating organisation sees jobs of all, the outsider is a customer of
another organisation and must meet 404 everywhere.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kernelgen.machine import Machine
from metering.contract import Contract, Party, flat_share
from metering.plan import PriceBook, Seeds, short_run_plan
from portal import triggers
from portal.accounts.access import Platform
from portal.accounts.models import Membership, Organisation
from portal.accounts.services import member_add, organisation_create
from portal.audits.models import Review
from portal.audits.services import auditor_key_register, review_approve, review_open
from portal.contracts.agreement import signed_bytes
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft, party_key_register, plan_sign
from portal.registry.models import ModelMix, System
from portal.registry.services import (
    mix_register,
    model_register,
    price_book_publish,
    system_register,
)
from portal.runs.models import Measurement
from portal.runs.services import (
    BaselineFigures,
    MeasuredFigures,
    baseline_freeze,
    measurement_open,
    measurement_record,
    package_store,
    tuning_open,
    tuning_record,
)
from reports import pkcs8
from reports.canonical import canonical_json
from reports.envelope import add, sign
from reports.keys import key_id, public_pem
from tests.portal.web_evidence import run


@dataclass(frozen=True)
class Cast:
    """Everybody who may knock at the portal."""

    owner: Membership
    colleague: Membership
    auditor: Membership
    finance: Membership
    operator: Membership
    outsider: Membership
    host: Membership

    @property
    def organisation(self) -> Organisation:
        return self.owner.organisation

    @property
    def platform(self) -> Platform:
        return Platform(self.organisation, self.owner.user)


@dataclass(frozen=True)
class Keys:
    """One Ed25519 key per party, as each party's own tool would hold it."""

    provider: Ed25519PrivateKey
    customer: Ed25519PrivateKey
    auditor: Ed25519PrivateKey


@pytest.fixture(autouse=True, scope="module")
def _quick_passphrases() -> Iterator[None]:
    """As quick as the password hashes of the test settings: every home here makes keys of its own.

    How slow a real key file is to guess is held to in tests/reports/test_report_keys.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pkcs8, "ROUNDS", 2_048)
        yield


@pytest.fixture
def home(settings, tmp_path: Path) -> Path:
    """An empty IGNITION_HOME."""
    settings.IGNITION_HOME = tmp_path / "home"
    settings.IGNITION_HOME.mkdir()
    return settings.IGNITION_HOME


@pytest.fixture
def cast(db, home: Path) -> Cast:
    """Two organisations with their people, and the operating one with its operator."""
    own = organisation_create(slug="lumen", name="Lumen Search GmbH", vat_id="DE123456789")
    other = organisation_create(slug="outside", name="Outside Ltd", country="GB")
    host = organisation_create(slug="ignition", name="Ignition", is_operating=True)

    def member(name: str, organisation: Organisation, role: str) -> Membership:
        return member_add(
            actor=Platform(organisation), organisation=organisation, username=name, role=role
        )

    return Cast(
        owner=member("owner", own, "customer"),
        colleague=member("colleague", own, "customer"),
        auditor=member("auditor", own, "auditor"),
        finance=member("finance", own, "finance"),
        operator=member("operator", own, "operator"),
        outsider=member("outsider", other, "customer"),
        host=member("host", host, "operator"),
    )


@pytest.fixture(scope="session")
def keys() -> Keys:
    return Keys(*(Ed25519PrivateKey.generate() for _ in range(3)))


@pytest.fixture(scope="session")
def machine() -> Machine:
    """A made-up but complete machine; nothing is measured in these tests."""
    return Machine.from_dict(
        {
            "cpu_model": "Example CPU @ 2.0GHz",
            "architecture": "x86_64",
            "isa": ["avx2", "avx512f", "fma"],
            "cores": 2,
            "l1d_bytes": 32768,
            "l2_bytes": 1048576,
            "l3_bytes": 33554432,
            "memory_bytes": 8 * 2**30,
            "kernel": "6.1.0",
            "gpus": [],
            "fingerprint": "ab" * 32,
            "peak_gflops_per_core": 90.0,
            "peak_gbps_per_core": 11.0,
        }
    )


def example_contract(**changes: object) -> Contract:
    """A plain contract: 20 % of the savings on the lower bound, 19 % VAT."""
    terms: dict[str, object] = {
        "contract_id": "C-2026-001",
        "version": 1,
        "provider": Party("ignition", "Ignition", "DE", tax_id="DE999999999"),
        "customer": Party("lumen", "Lumen Search GmbH", "DE", tax_id="DE123456789"),
        "auditor": "auditor",
        "currency": "EUR",
        "zone": "Europe/Berlin",
        "valid_from": datetime(2026, 1, 1, tzinfo=UTC),
        "tiers": flat_share("0.20"),
        "vat": Decimal("0.19"),
    }
    return Contract(**{**terms, **changes})  # type: ignore[arg-type]


@pytest.fixture
def system(cast: Cast, machine: Machine) -> System:
    return system_register(
        actor=cast.owner, organisation=cast.organisation, name="search-1", machine=machine
    )


@pytest.fixture
def mix(cast: Cast, home: Path) -> ModelMix:
    model_file = home / "cache" / "models" / "encoder.onnx"
    model_file.parent.mkdir(parents=True)
    model_file.write_bytes(b"onnx bytes of a test")
    ids = [np.arange(1, 1 + length, dtype=np.int64) for length in (5, 9, 12, 9)]
    folder = home / "portal" / "mixes"
    folder.mkdir(parents=True)
    for name, part in (("samples", ids[:3]), ("held_out", ids[3:])):
        offsets = np.cumsum([0, *(len(row) for row in part)], dtype=np.int64)
        np.savez(folder / f"{name}.npz", ids=np.concatenate(part), offsets=offsets)
    model = model_register(
        actor=cast.owner,
        organisation=cast.organisation,
        name="text-encoder",
        path=model_file,
        licence="Apache-2.0",
        source="a wheel",
    )
    return mix_register(
        actor=cast.owner,
        organisation=cast.organisation,
        name="sentences",
        model=model,
        traffic_source="docstrings",
        length_histogram={5: 1, 9: 2, 12: 1},
        samples=folder / "samples.npz",
        sample_count=3,
        held_out=folder / "held_out.npz",
        held_out_count=1,
    )


@pytest.fixture
def method_version() -> str:
    """The last method without rules of sufficiency: a handful of events stands behind these rows.

    test_billing_sufficiency.py takes the present one, with logs and hours behind it.
    """
    return "ignition-method-2"


@pytest.fixture
def draft(cast: Cast, system: System, mix: ModelMix, method_version: str) -> ContractVersion:
    """A contract version with its plan that nobody has signed yet."""
    book = price_book_publish(
        actor=cast.owner,
        organisation=cast.organisation,
        document=PriceBook(
            "EUR", Decimal("0.05"), datetime(2026, 1, 1, tzinfo=UTC), "framework agreement"
        ),
    )
    plan = short_run_plan(
        "P-1", cores=(0, 1), zone="Europe/Berlin", seeds=Seeds(1, 2, 3, 4), pairs=6
    )
    plan = replace(plan, method_version=method_version)
    return contract_draft(
        actor=cast.owner,
        organisation=cast.organisation,
        contract=example_contract(),
        plan=plan,
        system=system,
        mix=mix,
        price_book=book,
    )


@pytest.fixture
def sign_plan(cast: Cast, keys: Keys) -> Callable[[ContractVersion, str], None]:
    """A function with which one party registers its key and signs."""

    def act(version: ContractVersion, party: str) -> None:
        actor = {"provider": cast.platform, "customer": cast.owner, "auditor": cast.auditor}[party]
        key = getattr(keys, party)
        pem = public_pem(key.public_key()).decode()
        party_key_register(
            actor=actor, organisation=cast.organisation, party=party, public_key_pem=pem
        )
        plan_sign(
            actor=actor,
            contract_version=version,
            party=party,
            key_id=key_id(key.public_key()),
            signature_b64=base64.b64encode(key.sign(signed_bytes(version))).decode(),
        )

    return act


@pytest.fixture
def agreed(draft: ContractVersion, sign_plan) -> ContractVersion:
    """The same version, signed by all three."""
    for party in ("provider", "customer", "auditor"):
        sign_plan(draft, party)
    return draft


@pytest.fixture
def not_kept_reason() -> str:
    """Why the uplift may not be billed; tests override this, "" keeps it."""
    return ""


@pytest.fixture
def baseline_runs() -> dict[str, str]:
    """What the logs of the baseline's runs say of their time, by run id; tests override this."""
    return {}


@pytest.fixture
def measured(
    cast: Cast,
    agreed: ContractVersion,
    home: Path,
    not_kept_reason: str,
    baseline_runs: dict[str, str],
) -> Measurement:
    """Rows of a finished measurement: a 25 % uplift with a lower bound of 20 %."""
    evidence = home / "evidence" / "m1"
    (evidence / "baseline").mkdir(parents=True)
    document = evidence / "baseline" / "baseline.json"
    document.write_text('{"stack": "onnxruntime"}')
    for run_id, moment in baseline_runs.items():
        run(evidence / "baseline", run_id, 400.0, moment)
    baseline = baseline_freeze(
        actor=cast.platform,
        contract_version=agreed,
        figures=BaselineFigures(
            stack="onnxruntime",
            stack_version="1.24",
            threads=2,
            arrangement="single",
            batch=1,
            samples_per_second=Decimal("400"),
            frozen_at=datetime(2026, 10, 1, tzinfo=UTC),
            document={
                "stack": "onnxruntime",
                "samples_per_second": "400",
                "runs": list(baseline_runs),
            },
        ),
        document_file=document,
        evidence=evidence,
    )
    tuning = tuning_open(actor=cast.platform, baseline=baseline, seed=1, budget_s=Decimal(10))
    tuning_record(
        actor=cast.platform,
        tuning=tuning,
        trials=12,
        accepted=3,
        rejected={"wrong": 1, "slower": 8},
        seconds=Decimal("9.5"),
        cost=Decimal("0.000132"),
        currency="EUR",
    )
    package_dir = home / "packages" / "p1"
    package_dir.mkdir(parents=True)
    package = package_store(
        actor=cast.platform,
        tuning=tuning,
        manifest={"isa": "avx512"},
        manifest_sha256="cd" * 32,
        model_gate={"correct": True},
        operators=[],
        path=package_dir,
    )
    measurement = measurement_open(
        actor=cast.platform,
        contract_version=agreed,
        baseline=baseline,
        package=package,
        evidence=evidence,
    )
    return measurement_record(
        actor=cast.platform,
        measurement=measurement,
        figures=MeasuredFigures(
            aa={"lo": "-0.004", "hi": "0.003", "passed": True, "reason": "", "pairs": 6},
            uplift={"point": "0.25", "lo": "0.19", "hi": "0.31", "lower_95": "0.2", "n": 6},
            pairs=[],
            accuracy={"min_cosine": "0.999999", "passed": True},
            uplift_point=Decimal("0.25"),
            uplift_lower_95=Decimal("0.20"),
            kept=not not_kept_reason,
            reason=not_kept_reason,
        ),
        evidence=evidence,
    )


@pytest.fixture
def review(cast: Cast, measured: Measurement, keys: Keys) -> Review:
    """An open review with a statement the platform signed."""
    statement = canonical_json({"measurement": str(measured.pk), "uplift": "0.25"})
    return review_open(
        actor=cast.platform,
        measurement=measured,
        statement=statement,
        envelope=sign(statement, keys.provider),
    )


@pytest.fixture
def auditor_key(cast: Cast, keys: Keys) -> None:
    auditor_key_register(
        actor=cast.auditor,
        organisation=cast.organisation,
        public_key_pem=public_pem(keys.auditor.public_key()).decode(),
    )


@pytest.fixture
def approved(cast: Cast, review: Review, keys: Keys, auditor_key: None) -> Measurement:
    """The measurement, approved by the auditor's signature."""
    envelope = add(review.envelope.encode(), keys.auditor)
    review_approve(actor=cast.auditor, review=review, envelope=envelope)
    return Measurement.objects.get(pk=review.measurement_id)


@pytest.fixture
def threads_db(transactional_db) -> Iterator[None]:
    """A database that several threads write to; its triggers go before it is emptied."""
    yield
    triggers.remove()
