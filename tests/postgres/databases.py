"""The databases of a server, by SQL; for programs that run without pytest, too."""

from itertools import count

from sqlalchemy import make_url, text

from batonpass.postgres.connect import connect
from batonpass.postgres.tables import metadata

numbers = count(1)
EMPTY = [f"delete from {table.name}" for table in metadata.tables.values()]  # noqa: S608 - names of our own


def beside(url: str, database: str) -> str:
    """Return the URL of another database of the same server, without options, so that a test may add its own."""
    return make_url(url).set(database=database, query={}).render_as_string(hide_password=False)


async def run_sql(url: str, *statements: str) -> None:
    """Run statements, each in its own transaction."""
    engine = connect(url)
    async with engine.connect() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    await engine.dispose()
