"""Approval: a registered auditor's signature over the exact statement, never the maker's."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import IntegrityError, transaction
from django.http import Http404

from portal.accounts.access import NotAllowed, Platform
from portal.accounts.services import member_add
from portal.audits.models import Review
from portal.audits.services import (
    ReviewError,
    auditor_key_register,
    finding_raise,
    finding_resolve,
    review_approve,
    review_reject,
)
from portal.runs.models import Measurement
from reports.canonical import canonical_json
from reports.envelope import add, sign
from reports.keys import public_pem


def signed(review: Review, key: Ed25519PrivateKey) -> bytes:
    return add(review.envelope.encode(), key)


@pytest.mark.parametrize("signer", ["stranger", "auditor", "both"])
def test_review_opens_on_the_providers_signature_only(cast, measured, keys, signer):
    from portal.audits.services import review_open

    statement = canonical_json({"measurement": str(measured.pk)})
    envelope = {
        "stranger": lambda: sign(statement, Ed25519PrivateKey.generate()),
        "auditor": lambda: sign(statement, keys.auditor),
        "both": lambda: add(sign(statement, keys.provider), keys.auditor),
    }[signer]()
    with pytest.raises(ReviewError, match="not in the trust store"):
        review_open(
            actor=cast.platform, measurement=measured, statement=statement, envelope=envelope
        )
    assert Review.objects.count() == 0


def test_review_opens_on_the_signed_statement_only(cast, measured, keys):
    from portal.audits.services import review_open

    with pytest.raises(ReviewError, match="another statement"):
        review_open(
            actor=cast.platform,
            measurement=measured,
            statement=canonical_json({"uplift": "0.25"}),
            envelope=sign(canonical_json({"uplift": "9"}), keys.provider),
        )


def test_approval_with_registered_key(cast, review, keys, auditor_key):
    done = review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))
    assert done.state == "approved"
    assert done.decided_by == cast.auditor.user
    assert Measurement.objects.get(pk=review.measurement_id).state == "approved"


def test_key_must_be_registered(cast, review, keys):
    with pytest.raises(ReviewError, match="none registered"):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))


def test_other_key_is_refused(cast, review, auditor_key):
    stranger = Ed25519PrivateKey.generate()
    with pytest.raises(ReviewError, match="not in the trust store"):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, stranger))
    review.refresh_from_db()
    assert review.state == "open"


def test_revoked_key_is_refused(cast, review, keys, auditor_key):
    from django.utils import timezone

    from portal.audits.models import AuditorKey

    AuditorKey.objects.update(revoked_at=timezone.now())
    with pytest.raises(ReviewError, match="none registered"):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))


def test_missing_auditor_signature_is_refused(cast, review, auditor_key):
    with pytest.raises(ReviewError):
        review_approve(actor=cast.auditor, review=review, envelope=review.envelope.encode())


def test_other_statement_is_refused(cast, review, keys, auditor_key):
    other = canonical_json({"measurement": "another", "uplift": "9.99"})
    envelope = add(sign(other, keys.provider), keys.auditor)
    with pytest.raises(ReviewError, match="another one"):
        review_approve(actor=cast.auditor, review=review, envelope=envelope)


def test_platform_signature_must_be_the_one_of_the_review(cast, review, keys, auditor_key):
    statement = review.statement.encode()
    envelope = add(sign(statement, Ed25519PrivateKey.generate()), keys.auditor)
    with pytest.raises(ReviewError, match="missing or another"):
        review_approve(actor=cast.auditor, review=review, envelope=envelope)


def test_flipped_signature_is_refused(cast, review, keys, auditor_key):
    import base64
    import json

    document = json.loads(signed(review, keys.auditor))
    for entry in document["signatures"]:
        if entry not in json.loads(review.envelope)["signatures"]:
            raw = bytearray(base64.b64decode(entry["sig"]))
            raw[3] ^= 1
            entry["sig"] = base64.b64encode(bytes(raw)).decode()
    with pytest.raises(ReviewError, match="wrong"):
        review_approve(actor=cast.auditor, review=review, envelope=canonical_json(document))


@pytest.mark.parametrize("who", ["owner", "colleague", "finance", "operator"])
def test_only_auditors_decide(cast, review, keys, auditor_key, who):
    with pytest.raises(NotAllowed):
        review_approve(
            actor=getattr(cast, who), review=review, envelope=signed(review, keys.auditor)
        )


def test_outsider_finds_nothing(cast, review, keys):
    with pytest.raises(Http404):
        review_approve(actor=cast.outsider, review=review, envelope=signed(review, keys.auditor))


def test_creator_is_never_approver(cast, review, keys):
    """Even with a second role as auditor and an own registered key."""
    both = member_add(
        actor=Platform(cast.organisation),
        organisation=cast.organisation,
        username="owner",
        role="auditor",
    )
    own = Ed25519PrivateKey.generate()
    auditor_key_register(
        actor=both,
        organisation=cast.organisation,
        public_key_pem=public_pem(own.public_key()).decode(),
    )
    with pytest.raises(NotAllowed, match="never approves"):
        review_approve(actor=both, review=review, envelope=signed(review, own))


def test_database_refuses_creator_as_approver(cast, review):
    with pytest.raises(IntegrityError), transaction.atomic():
        Review.objects.filter(pk=review.pk).update(decided_by=cast.owner.user)


def test_platform_key_as_auditor_key_is_refused(cast, review, keys):
    auditor_key_register(
        actor=cast.auditor,
        organisation=cast.organisation,
        public_key_pem=public_pem(keys.provider.public_key()).decode(),
    )
    with pytest.raises(ReviewError, match="two distinct keys"):
        review_approve(actor=cast.auditor, review=review, envelope=review.envelope.encode())


def test_blocking_finding_stops_approval(cast, review, keys, auditor_key):
    finding = finding_raise(
        actor=cast.auditor, review=review, severity="blocking", text="Load was high in pair 3."
    )
    with pytest.raises(ReviewError, match="1 blocking finding"):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))
    finding_resolve(actor=cast.auditor, finding=finding)
    review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))
    assert review.state == "approved"


def test_rejection_is_final(cast, review, keys, auditor_key):
    review_reject(actor=cast.auditor, review=review, reason="The interval is too wide.")
    assert Measurement.objects.get(pk=review.measurement_id).state == "rejected"
    with pytest.raises(ReviewError, match="already rejected"):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))


def test_rejection_says_why(cast, review):
    with pytest.raises(ReviewError, match="says why"):
        review_reject(actor=cast.auditor, review=review, reason="  ")


def test_expired_auditor_decides_nothing(cast, review, keys, auditor_key):
    from datetime import timedelta

    from django.utils import timezone

    cast.auditor.expires_at = timezone.now() - timedelta(seconds=1)
    cast.auditor.save()
    with pytest.raises(NotAllowed):
        review_approve(actor=cast.auditor, review=review, envelope=signed(review, keys.auditor))
