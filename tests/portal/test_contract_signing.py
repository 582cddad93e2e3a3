"""Plan signing: three parties, three keys, nothing runs before."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from portal.accounts.access import NotAllowed
from portal.contracts.agreement import AgreementError, agreement_bytes, signed_bytes
from portal.contracts.services import contract_draft, party_key_register, plan_sign
from portal.events.models import Event
from portal.runs.services import RunsError, require_signed
from reports.keys import key_id, public_pem


def signature(key: Ed25519PrivateKey, message: bytes) -> str:
    return base64.b64encode(key.sign(message)).decode()


def test_all_three_make_it_signed(draft, sign_plan):
    for party in ("provider", "customer"):
        sign_plan(draft, party)
        assert draft.status == "draft"
        with pytest.raises(RunsError, match="not signed by all three"):
            require_signed(draft)
    sign_plan(draft, "auditor")
    assert draft.status == "signed"
    assert draft.signed_at is not None
    require_signed(draft)


def test_signing_twice_keeps_the_first(draft, sign_plan):
    sign_plan(draft, "customer")
    sign_plan(draft, "customer")
    assert draft.signatures.count() == 1
    assert Event.objects.filter(action="plan.sign").count() == 1


def test_unregistered_key_is_refused(cast, draft, keys):
    with pytest.raises(AgreementError, match="not registered for the customer"):
        plan_sign(
            actor=cast.owner,
            contract_version=draft,
            party="customer",
            key_id=key_id(keys.customer.public_key()),
            signature_b64=signature(keys.customer, signed_bytes(draft)),
        )


@pytest.mark.parametrize("message", [b"", b"other bytes"])
def test_signature_over_other_bytes_is_refused(cast, draft, keys, message):
    pem = public_pem(keys.customer.public_key()).decode()
    party_key_register(
        actor=cast.owner, organisation=cast.organisation, party="customer", public_key_pem=pem
    )
    with pytest.raises(AgreementError, match="does not hold"):
        plan_sign(
            actor=cast.owner,
            contract_version=draft,
            party="customer",
            key_id=key_id(keys.customer.public_key()),
            signature_b64=signature(keys.customer, message),
        )
    assert draft.signatures.count() == 0


def test_bare_agreement_bytes_are_not_what_is_signed(cast, draft, keys):
    """The type belongs to the signed bytes, or one signature could serve two documents."""
    assert agreement_bytes(draft) in signed_bytes(draft)
    assert agreement_bytes(draft) != signed_bytes(draft)


def test_one_key_is_one_partys(cast, keys):
    pem = public_pem(keys.customer.public_key()).decode()
    party_key_register(
        actor=cast.owner, organisation=cast.organisation, party="customer", public_key_pem=pem
    )
    with pytest.raises(AgreementError, match="already registered for the customer"):
        party_key_register(
            actor=cast.auditor, organisation=cast.organisation, party="auditor", public_key_pem=pem
        )


@pytest.mark.parametrize(
    ("who", "party"),
    [
        ("owner", "auditor"),
        ("owner", "provider"),
        ("auditor", "customer"),
        ("finance", "customer"),
        ("operator", "provider"),
    ],
)
def test_nobody_signs_for_another(cast, draft, keys, who, party):
    with pytest.raises(NotAllowed):
        plan_sign(
            actor=getattr(cast, who),
            contract_version=draft,
            party=party,
            key_id="00" * 32,
            signature_b64="",
        )


def test_same_draft_again_is_the_same_row(cast, draft):
    from metering.contract import Contract
    from metering.plan import MeasurementPlan

    again = contract_draft(
        actor=cast.owner,
        organisation=cast.organisation,
        contract=Contract.from_json(draft.contract),
        plan=MeasurementPlan.from_json(draft.plan),
        system=draft.system,
        mix=draft.mix,
        price_book=draft.price_book,
    )
    assert again.pk == draft.pk


def test_other_content_needs_a_new_version(cast, draft):
    from dataclasses import replace
    from decimal import Decimal

    from metering.contract import Contract
    from metering.plan import MeasurementPlan

    changed = replace(Contract.from_json(draft.contract), holdback=Decimal("0.1"))
    with pytest.raises(AgreementError, match="draft it as version 2"):
        contract_draft(
            actor=cast.owner,
            organisation=cast.organisation,
            contract=changed,
            plan=MeasurementPlan.from_json(draft.plan),
            system=draft.system,
            mix=draft.mix,
            price_book=draft.price_book,
        )
