"""FOCUS rows as parquet, with exact decimals.

In: issued documents; or the bytes of such a file.
Out: parquet bytes of the same rows as the FOCUS 1.4 CSV, and a manifest; or header and rows as
text, for the checks that the CSV goes through.
Never here: a floating-point column; a number rounded to fit one.

Money has four decimal places, the most an ISO 4217 currency has. Quantities have 18 in 38
digits, or 40 in 76 where one of them needs more: a value is never rounded to fit.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
from pyarrow import parquet as pq

from metering.decimals import parse_decimal, to_text
from metering.export.focus import focus_rows
from metering.export.focus_columns import DECIMAL_KEYS, FOCUS, INSTANT_KEYS, MONEY_KEYS
from metering.export.manifest import Manifest, manifest_of
from metering.fields import instant_text, parse_instant
from metering.ledger import Invoice
from metering.refusal import Refusal

__all__ = ["focus_parquet", "read_parquet"]

VERSION = "1.4"
MAX_ROWS = 10_000_000
MONEY = pa.decimal128(38, 4)
QUANTITY, LONG_QUANTITY = pa.decimal128(38, 18), pa.decimal256(76, 40)


def focus_parquet(documents: Sequence[Invoice]) -> tuple[bytes, Manifest]:
    """Parquet bytes of all documents, in the order given, and their manifest."""
    rows = [row for document in documents for row in focus_rows(document)]
    columns = FOCUS[VERSION].columns
    arrays = [_column(key, [row.get(key, "") for row in rows]) for key in columns.values()]
    table = pa.table(arrays, names=list(columns))
    table = table.replace_schema_metadata({"focus_version": VERSION})
    target = io.BytesIO()
    pq.write_table(table, target)
    data = target.getvalue()
    return data, manifest_of("parquet", data, len(rows), documents)


def read_parquet(data: bytes) -> tuple[list[str], list[dict[str, str]]]:
    """Header and rows as text; an empty cell is null. Refuses what is not parquet, or too long."""
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        count = file.metadata.num_rows
        table = file.read() if count <= MAX_ROWS else None
        cells = [] if table is None else table.to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        # Names that are no UTF-8 and times that no calendar has come as these.
        raise Refusal("file", "bytes that are not parquet", "parquet", str(error)) from error
    if table is None:
        raise Refusal("file", f"{count} rows", f"at most {MAX_ROWS}")
    floats = [field.name for field in table.schema if pa.types.is_floating(field.type)]
    if floats:
        raise Refusal("column", ", ".join(floats), "exact decimals", "a float has lost the amount")
    rows = [{name: _text(value) for name, value in row.items()} for row in cells]
    return list(table.column_names), rows


def _column(key: str, cells: list[str]) -> pa.Array:
    if key in INSTANT_KEYS:
        return pa.array([parse_instant(cell, key) for cell in cells], pa.timestamp("us", "UTC"))
    if key not in (*MONEY_KEYS, *DECIMAL_KEYS):
        return pa.array([cell or None for cell in cells], pa.string())
    values = [parse_decimal(cell, key) if cell else None for cell in cells]
    if key in MONEY_KEYS:
        return pa.array(values, MONEY)
    long = any(_needs_more(value) for value in values if value is not None)
    return pa.array(values, LONG_QUANTITY if long else QUANTITY)


def _needs_more(value: Decimal) -> bool:
    exponent = value.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < -18 or value.adjusted() >= 20


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return to_text(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return instant_text(value.astimezone(UTC))
    return str(value)
