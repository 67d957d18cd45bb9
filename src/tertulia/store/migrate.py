"""Bring a database to the schema of this version, or refuse one that is ahead of it.

The steps run in one transaction of ours, under a lock: of several programs that start at once on a new database, one
makes the tables and the others find them.
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from tertulia.core.errors import StoreError
from tertulia.store.database import transaction
from tertulia.store.schema import VERSION_TABLE

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 0x7E27_011A
"""Any number will do, as long as all versions of Tertulia use the same."""


def upgrade(engine: Engine, *, where: str) -> None:
    """Run the steps that this database has not seen; without any, nothing is written."""
    script = ScriptDirectory(str(MIGRATIONS))
    with transaction(engine) as connection:
        found = revisions(connection)
    if found == set(script.get_heads()):
        return
    if found - {step.revision for step in script.walk_revisions()}:
        raise StoreError(
            f"{where} was made by a newer version of Tertulia (schema {', '.join(sorted(found))}).",
            hint="Update with: pip install --upgrade tertulia",
        )
    with transaction(engine, write=True) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        command.upgrade(config, "head")


def revisions(connection: Connection) -> set[str]:
    """The steps a database stands at: one, or none for a new one."""
    return set(MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_heads())
