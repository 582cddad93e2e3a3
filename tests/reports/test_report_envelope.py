"""DSSE statements: two distinct keys of two roles, over stored bytes (T8-T14)."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from reports import envelope
from reports.canonical import canonical_json
from reports.envelope import PAYLOAD_TYPE, add, pae, read, sign, verify
from reports.errors import ReportError
from reports.keys import key_id, public_pem
from reports.statement import BILLING_TYPE, MEASUREMENT_TYPE, STATEMENT_TYPE, read_statement
from reports.trust import TrustedKey
from tests.reports.parties import Sides

DIGEST = "a" * 64


def payload(**changes: Any) -> bytes:
    document = {
        "_type": STATEMENT_TYPE,
        "predicate": {"facts": {}},
        "predicateType": MEASUREMENT_TYPE,
        "subject": [{"digest": {"sha256": DIGEST}, "name": "evidence/plan.json"}],
    }
    return canonical_json({**document, **changes})


@pytest.fixture
def signed(sides: Sides) -> bytes:
    return add(sign(payload(), sides.platform.statement), sides.auditor.statement)


def changed(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    document = json.loads(data)
    change(document)
    return canonical_json(document)


def test_both_roles_give_the_payload(sides: Sides, signed: bytes) -> None:
    assert verify(signed, sides.trust.statement_keys) == payload()
    assert read_statement(payload(), MEASUREMENT_TYPE).subjects == {"evidence/plan.json": DIGEST}


def test_pre_authentication_encoding_is_that_of_the_dsse_specification() -> None:
    assert pae("http://example.com/HelloWorld", b"hello world") == (
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_one_signature_is_not_two(sides: Sides) -> None:
    alone = sign(payload(), sides.platform.statement)
    with pytest.raises(ReportError, match="missing: auditor"):
        verify(alone, sides.trust.statement_keys)
    with pytest.raises(ReportError, match="missing: platform"):
        verify(sign(payload(), sides.auditor.statement), sides.trust.statement_keys)


def test_signing_twice_with_one_key_stays_one_signature(sides: Sides) -> None:
    twice = add(sign(payload(), sides.platform.statement), sides.platform.statement)
    assert len(read(twice)[1]) == 1
    with pytest.raises(ReportError, match="missing: auditor"):
        verify(twice, sides.trust.statement_keys)


def test_a_repeated_key_id_is_refused(sides: Sides, signed: bytes) -> None:
    """The TUF mistake: counting signatures instead of keys."""

    def repeat(document: dict[str, Any]) -> None:
        document["signatures"].append(document["signatures"][0])

    with pytest.raises(ReportError, match="twice"):
        verify(changed(signed, repeat), sides.trust.statement_keys)


def test_two_keys_of_one_role_are_refused(sides: Sides) -> None:
    second = ed25519.Ed25519PrivateKey.generate()
    keys = {
        **sides.trust.statement_keys,
        key_id(second.public_key()): TrustedKey("platform", second.public_key(), None),
    }
    with pytest.raises(ReportError, match="two signatures of the role platform"):
        verify(add(sign(payload(), sides.platform.statement), second), keys)


def test_a_third_signature_by_a_stranger_is_not_ignored(sides: Sides, strangers: Sides) -> None:
    data = add(sign(payload(), sides.platform.statement), sides.auditor.statement)
    with pytest.raises(ReportError, match="not in the trust store"):
        verify(add(data, strangers.auditor.statement), sides.trust.statement_keys)


def test_keys_of_others_and_of_other_purposes_are_refused(sides: Sides, strangers: Sides) -> None:
    """T9: wrong key, and a key made for something else."""
    for key in (strangers.platform.statement, sides.platform.manifest, sides.platform.note):
        with pytest.raises(ReportError, match="not in the trust store"):
            verify(add(sign(payload(), key), sides.auditor.statement), sides.trust.statement_keys)


def test_a_key_that_travels_in_the_document_is_refused(sides: Sides, strangers: Sides) -> None:
    """Known failure 11: the attacker's key in the payload was believed."""

    def bring_key(document: dict[str, Any]) -> None:
        pem = public_pem(strangers.platform.statement.public_key()).decode()
        document["signatures"][0]["publicKey"] = pem

    data = add(sign(payload(), strangers.platform.statement), strangers.auditor.statement)
    with pytest.raises(ReportError, match="nothing else"):
        verify(changed(data, bring_key), sides.trust.statement_keys)


def test_a_signature_moved_under_another_key_id_is_refused(sides: Sides, signed: bytes) -> None:
    def swap(document: dict[str, Any]) -> None:
        first, second = document["signatures"]
        first["sig"], second["sig"] = second["sig"], first["sig"]

    with pytest.raises(ReportError, match="is wrong"):
        verify(changed(signed, swap), sides.trust.statement_keys)


def test_a_revoked_key_no_longer_counts(sides: Sides, signed: bytes) -> None:
    """T10: times are self-asserted, so a revoked key proves nothing, whatever date it claims."""
    revoked = {
        identity: replace(key, revoked_at="2026-11-01T00:00:00Z") if key.role == "auditor" else key
        for identity, key in sides.trust.statement_keys.items()
    }
    with pytest.raises(ReportError, match="revoked"):
        verify(signed, revoked)


@pytest.mark.parametrize("kind", ["application/json", "", "application/vnd.in-toto+json ", None, 7])
def test_another_payload_type_is_refused(sides: Sides, signed: bytes, kind: Any) -> None:
    """T11."""

    def retype(document: dict[str, Any]) -> None:
        document["payloadType"] = kind

    with pytest.raises(ReportError, match="payloadType"):
        verify(changed(signed, retype), sides.trust.statement_keys)


def test_the_payload_type_is_under_the_signature(sides: Sides) -> None:
    """T11: bytes signed as another type do not become a statement."""
    other = sides.platform.statement.sign(pae("application/json", payload()))
    good = add(sign(payload(), sides.platform.statement), sides.auditor.statement)

    def replace_signature(document: dict[str, Any]) -> None:
        for entry in document["signatures"]:
            if entry["keyid"] == key_id(sides.platform.statement.public_key()):
                entry["sig"] = base64.b64encode(other).decode()

    with pytest.raises(ReportError, match="is wrong"):
        verify(changed(good, replace_signature), sides.trust.statement_keys)


def test_another_predicate_type_is_refused() -> None:
    """Known failures 1 and 4: 'verified' although no statement of the asked type is there."""
    with pytest.raises(ReportError, match="predicate type"):
        read_statement(payload(), BILLING_TYPE)
    with pytest.raises(ReportError, match="statement type"):
        read_statement(payload(_type="https://in-toto.io/Statement/v0.1"), MEASUREMENT_TYPE)


@pytest.mark.parametrize(
    "subject",
    [
        [{"digest": {"sha256": DIGEST}, "name": "a"}, {"digest": {"sha256": DIGEST}, "name": "a"}],
        [{"digest": {"md5": DIGEST}, "name": "a"}],
        [{"digest": {"sha256": DIGEST, "md5": "x"}, "name": "a"}],
        [{"digest": {"sha256": DIGEST.upper()}, "name": "a"}],
        [{"digest": {"sha256": DIGEST[:-1]}, "name": "a"}],
        [{"name": "a"}],
        [{"digest": {"sha256": DIGEST}, "name": "a", "uri": "x"}],
        ["a"],
    ],
)
def test_subjects_hold_one_sha256_each(subject: Any) -> None:
    with pytest.raises(ReportError, match="subject"):
        read_statement(payload(subject=subject), MEASUREMENT_TYPE)


def test_no_algorithm_is_read_from_the_document(sides: Sides, signed: bytes) -> None:
    """T13 (failures 20, 21): there is no field to say 'none' in, and an added one is refused."""

    def name_algorithm(document: dict[str, Any]) -> None:
        document["signatures"][0]["alg"] = "none"

    with pytest.raises(ReportError, match="nothing else"):
        verify(changed(signed, name_algorithm), sides.trust.statement_keys)

    def empty(document: dict[str, Any]) -> None:
        document["signatures"][0]["sig"] = ""

    with pytest.raises(ReportError, match="is wrong"):
        verify(changed(signed, empty), sides.trust.statement_keys)


def test_duplicate_keys_and_other_forms_of_the_same_json_are_refused(
    sides: Sides, signed: bytes
) -> None:
    """T14 (failure 23): what two parsers may read differently is no statement."""
    for data in (
        signed.replace(b'{"payload"', b'{"payload":"e30=","payload"'),
        json.dumps(json.loads(signed), indent=1).encode(),
        signed + b"\n",
        b"\xef\xbb\xbf" + signed,
        b"[]",
        b"",
    ):
        with pytest.raises(ReportError):
            verify(data, sides.trust.statement_keys)
    twice = payload().replace(b'{"_type"', b'{"_type":"x","_type"')
    with pytest.raises(ReportError, match="twice"):
        read_statement(twice, MEASUREMENT_TYPE)


def test_every_flipped_byte_of_an_envelope_is_refused(sides: Sides, signed: bytes) -> None:
    for place in range(len(signed)):
        data = bytearray(signed)
        data[place] ^= 1
        with pytest.raises(ReportError):
            verify(bytes(data), sides.trust.statement_keys)


def test_a_stranger_verifies_with_openssl_alone(sides: Sides, tmp_path: Path) -> None:
    """PAE with base64 and printf, then `openssl pkeyutl`; one changed byte fails."""
    document = json.loads(sign(payload(), sides.platform.statement))
    body = base64.b64decode(document["payload"])
    (tmp_path / "pae").write_bytes(
        b"DSSEv1 %d %s %d " % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(body)) + body
    )
    (tmp_path / "sig").write_bytes(base64.b64decode(document["signatures"][0]["sig"]))
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-rawin"]
    command += ["-inkey", str(sides.platform_dir / "statement.pub.pem")]
    command += ["-in", str(tmp_path / "pae"), "-sigfile", str(tmp_path / "sig")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    (tmp_path / "pae").write_bytes((tmp_path / "pae").read_bytes().replace(b"facts", b"fakts"))
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_too_many_signatures_are_refused(sides: Sides) -> None:
    data = sign(payload(), sides.platform.statement)
    for _ in range(envelope.MAX_SIGNATURES - 1):
        data = add(data, ed25519.Ed25519PrivateKey.generate())
    with pytest.raises(ReportError, match="1 to 8"):
        read(add(data, ed25519.Ed25519PrivateKey.generate()))
