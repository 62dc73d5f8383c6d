"""Alembic's entry point: `tenure.store.schema` hands over the connection and the schema's name.

Migrations name no schema: the search path of their transaction decides, so that any schema will do.
"""

from alembic import context
from sqlalchemy import Connection

from tenure.store.tables import metadata


def run(connection: Connection, schema: str) -> None:
    """Runs the migrations in the transaction that this connection is in; the caller commits."""
    connection.exec_driver_sql(f'SET LOCAL search_path TO "{schema}"')
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table="alembic_version",
        version_table_schema=schema,
        transactional_ddl=True,
    )
    context.run_migrations()


attributes = context.config.attributes
if "connection" in attributes:
    run(attributes["connection"], attributes["schema"])
