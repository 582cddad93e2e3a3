"""The database's own refusal to change what is issued, or to post in a period that is closed.

In: the models. Out: triggers, made anew after every migration (SQLite drops them when a table is
rebuilt). The models refuse too; the triggers also stop raw SQL, bulk updates and admin tools.
What they do not stop is the owner of the database file: the signed bundle and the log do that.
"""

from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections, models

from portal.records import Issued


@dataclass(frozen=True)
class Guard:
    """One table: which columns may never change, and from which state on (SQL over OLD)."""

    model: type[models.Model]
    changeable: frozenset[str] = frozenset()
    when: str = ""
    part: str = ""

    @property
    def prefix(self) -> str:
        """What the names of this guard's triggers begin with."""
        return f"{self.table}{'_' if self.part else ''}{self.part}_refuse"

    @property
    def table(self) -> str:
        """The table's name in the database."""
        return self.model._meta.db_table

    @property
    def columns(self) -> list[str]:
        """The columns an update may not name."""
        return [
            str(field.column)
            for field in self.model._meta.concrete_fields
            if field.name not in self.changeable
        ]


def guards() -> list[Guard]:
    """Every guarded table of the portal."""
    found = [
        Guard(model, model.changeable)
        for model in apps.get_models()
        if issubclass(model, Issued) and not model._meta.abstract
    ]
    named: list[tuple[str, str, str]] = [
        ("events", "Event", ""),
        ("billing", "UsageEvent", ""),
        ("billing", "ParkedUsage", ""),
        ("billing", "BillingPeriod", ""),
        ("contracts", "ContractVersion", "OLD.status = 'signed'"),
        ("runs", "Measurement", "OLD.state IN ('approved', 'rejected')"),
        ("audits", "Review", "OLD.state <> 'open'"),
    ]
    found += [Guard(apps.get_model(app, name), when=when) for app, name, when in named]
    # Between measuring and signing is when a change would pay: figures are fixed before.
    found += [
        Guard(
            apps.get_model("runs", "Measurement"),
            frozenset({"state"}),
            "OLD.state <> 'draft'",
            "figures",
        ),
        Guard(
            apps.get_model("audits", "Review"),
            frozenset({"state", "envelope", "decided_by", "decided_at", "auditor_key", "reason"}),
            part="statement",
        ),
    ]
    return found


@dataclass(frozen=True)
class Books:
    """A table of what is posted: `period` is SQL for the period whose books a NEW row is in."""

    model: type[models.Model]
    period: str

    @property
    def table(self) -> str:
        """The table's name in the database."""
        return self.model._meta.db_table

    @property
    def name(self) -> str:
        """The trigger's name."""
        return f"{self.table}_refuse_closed"


def books() -> list[Books]:
    """Tables that take no new row in the books of a closed period."""
    return [
        Books(apps.get_model("billing", "Invoice"), "COALESCE(NEW.posted_in_id, NEW.period_id)"),
        Books(
            apps.get_model("billing", "JournalEntry"),
            "COALESCE(NEW.posted_in_id, (SELECT COALESCE(d.posted_in_id, d.period_id)"
            " FROM billing_invoice d WHERE d.id = NEW.invoice_id))",
        ),
    ]


def install(using: str = DEFAULT_DB_ALIAS) -> None:
    """Create all triggers; older ones of the same name are replaced."""
    remove(using)
    connection = connections[using]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "CREATE OR REPLACE FUNCTION ignition_refuse() RETURNS trigger AS $$ BEGIN"
                " RAISE EXCEPTION 'issued rows of % never change', TG_TABLE_NAME"
                " USING ERRCODE = 'integrity_constraint_violation'; END $$ LANGUAGE plpgsql"
            )
        for guard in guards():
            for statement in _statements(guard, connection.vendor):
                cursor.execute(statement)
        for table in books():
            for statement in _closed(table, connection.vendor):
                cursor.execute(statement)


def remove(using: str = DEFAULT_DB_ALIAS) -> None:
    """Drop all triggers (for rebuilding tables and for emptying a test database)."""
    connection = connections[using]
    existing = set(connection.introspection.table_names())
    named = [
        (f"{guard.prefix}_{act}", guard.table)
        for guard in guards()
        for act in ("update", "delete", "truncate")
    ]
    named += [(table.name, table.table) for table in books()]
    with connection.cursor() as cursor:
        for name, table in named:
            if table not in existing:
                continue
            place = f' ON "{table}"' if connection.vendor == "postgresql" else ""
            cursor.execute(f'DROP TRIGGER IF EXISTS "{name}"{place}')


def _statements(guard: Guard, vendor: str) -> list[str]:
    table = guard.table
    columns = ", ".join(f'"{column}"' for column in guard.columns)
    if vendor == "postgresql":
        when = f"WHEN ({guard.when}) " if guard.when else ""
        row = f"FOR EACH ROW {when}EXECUTE FUNCTION ignition_refuse()"
        return [
            f'CREATE TRIGGER "{guard.prefix}_update" BEFORE UPDATE OF {columns} ON "{table}" {row}',
            f'CREATE TRIGGER "{guard.prefix}_delete" BEFORE DELETE ON "{table}" {row}',
            f'CREATE TRIGGER "{guard.prefix}_truncate" BEFORE TRUNCATE ON "{table}"'
            " FOR EACH STATEMENT EXECUTE FUNCTION ignition_refuse()",
        ]
    when = f"WHEN {guard.when} " if guard.when else ""
    body = f"BEGIN SELECT RAISE(ABORT, 'issued rows of {table} never change'); END"
    return [
        f'CREATE TRIGGER "{guard.prefix}_update" BEFORE UPDATE OF {columns} ON "{table}"'
        f" {when}{body}",
        f'CREATE TRIGGER "{guard.prefix}_delete" BEFORE DELETE ON "{table}" {when}{body}',
    ]


def _closed(table: Books, vendor: str) -> list[str]:
    """Refuse a row in the books of a closed period; closes and postings share a lock besides."""
    found = " ".join(("SELECT 1 FROM billing_periodclose c WHERE c.period_id =", table.period))
    words = "the period is closed: post in the next open one"
    if vendor == "postgresql":
        # A trigger's WHEN takes no subquery there.
        function = f"ignition_{table.name}"
        return [
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger AS $$ BEGIN"
            f" IF EXISTS ({found}) THEN RAISE EXCEPTION '{words}'"
            " USING ERRCODE = 'integrity_constraint_violation'; END IF;"
            " RETURN NEW; END $$ LANGUAGE plpgsql",
            f'CREATE TRIGGER "{table.name}" BEFORE INSERT ON "{table.table}"'
            f" FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]
    return [
        f'CREATE TRIGGER "{table.name}" BEFORE INSERT ON "{table.table}"'
        f" WHEN EXISTS ({found}) BEGIN SELECT RAISE(ABORT, '{words}'); END"
    ]


def install_after_migrate(sender: Any, using: str = DEFAULT_DB_ALIAS, **kwargs: Any) -> None:
    """Signal receiver: once the last app's tables are there, put the triggers on all of them."""
    existing = set(connections[using].introspection.table_names())
    if all(guard.table in existing for guard in guards()):
        install(using)
