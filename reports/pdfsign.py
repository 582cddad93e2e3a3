"""Signatures on the report PDF: the platform certifies, the auditor countersigns, anyone checks.

In: PDF bytes, one side's keys, trust roots. Out: PDF bytes with one more revision, or an error
that says what does not hold. PAdES B-B on P-256; the certification allows filling the reserved
auditor field and nothing else. A PDF cannot show that a signature was cut off its end: its
digest in the signed list does that. No time stamp is taken; the time is self-asserted.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from asn1crypto import keys as asn1_keys
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import serialization as ser
from pyhanko.pdf_utils.content import ImportedPdfPage
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.layout import AxisAlignment, Margins, SimpleBoxLayoutRule
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign import signers
from pyhanko.sign.diff_analysis import ModificationLevel
from pyhanko.sign.fields import MDPPerm, SigSeedSubFilter
from pyhanko.sign.general import SigningError
from pyhanko.sign.validation import validate_pdf_signature
from pyhanko.sign.validation.errors import SignatureValidationError
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko.stamp import StaticStampStyle
from pyhanko_certvalidator import ValidationContext
from pyhanko_certvalidator.errors import ValidationError
from pyhanko_certvalidator.registry import SimpleCertificateStore

from reports.errors import ReportError
from reports.keys import KeySet, key_id
from reports.pdf import AUDITOR_FIELD, PLATFORM_FIELD, compile_template

# pyHanko logs each refused signature with a stack trace; the refusal itself is our answer.
logging.getLogger("pyhanko").setLevel(logging.CRITICAL)
logging.getLogger("pyhanko_certvalidator").setLevel(logging.CRITICAL)

# pyHanko is only partly typed.
_imported_page: Any = ImportedPdfPage
_certificate_store: Any = SimpleCertificateStore

_FIELD_OF = {"platform": PLATFORM_FIELD, "auditor": AUDITOR_FIELD}


@dataclass(frozen=True)
class PdfSignature:
    """One signature as found: field, signer's name, self-asserted UTC time, certificate digest."""

    field: str
    signer: str
    signed_at: str
    certificate_sha256: str


def certify(pdf: bytes, keys: KeySet) -> bytes:
    """Sign the reserved platform field as certification; only form filling stays allowed."""
    if keys.role != "platform":
        raise ReportError(f"the {keys.role} may not certify a report; the platform does")
    return _sign(pdf, keys, certification=True)


def countersign(pdf: bytes, keys: KeySet) -> bytes:
    """Sign the reserved auditor field of a certified report."""
    if keys.role != "auditor":
        raise ReportError(f"the {keys.role} may not countersign a report; the auditor does")
    return _sign(pdf, keys, certification=False)


def check(
    pdf: bytes,
    roots: Mapping[str, x509.Certificate],
    roles: tuple[str, ...] = ("platform", "auditor"),
) -> tuple[PdfSignature, ...]:
    """Both signatures, if everything about them holds; `roots` maps a role to its own root.

    Holds means: exactly the fields of `roles` are signed, in that order; each signature is intact,
    in SHA-256, and chains to the root of its own role; the first certifies with form filling
    only; later changes are no more than that; the last covers the whole file. Certificates are
    judged at the self-asserted signing time. Raises ReportError naming what does not hold.
    """
    try:
        reader: Any = PdfFileReader(BytesIO(pdf))
        found = list(reader.embedded_regular_signatures)
        names = [item.field_name for item in found]
        wanted = [_FIELD_OF[role] for role in roles]
        if names != wanted or len(reader.embedded_signatures) != len(wanted):
            raise ReportError(
                f"signed fields are {', '.join(names) or 'none'}; wanted {', '.join(wanted)}"
            )
        return tuple(
            _check_one(item, role, roots[role], last=role == roles[-1])
            for item, role in zip(found, roles, strict=True)
        )
    except (PdfError, SignatureValidationError, ValidationError) as error:
        raise ReportError(f"PDF signatures cannot be read: {error}") from error


def _check_one(item: Any, role: str, root: x509.Certificate, *, last: bool) -> PdfSignature:
    signed_at = item.self_reported_timestamp
    if signed_at is None:
        raise ReportError(f"the {role}'s PDF signature states no time")
    context = ValidationContext(
        trust_roots=[_asn1(root)], allow_fetching=False, moment=signed_at.astimezone(UTC)
    )
    status = validate_pdf_signature(item, signer_validation_context=context)
    field = item.field_name
    if not status.intact:
        raise ReportError(f"field {field}: the signed bytes were changed")
    if not status.valid:
        raise ReportError(f"field {field}: the signature is wrong")
    if not status.trusted:
        raise ReportError(f"field {field}: the certificate does not lead to the {role}'s root")
    if status.md_algorithm != "sha256":
        raise ReportError(f"field {field}: digest is {status.md_algorithm}, wanted sha256")
    level, covers = status.modification_level, status.coverage
    wanted_level = ModificationLevel.NONE if last else ModificationLevel.FORM_FILLING
    wanted_cover = (
        SignatureCoverageLevel.ENTIRE_FILE if last else SignatureCoverageLevel.ENTIRE_REVISION
    )
    if level is None or level > wanted_level or covers < wanted_cover or not status.bottom_line:
        raise ReportError(
            f"field {field}: the document was changed after signing ({status.summary()})"
        )
    if role == "platform" and item.docmdp_level != MDPPerm.FILL_FORMS:
        raise ReportError(f"field {field}: is no certification that allows form filling only")
    certificate = item.signer_cert
    return PdfSignature(
        field=field,
        signer=str(certificate.subject.native.get("common_name", "")),
        signed_at=signed_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        certificate_sha256=certificate.sha256.hex(),
    )


def _sign(pdf: bytes, keys: KeySet, *, certification: bool) -> bytes:
    purpose = "certified" if certification else "audited and countersigned"
    field = _FIELD_OF[keys.role]
    options: dict[str, Any] = {
        "field_name": field,
        "md_algorithm": "sha256",
        "reason": f"Report {purpose} by the {keys.role}",
        "subfilter": SigSeedSubFilter.PADES,
    }
    if certification:
        options |= {"certify": True, "docmdp_permissions": MDPPerm.FILL_FORMS}
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "stamp.pdf"
        # The clock that pyHanko reads too: the mark shows the time the signature states.
        mark.write_bytes(_mark(keys, purpose, datetime.now(UTC)))
        style = StaticStampStyle(
            background=_imported_page(str(mark)),
            background_layout=SimpleBoxLayoutRule(
                x_align=AxisAlignment.ALIGN_MIN,
                y_align=AxisAlignment.ALIGN_MID,
                margins=Margins(),
            ),
            border_width=0,
        )
        signer = signers.PdfSigner(
            signers.PdfSignatureMetadata(**options), signer=_signer(keys), stamp_style=style
        )
        target = BytesIO()
        try:
            writer: Any = IncrementalPdfFileWriter(BytesIO(pdf))
            signer.sign_pdf(writer, existing_fields_only=True, output=target)
        except (SigningError, PdfError) as error:
            raise ReportError(
                f"field {field} of the report cannot be signed: {error}. "
                "Wanted a report with both fields reserved and this one still empty."
            ) from error
    return target.getvalue()


def _mark(keys: KeySet, purpose: str, now: datetime) -> bytes:
    """The visible mark, drawn with the template's own fonts so that the file stays PDF/A."""
    name = keys.document_certificate.subject.rfc4514_string({})
    for attribute in keys.document_certificate.subject:
        if attribute.rfc4514_attribute_name == "O":
            name = str(attribute.value)
    return compile_template(
        "stamp.typ",
        {
            "signer": name,
            "purpose": purpose,
            "time": now.strftime("%Y-%m-%d %H:%M UTC"),
            "key": f"key {key_id(keys.document.public_key())[:40]}",
        },
        now.replace(microsecond=0),
    )


def _signer(keys: KeySet) -> signers.SimpleSigner:
    private = keys.document.private_bytes(
        ser.Encoding.DER, ser.PrivateFormat.PKCS8, ser.NoEncryption()
    )
    chain = _certificate_store()
    chain.register_multiple([_asn1(keys.root_certificate)])
    return signers.SimpleSigner(
        signing_cert=_asn1(keys.document_certificate),
        signing_key=asn1_keys.PrivateKeyInfo.load(private),
        cert_registry=chain,
    )


def _asn1(certificate: x509.Certificate) -> Any:
    return asn1_x509.Certificate.load(certificate.public_bytes(ser.Encoding.DER))
