"""Writes of reviews: opening one, findings, approval by a verified signature, rejection.

Approval is one choke point for page, API, task and command line: the auditor uploads an envelope
signed elsewhere with a registered key; who made the measurement never approves it. The portal
holds public keys only.
"""

from collections.abc import Mapping

from django.db import transaction
from django.utils import timezone

from portal.accounts.access import Actor, NotAllowed, Platform, require
from portal.accounts.models import Membership, Organisation
from portal.audits.models import AuditorKey, Finding, Review
from portal.contracts.agreement import key_id_of, load_public_key
from portal.contracts.models import Party, PartyKey
from portal.events.services import event_record
from portal.runs.models import Measurement
from reports.canonical import canonical_document, canonical_json, sha256_bytes
from reports.envelope import read, verify
from reports.errors import ReportError
from reports.trust import TrustedKey

PUBLIC_FILES = ("manifest.pub", "root.pem", "document.pem", "witness.vkey")


class ReviewError(ValueError):
    """A review, key, finding or envelope that cannot be used; names what was got and wanted."""


@transaction.atomic
def auditor_key_register(
    *,
    actor: Membership,
    organisation: Organisation,
    public_key_pem: str,
    public_files: Mapping[str, str] | None = None,
) -> AuditorKey:
    """Register the public halves of the acting auditor's keys.

    `public_key_pem` is the statement key (Ed25519), which approves. `public_files` are the other
    public halves that `python -m reports auditor-keys` wrote (PUBLIC_FILES), needed to seal
    reports that this auditor countersigns. ReviewError when one holds a private key.
    """
    require(actor, "auditor_key.register", organisation)
    key_id = key_id_of(public_key_pem)
    files = dict(public_files or {})
    unknown = sorted(set(files) - set(PUBLIC_FILES))
    if unknown or any("PRIVATE KEY" in text for text in (public_key_pem, *files.values())):
        raise ReviewError(
            f"public files: got {', '.join(sorted(files))}; wanted only {', '.join(PUBLIC_FILES)},"
            " and never a private key"
        )
    found = AuditorKey.objects.filter(organisation=organisation, key_id=key_id).first()
    if found:
        if found.auditor_id != actor.user_id:
            raise ReviewError(f"key {key_id[:12]}: registered by another auditor")
        return found
    key = AuditorKey(
        organisation=organisation,
        auditor=actor.user,
        key_id=key_id,
        public_key_pem=public_key_pem,
        public_files=files,
    )
    key.save(force_insert=True)
    event_record(
        action="auditor_key.register",
        actor=actor,
        subject=key,
        organisation=organisation,
        data={"key_id": key_id},
    )
    return key


@transaction.atomic
def review_open(
    *, actor: Actor, measurement: Measurement, statement: bytes, envelope: bytes
) -> Review:
    """Open the review of a measurement with the statement the platform has signed.

    One review per measurement; the one that is there is returned again. ReviewError when the
    envelope does not hold exactly this statement, is not signed by a registered key of the
    provider, or nothing is measured yet.
    """
    if not isinstance(actor, Platform):
        raise ReviewError("review.open: only the platform opens reviews, when a measurement ends")
    found = Review.objects.filter(measurement=measurement).first()
    if found:
        return found
    if measurement.state != Measurement.State.MEASURED:
        raise ReviewError(f"{measurement}: state is {measurement.state}, wanted measured")
    provider_keys = {
        key.key_id: TrustedKey("platform", load_public_key(key.public_key_pem), None)
        for key in PartyKey.objects.filter(
            organisation=measurement.organisation, party=Party.PROVIDER, revoked_at__isnull=True
        )
    }
    try:
        payload = verify(envelope, provider_keys, ("platform",))
        _, signatures = read(envelope)
    except ReportError as error:
        raise ReviewError(f"envelope: {error}") from error
    if payload != statement:
        raise ReviewError("envelope: holds another statement than the one to be reviewed")
    review = Review(
        organisation=measurement.organisation,
        measurement=measurement,
        creator=measurement.created_by,
        statement=statement.decode("utf-8"),
        statement_sha256=sha256_bytes(statement),
        envelope=envelope.decode("ascii"),
    )
    review.save(force_insert=True)
    event_record(
        action="review.open",
        actor=actor,
        subject=review,
        organisation=review.organisation,
        data={
            "measurement": str(measurement.pk),
            "statement_sha256": review.statement_sha256,
            "platform_key": next(iter(signatures)),
        },
    )
    return review


def _decidable(actor: Membership, review: Review) -> tuple[Review, Measurement]:
    """Lock review and measurement for a decision, or say why this actor may not decide."""
    require(actor, "review.decide", review.organisation)
    locked = Review.objects.select_for_update(of=("self",)).get(pk=review.pk)
    measurement = Measurement.objects.select_for_update(of=("self",)).get(pk=locked.measurement_id)
    if locked.state != Review.State.OPEN:
        raise ReviewError(f"review: already {locked.state}; a decision is made once")
    if actor.user_id is None or actor.user_id in (locked.creator_id, measurement.created_by_id):
        raise NotAllowed("review.decide: whoever made a measurement never approves it")
    return locked, measurement


@transaction.atomic
def review_approve(*, actor: Membership, review: Review, envelope: bytes) -> Review:
    """Approve with an envelope the auditor signed elsewhere.

    The envelope must hold the review's exact statement, signed by the platform's key of the
    opened review and by a registered, unrevoked key of the acting auditor, and by nobody else.
    ReviewError or NotAllowed otherwise; nothing changes then.
    """
    locked, measurement = _decidable(actor, review)
    blocking = locked.findings.filter(
        severity=Finding.Severity.BLOCKING, resolved_at__isnull=True
    ).count()
    if blocking:
        raise ReviewError(f"review: {blocking} blocking finding(s) are open; resolve them first")
    keys = {
        key.key_id: key
        for key in AuditorKey.objects.filter(
            organisation=locked.organisation, auditor=actor.user, revoked_at__isnull=True
        )
    }
    if not keys:
        raise ReviewError("auditor key: none registered; register the public key first")
    try:
        _, platform_signatures = read(locked.envelope.encode("ascii"))
        _, uploaded = read(envelope)
        platform_id = next(iter(platform_signatures))
        if platform_signatures[platform_id] != uploaded.get(platform_id):
            raise ReviewError("envelope: the platform's signature is missing or another one")
        if platform_id in keys:
            raise ReviewError("auditor key: is the platform's own key; two distinct keys are asked")
        trusted = {
            key_id: TrustedKey("auditor", load_public_key(key.public_key_pem), None)
            for key_id, key in keys.items()
        }
        # The platform's half was verified when the review opened and is compared byte for byte
        # above, so only the auditor's half is left to check here.
        payload = verify(_without(envelope, platform_id), trusted, ("auditor",))
    except ReportError as error:
        raise ReviewError(f"envelope: {error}") from error
    if payload != locked.statement.encode("utf-8"):
        raise ReviewError("envelope: holds another statement than the one under review")
    signer = next(key for key in uploaded if key != platform_id)
    now = timezone.now()
    locked.state = Review.State.APPROVED
    locked.envelope = envelope.decode("ascii")
    locked.decided_by, locked.decided_at, locked.auditor_key = actor.user, now, keys[signer]
    locked.save(update_fields=["state", "envelope", "decided_by", "decided_at", "auditor_key"])
    measurement.state = Measurement.State.APPROVED
    measurement.save(update_fields=["state"])
    event_record(
        action="review.approve",
        actor=actor,
        subject=locked,
        organisation=locked.organisation,
        data={"key_id": signer, "statement_sha256": locked.statement_sha256},
    )
    review.refresh_from_db()
    return locked


def _without(envelope: bytes, key_id: str) -> bytes:
    """The same envelope less one signature, in its exact form."""
    document = canonical_document(envelope)
    document["signatures"] = [s for s in document["signatures"] if s["keyid"] != key_id]
    return canonical_json(document)


@transaction.atomic
def review_reject(*, actor: Membership, review: Review, reason: str) -> Review:
    """Reject with a reason; the measurement can then never be billed."""
    locked, measurement = _decidable(actor, review)
    if not reason.strip():
        raise ReviewError("reason: got nothing; a rejection says why")
    locked.state = Review.State.REJECTED
    locked.decided_by, locked.decided_at = actor.user, timezone.now()
    locked.reason = reason.strip()
    locked.save(update_fields=["state", "decided_by", "decided_at", "reason"])
    measurement.state = Measurement.State.REJECTED
    measurement.save(update_fields=["state"])
    event_record(
        action="review.reject",
        actor=actor,
        subject=locked,
        organisation=locked.organisation,
        data={"reason": locked.reason},
    )
    review.refresh_from_db()
    return locked


@transaction.atomic
def finding_raise(*, actor: Membership, review: Review, severity: str, text: str) -> Finding:
    """Note something about an open review; a blocking finding stops the approval."""
    require(actor, "finding.raise", review.organisation)
    if severity not in Finding.Severity.values or not text.strip():
        raise ReviewError(
            f"finding: got severity {severity!r} and {len(text.strip())} characters; wanted one of"
            f" {', '.join(Finding.Severity.values)} and some text"
        )
    locked = Review.objects.select_for_update(of=("self",)).get(pk=review.pk)
    if locked.state != Review.State.OPEN:
        raise ReviewError(f"review: already {locked.state}; findings belong to open reviews")
    finding = Finding(review=locked, author=actor.user, severity=severity, text=text.strip())
    finding.save(force_insert=True)
    event_record(
        action="finding.raise",
        actor=actor,
        subject=finding,
        organisation=locked.organisation,
        data={"severity": severity, "review": str(locked.pk)},
    )
    return finding


@transaction.atomic
def finding_resolve(*, actor: Membership, finding: Finding) -> Finding:
    """Mark a finding as settled; only an auditor of the organisation does this."""
    require(actor, "finding.raise", finding.review.organisation)
    if finding.resolved_at is None:
        finding.resolved_at = timezone.now()
        finding.save(update_fields=["resolved_at"])
        event_record(
            action="finding.resolve",
            actor=actor,
            subject=finding,
            organisation=finding.review.organisation,
        )
    return finding
