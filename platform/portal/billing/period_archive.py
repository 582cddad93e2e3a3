"""All exports of a period as one archive, with a manifest of every file in it.

In: a period's documents and the person who takes them. Out: zip bytes; the same bytes for the same
books. Each stored file is checked against its digest and its download is logged, as that of a
single one is.
"""

import io
import json
import zipfile
from collections.abc import Sequence

from metering.fields import instant_text
from metering.ledger import Totals
from portal.accounts.models import Membership
from portal.billing import reconciliation as books
from portal.billing.models import BillingPeriod, Invoice, PeriodClose
from portal.documents.services import file_download
from reports.canonical import canonical_json

ARCHIVE_SCHEMA = "ignition.period-exports.v1"


def period_archive(
    *, actor: Membership, period: BillingPeriod, documents: Sequence[Invoice]
) -> bytes:
    """Zip of the books as three CSV files, every written export by document, and manifest.json.

    WorkspaceError when a stored file is not what was recorded: nothing is handed out then.
    """
    files: dict[str, bytes] = {}
    listed: list[dict[str, object]] = []

    def add(name: str, data: bytes, kind: str, found: Totals) -> None:
        files[name] = data
        listed.append({"name": name, "format": kind, **found.to_json()})

    for kind, (text, totals) in books.files_of(period, documents).items():
        add(f"{kind}.csv", text.encode(), kind, totals)
    for check in books.export_checks(documents):
        export, made = check.export, check.manifest
        path = file_download(actor=actor, stored_file=export.stored_file)
        name = f"{export.invoice.number}/{export.stored_file.name}"
        found = Totals(made.rows, dict(made.sums), export.stored_file.sha256)
        add(name, path.read_bytes(), export.file_format, found)
    close = PeriodClose.objects.filter(period=period).first()
    if close is not None:
        files["close.json"] = canonical_json(close.document)
    manifest = {
        "schema": ARCHIVE_SCHEMA,
        "contract_id": period.contract_id,
        "period": period.label,
        "zone": period.zone,
        "start": instant_text(period.starts_at),
        "end": instant_text(period.ends_at),
        "close_sha256": close.sha256 if close else None,
        "files": listed,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2, sort_keys=True).encode() + b"\n"
    out = io.BytesIO()
    end = period.ends_at
    moment = (end.year, end.month, end.day, end.hour, end.minute, end.second)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, moment), files[name], zipfile.ZIP_DEFLATED)
    return out.getvalue()
