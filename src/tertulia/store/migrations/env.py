"""Run by Alembic inside `tertulia.store.migrate`, on the connection and in the transaction that it is handed."""

from alembic import context

from tertulia.store.schema import VERSION_TABLE, metadata

if hasattr(context, "config"):  # not so when something else imports every module, as the collector of doctests does
    context.configure(
        connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
    )
    context.run_migrations()
