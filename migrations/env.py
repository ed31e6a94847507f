"""Runs the migrations on the connection that it is given, one upgrade at a time, under timeouts."""

# ruff: noqa: INP001 - found by path, not imported as a package

from alembic import context
from sqlalchemy import text

from batonpass.advisory_locks import MIGRATION_LOCK
from batonpass.postgres.schema import least_known
from batonpass.postgres.tables import metadata

given = context.config.attributes
if "connection" not in given:
    message = "run `batonpass db upgrade`, which knows the database and the timeouts"
    raise RuntimeError(message)

connection = given["connection"]
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    # They end with the transaction, so a pooler's connection does not carry them on to somebody else.
    for setting in ("lock_timeout", "statement_timeout"):
        connection.execute(
            text("select set_config(:setting, :milliseconds, true)"),
            {"setting": setting, "milliseconds": str(given[f"{setting}_ms"])},
        )
    # Before the present version is read: an upgrade that waited here finds what the other one has done.
    connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": MIGRATION_LOCK})
    context.run_migrations()
    # What a program must know to work on this schema; it decides whether one before this may go on (`standing`).
    connection.execute(text(f"comment on table alembic_version is '{least_known(context.script)}'"))
