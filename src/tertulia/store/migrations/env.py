"""Run by Alembic from `tertulia.store.database.migrate`, on that function's connection and in its transaction."""

from alembic import context

from tertulia.store.schema import VERSION_TABLE, metadata

if hasattr(context, "config"):  # absent when pytest imports every module to collect doctests
    context.configure(
        connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
    )
    context.run_migrations()
