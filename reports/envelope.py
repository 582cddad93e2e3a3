"""DSSE envelopes: payload bytes and the Ed25519 signatures over them.

In: payload bytes and keys. Out: envelope bytes (RFC 8785), or the payload once both roles have
signed it. Signatures cover the stored bytes and the payload type (PAE), never re-serialised
JSON. The envelope names key ids, but only the trust store says which key and role an id is:
an unknown id, a repeated id or any extra field is refused, not skipped.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ed25519

from reports.canonical import canonical_document, canonical_json
from reports.errors import ReportError
from reports.keys import key_id
from reports.trust import ROLES, TrustedKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
MAX_SIGNATURES = 8


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: what is signed."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload: bytes, key: ed25519.Ed25519PrivateKey) -> bytes:
    """An envelope with one signature."""
    return _bytes(payload, {key_id(key.public_key()): key.sign(pae(PAYLOAD_TYPE, payload))})


def add(envelope: bytes, key: ed25519.Ed25519PrivateKey) -> bytes:
    """The envelope with one more signature over the same payload; signing twice changes nothing."""
    payload, signatures = read(envelope)
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    return _bytes(payload, {**signatures, key_id(key.public_key()): signature})


def read(envelope: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Payload and signatures by key id, unverified. Raises ReportError for any other shape."""
    document = canonical_document(envelope)
    if not isinstance(document, dict) or set(document) != {
        "payload",
        "payloadType",
        "signatures",
    }:
        raise ReportError("DSSE envelope must hold payload, payloadType, signatures, nothing else")
    if document["payloadType"] != PAYLOAD_TYPE:
        raise ReportError(
            f"DSSE payloadType is {document['payloadType']!r:.80}, wanted {PAYLOAD_TYPE}"
        )
    entries = document["signatures"]
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_SIGNATURES:
        raise ReportError(f"DSSE envelope needs 1 to {MAX_SIGNATURES} signatures")
    signatures: dict[str, bytes] = {}
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"keyid", "sig"}:
            raise ReportError("a DSSE signature must hold keyid and sig, nothing else")
        identity = entry["keyid"]
        if not isinstance(identity, str):
            raise ReportError("DSSE keyid must be text")
        if identity in signatures:
            raise ReportError(f"DSSE envelope is signed twice by key {identity}")
        signatures[identity] = _base64(entry["sig"])
    payload = _base64(document["payload"])
    if _bytes(payload, signatures) != envelope:
        raise ReportError("DSSE envelope is not in its exact form; its bytes were changed")
    return payload, signatures


def verify(
    envelope: bytes,
    trusted: Mapping[str, TrustedKey],
    roles: tuple[str, ...] = ROLES,
) -> bytes:
    """The payload, once exactly the holders of `roles` have signed it, each with a right key.

    Raises ReportError for an unknown, revoked or repeated key, a wrong signature, a missing role,
    or two keys of the same role.
    """
    payload, signatures = read(envelope)
    message = pae(PAYLOAD_TYPE, payload)
    seen: dict[str, str] = {}
    for identity, signature in signatures.items():
        known = trusted.get(identity)
        if known is None:
            raise ReportError(
                f"statement is signed by key {identity}, which is not in the trust store"
            )
        if known.revoked_at is not None:
            # Times in a report are self-asserted, so "before the revocation" cannot be believed.
            raise ReportError(f"statement is signed by key {identity}, revoked {known.revoked_at}")
        if not isinstance(known.key, ed25519.Ed25519PublicKey):
            raise ReportError(f"statement key {identity} is not Ed25519")
        try:
            known.key.verify(signature, message)
        except InvalidSignature as error:
            raise ReportError(
                f"signature of the {known.role} over the statement is wrong"
            ) from error
        if known.role in seen:
            raise ReportError(f"statement carries two signatures of the role {known.role}")
        seen[known.role] = identity
    if set(seen) != set(roles):
        missing = ", ".join(sorted(set(roles) - set(seen))) or "none"
        surplus = ", ".join(sorted(set(seen) - set(roles))) or "none"
        raise ReportError(
            f"statement needs the signatures of {' and '.join(roles)}; missing: {missing}, "
            f"not wanted: {surplus}"
        )
    return payload


def _bytes(payload: bytes, signatures: Mapping[str, bytes]) -> bytes:
    entries = [
        {"keyid": identity, "sig": base64.b64encode(signatures[identity]).decode("ascii")}
        for identity in sorted(signatures)
    ]
    document = {
        "payload": base64.b64encode(payload).decode("ascii"),
        "payloadType": PAYLOAD_TYPE,
        "signatures": entries,
    }
    return canonical_json(document)


def _base64(value: Any) -> bytes:
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ReportError("DSSE field is not base64") from error
    if base64.b64encode(data).decode("ascii") != value:
        raise ReportError("DSSE field is not canonical base64")
    return data
