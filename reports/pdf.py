"""The report as a PDF, before anyone has signed it.

In: `ReportFacts`. Out: bytes of an A4 PDF/A-3b with both signature fields reserved. The same
facts give the same bytes with the same renderer (`renderer()` names it): the document's date is
the facts' issue date, fonts are the ones inside the typst wheel, nothing is read from the
network or the system. Text reaches the template as JSON data and is never evaluated as markup.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import typst
from pyhanko.pdf_utils import generic
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign.fields import SigFieldSpec, append_signature_field

from reports.errors import ReportError
from reports.facts import ReportFacts
from reports.view import view

TEMPLATES = Path(__file__).resolve().parent.parent / "templates" / "reports"
PLATFORM_FIELD, AUDITOR_FIELD = "Platform", "Auditor"
# PDF points from the lower left corner of the last page; the template draws frames around them.
FIELD_BOXES = {PLATFORM_FIELD: (57, 60, 292, 120), AUDITOR_FIELD: (303, 60, 538, 120)}


def renderer() -> str:
    """Name of what makes the bytes: the typst version and the digest of the templates."""
    digest = hashlib.sha256()
    for name in ("report.typ", "stamp.typ"):
        digest.update((TEMPLATES / name).read_bytes())
    return f"typst {version('typst')}, template {digest.hexdigest()[:16]}"


def render(facts: ReportFacts) -> bytes:
    """The unsigned report with the two signature fields. Raises ReportError if Typst refuses."""
    issued = datetime.fromisoformat(facts.document.issued_at)
    plain = compile_template("report.typ", view(facts), issued)
    return _reserve_fields(plain)


def compile_template(name: str, data: dict[str, Any], date: datetime) -> bytes:
    """Compile one of the room's templates to PDF/A-3b with `data` as its only input."""
    text = json.dumps(data, ensure_ascii=False, sort_keys=True)
    stated = {"data": text, "year": str(date.year), "month": str(date.month), "day": str(date.day)}
    try:
        return typst.compile(
            TEMPLATES / name,
            None,
            root=TEMPLATES,
            format="pdf",
            ignore_system_fonts=True,
            sys_inputs=stated,
            pdf_standards="a-3b",
            timestamp=date,
        )
    except typst.TypstError as error:
        raise ReportError(f"the report's template {name} does not compile: {error}") from error


class _FieldWriter(IncrementalPdfFileWriter):
    """Writes one more revision and leaves the document's dates as Typst set them from the facts."""

    def _update_meta(self) -> None:
        """pyHanko would put the present time here; the same facts must give the same bytes."""


def _reserve_fields(plain: bytes) -> bytes:
    """Append the two empty signature fields in one revision, with a file id that is repeatable."""
    # pyHanko is only partly typed.
    writer: Any = _FieldWriter(BytesIO(plain))
    identity = hashlib.sha256(b"ignition-report-fields" + plain).digest()[:16]
    # pyHanko draws a random second half of the file id; ours follows from the content.
    writer._document_id[1] = generic.ByteStringObject(identity)
    last_page = int(writer.prev.root["/Pages"]["/Count"]) - 1
    for name, box in FIELD_BOXES.items():
        append_signature_field(writer, SigFieldSpec(name, on_page=last_page, box=box))
    target = BytesIO()
    writer.write(target)
    return target.getvalue()
