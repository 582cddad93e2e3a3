"""What the three parties sign, as bytes, and the check of one signature.

In: a contract version, a public key, a signature. Out: the canonical bytes, or an error that says
which part does not hold. No private key is ever read here: each party signs with its own tool.
"""

import base64
import binascii
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from metering import canonical
from portal.contracts.models import ContractVersion
from reports.envelope import pae

SCHEMA = "ignition.agreement.v1"
# DSSE's type of what is signed: no signature made for anything else fits these bytes.
PAYLOAD_TYPE = "application/vnd.ignition.agreement+json"


class AgreementError(ValueError):
    """A contract, key or signature that cannot be used; names what was got and wanted."""


def agreement_bytes(contract_version: ContractVersion) -> bytes:
    """RFC 8785 bytes that name contract, plan, prices, system and traffic by digest."""
    return canonical.dumps(
        {
            "schema": SCHEMA,
            "organisation": contract_version.organisation.slug,
            "contract_id": contract_version.contract_id,
            "version": contract_version.version,
            "contract_sha256": contract_version.contract_sha256,
            "plan_sha256": contract_version.plan_sha256,
            "price_book_sha256": contract_version.price_book.sha256,
            "system_fingerprint": contract_version.system.fingerprint,
            "model_sha256": contract_version.mix.model.sha256,
            "samples_sha256": contract_version.mix.samples_sha256,
            "held_out_sha256": contract_version.mix.held_out_sha256,
        }
    )


def signed_bytes(contract_version: ContractVersion) -> bytes:
    """What a party's Ed25519 key signs: DSSE's encoding of type and agreement."""
    return pae(PAYLOAD_TYPE, agreement_bytes(contract_version))


def load_public_key(pem: str) -> Ed25519PublicKey:
    """Read an Ed25519 public key in PEM; AgreementError for anything else."""
    try:
        key = load_pem_public_key(pem.encode("ascii"))
    except (ValueError, UnicodeEncodeError) as error:
        raise AgreementError(
            "public key: got text that is no PEM public key; wanted an Ed25519 key"
            " ('openssl pkey -pubout' prints one)"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise AgreementError(f"public key: got {type(key).__name__}; wanted Ed25519")
    return key


def key_id_of(pem: str) -> str:
    """SHA-256 of the key's SubjectPublicKeyInfo in DER, as hex."""
    spki = load_public_key(pem).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def check_signature(pem: str, signature_b64: str, message: bytes) -> None:
    """Return when the signature holds; AgreementError when it does not."""
    try:
        signature = base64.b64decode(signature_b64, validate=True)
        load_public_key(pem).verify(signature, message)
    except (binascii.Error, ValueError) as error:
        if isinstance(error, AgreementError):
            raise
        raise AgreementError("signature: got text that is not base64") from error
    except InvalidSignature as error:
        raise AgreementError(
            f"signature: does not hold over the {len(message)} bytes of this contract version;"
            " sign exactly the bytes that the portal offers for download"
        ) from error
