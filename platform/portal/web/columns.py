"""Columns and the base of every table: one look for states, instants, digests and numbers.

In: rows a selector returned. Out: a django-tables2 table, and the raw values of the same rows for
CSV. A page rounds for reading; its CSV never does.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import django_tables2 as tables
from django_tables2.utils import Accessor

from portal.web import formats
from portal.web.templatetags.portal_tags import digest, instant, mark

NUMERIC = {"th": {"class": "num"}, "td": {"class": "num"}}


class Column(tables.Column):  # type: ignore[misc]  # no types are published
    """The one step from the untyped library; every column below derives from here."""


class MarkColumn(Column):
    """A state as a sign with words."""

    def render(self, value: Any) -> str:
        return mark(value)


class InstantColumn(Column):
    """An instant in UTC."""

    def render(self, value: Any) -> str:
        return instant(value)


class DigestColumn(Column):
    """A shortened digest; the full one is in its title and in the CSV."""

    def render(self, value: Any) -> str:
        return digest(str(value))


class NumberColumn(Column):
    """A right-aligned number with `digits` significant digits."""

    def __init__(self, *args: Any, digits: int = 4, **kwargs: Any) -> None:
        super().__init__(*args, attrs=NUMERIC, **kwargs)
        self.digits = digits

    def render(self, value: Any) -> str:
        return formats.number(value, self.digits)


class PercentColumn(Column):
    """A change, as a signed per cent figure."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, attrs=NUMERIC, **kwargs)

    def render(self, value: Any) -> str:
        return formats.signed_percent(value)


class MoneyColumn(Column):
    """An amount with the currency of its row; every stored digit."""

    def __init__(self, *args: Any, places: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, attrs=NUMERIC, **kwargs)
        self.places = places

    def render(self, value: Any, record: Any) -> str:
        if self.places is None:
            return formats.money(value, record.currency)
        return f"{formats.fixed(value, self.places)} {record.currency}"


class ListTable(tables.Table):  # type: ignore[misc]  # no types are published
    """The base of every list: a caption, and the columns of its CSV as (header, accessor)."""

    caption: ClassVar[str] = ""
    csv_columns: ClassVar[tuple[tuple[str, str], ...]] = ()

    class Meta:
        orderable = True
        default = "—"

    @classmethod
    def csv_rows(cls, rows: Any) -> Iterator[list[Any]]:
        """Raw values in `csv_columns` order: ISO instants, unrounded numbers, full digests."""
        accessors = [Accessor(path) for _, path in cls.csv_columns]
        for row in rows:
            values = [accessor.resolve(row, quiet=True) for accessor in accessors]
            yield [value.isoformat() if hasattr(value, "isoformat") else value for value in values]
