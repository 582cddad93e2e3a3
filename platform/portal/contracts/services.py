"""Writes of party keys, contract versions and plan signatures: one transaction, one event each."""

from django.db import transaction
from django.utils import timezone

from metering.contract import Contract
from metering.plan import MeasurementPlan
from portal.accounts.access import Actor, NotAllowed, Platform, require
from portal.accounts.models import Organisation, Role
from portal.contracts.agreement import (
    AgreementError,
    check_signature,
    key_id_of,
    signed_bytes,
)
from portal.contracts.models import ContractVersion, Party, PartyKey, PlanSignature
from portal.events.services import event_record
from portal.registry.models import ModelMix, PriceBook, System


def _require_party(actor: Actor, party: str, organisation: Organisation, action: str) -> None:
    """Each party speaks for itself: the provider through the platform, the others in person."""
    require(actor, action, organisation)
    if party not in Party.values:
        raise AgreementError(f"party: got {party!r}; wanted one of {', '.join(Party.values)}")
    if party == Party.PROVIDER:
        allowed = isinstance(actor, Platform)
    else:
        role = Role.CUSTOMER if party == Party.CUSTOMER else Role.AUDITOR
        allowed = not isinstance(actor, Platform) and actor.role == role
    if not allowed:
        raise NotAllowed(f"{action}: only the {party} may do this for the {party}")


@transaction.atomic
def party_key_register(
    *, actor: Actor, organisation: Organisation, party: str, public_key_pem: str
) -> PartyKey:
    """Register a party's public key; AgreementError when another party already uses it."""
    _require_party(actor, party, organisation, "party_key.register")
    key_id = key_id_of(public_key_pem)
    found = PartyKey.objects.filter(organisation=organisation, key_id=key_id).first()
    if found:
        if found.party != party:
            raise AgreementError(f"key {key_id[:12]}: already registered for the {found.party}")
        return found
    key = PartyKey(
        organisation=organisation,
        party=party,
        key_id=key_id,
        public_key_pem=public_key_pem,
        registered_by=actor.user,
    )
    key.save(force_insert=True)
    event_record(
        action="party_key.register",
        actor=actor,
        subject=key,
        organisation=organisation,
        data={"party": party, "key_id": key_id},
    )
    return key


@transaction.atomic
def contract_draft(
    *,
    actor: Actor,
    organisation: Organisation,
    contract: Contract,
    plan: MeasurementPlan,
    system: System,
    mix: ModelMix,
    price_book: PriceBook,
) -> ContractVersion:
    """Draft one version of a contract with its plan; the same content again returns that draft.

    AgreementError when this version exists with other content: a change is a new version.
    """
    require(actor, "contract.draft", organisation)
    for thing in (system, mix, price_book):
        if thing.organisation_id != organisation.pk:
            raise AgreementError(f"{thing}: belongs to another organisation")
    found = ContractVersion.objects.filter(
        organisation=organisation, contract_id=contract.contract_id, version=contract.version
    ).first()
    if found:
        same = (
            found.contract_sha256 == contract.digest
            and found.plan_sha256 == plan.digest
            and (found.system_id, found.mix_id, found.price_book_id)
            == (system.pk, mix.pk, price_book.pk)
        )
        if not same:
            raise AgreementError(
                f"contract {contract.contract_id} version {contract.version}: exists with other"
                f" content; draft it as version {contract.version + 1}"
            )
        return found
    draft = ContractVersion(
        organisation=organisation,
        contract_id=contract.contract_id,
        version=contract.version,
        system=system,
        mix=mix,
        price_book=price_book,
        contract=contract.to_json(),
        contract_sha256=contract.digest,
        plan=plan.to_json(),
        plan_sha256=plan.digest,
    )
    draft.save(force_insert=True)
    event_record(
        action="contract.draft",
        actor=actor,
        subject=draft,
        organisation=organisation,
        data={
            "contract_id": draft.contract_id,
            "version": draft.version,
            "contract_sha256": draft.contract_sha256,
            "plan_sha256": draft.plan_sha256,
        },
    )
    return draft


@transaction.atomic
def plan_sign(
    *, actor: Actor, contract_version: ContractVersion, party: str, key_id: str, signature_b64: str
) -> PlanSignature:
    """Add one party's signature; with the third one the version becomes signed.

    The key must be registered for that party and not revoked. Signing again returns the first
    signature. AgreementError names what does not hold.
    """
    organisation = contract_version.organisation
    _require_party(actor, party, organisation, "plan.sign")
    version = (
        ContractVersion.objects.select_for_update(of=("self",))
        .select_related("organisation", "price_book", "system", "mix__model")
        .get(pk=contract_version.pk)
    )
    found = PlanSignature.objects.filter(contract_version=version, party=party).first()
    if found:
        return PlanSignature.objects.get(pk=found.pk)
    key = PartyKey.objects.filter(
        organisation=organisation, party=party, key_id=key_id, revoked_at__isnull=True
    ).first()
    if key is None:
        raise AgreementError(
            f"key {key_id[:12]}: not registered for the {party}; register its public key first"
        )
    check_signature(key.public_key_pem, signature_b64, signed_bytes(version))
    signature = PlanSignature(
        contract_version=version,
        party=party,
        key_id=key_id,
        public_key_pem=key.public_key_pem,
        signature_b64=signature_b64,
        signer=actor.user,
    )
    signature.save(force_insert=True)
    signed = set(version.signatures.values_list("party", flat=True))
    if signed == set(Party.values):
        version.status = ContractVersion.Status.SIGNED
        version.signed_at = timezone.now()
        version.save(update_fields=["status", "signed_at"])
    event_record(
        action="plan.sign",
        actor=actor,
        subject=version,
        organisation=organisation,
        data={"party": party, "key_id": key_id, "signed": version.status == "signed"},
    )
    contract_version.refresh_from_db()
    return signature
