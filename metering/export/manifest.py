"""What a reader checks an exported file against: rows, sums and SHA-256.

In: the bytes of a file, its row count and the sums of its amounts.
Out: a frozen record, written next to the file: every export has one.
Never here: a sum over two currencies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from metering.decimals import exact, parse_decimal, to_text
from metering.fields import Fields
from metering.ledger import Invoice

__all__ = ["Manifest", "manifest_of"]


@dataclass(frozen=True)
class Manifest:
    """`rows` as the format counts them (rows, bookings, lines).

    `sums` by currency and `invoices` by number are what the documents in the file ask for; in a
    journal, `sums` are its debits.
    """

    format: str
    rows: int
    sums: Mapping[str, Decimal]
    invoices: Mapping[str, Decimal]
    sha256: str

    def to_json(self) -> dict[str, object]:
        """JSON object."""
        return {
            "schema": "ignition.export-manifest.v1",
            "format": self.format,
            "rows": self.rows,
            "sums": {key: to_text(value) for key, value in self.sums.items()},
            "invoices": {key: to_text(value) for key, value in self.invoices.items()},
            "sha256": self.sha256,
        }

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """Inverse of `to_json`."""
        fields = Fields(value, "manifest")
        fields.text("schema", ["ignition.export-manifest.v1"])
        record = cls(
            format=fields.text("format"),
            rows=fields.integer("rows"),
            sums=_amounts(fields.any("sums"), "manifest.sums"),
            invoices=_amounts(fields.any("invoices"), "manifest.invoices"),
            sha256=fields.text("sha256"),
        )
        fields.finish()
        return record


def manifest_of(
    format_name: str,
    data: bytes,
    rows: int,
    documents: Sequence[Invoice],
    sums: Mapping[str, Decimal] | None = None,
) -> Manifest:
    """Manifest of `data` as it is written to disk; `sums` default to what the documents ask for."""
    if sums is None:
        asked: dict[str, Decimal] = {}
        with exact():
            for document in documents:
                before = asked.get(document.currency, Decimal(0))
                asked[document.currency] = before + document.payable
        sums = asked
    payable = {document.number: document.payable for document in documents}
    return Manifest(format_name, rows, sums, payable, hashlib.sha256(data).hexdigest())


def _amounts(value: object, where: str) -> dict[str, Decimal]:
    fields = Fields(value, where)
    names = list(value) if isinstance(value, Mapping) else []
    return {str(name): parse_decimal(fields.any(name), f"{where}.{name}") for name in names}
