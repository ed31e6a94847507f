"""The migrations make what the code expects, one upgrade at a time, and give up rather than stand in the way."""

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from batonpass.postgres import schema
from batonpass.postgres.connect import connect, sqlstate
from batonpass.postgres.schema import SchemaBusy, migrations, upgrade
from batonpass.postgres.tables import metadata
from batonpass.runtime.ports import StoreUnavailable

# Alembic compares tables, columns, types, indexes and foreign keys; this shows all else too, as Postgres has it.
CATALOG = """
    select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text,
           coalesce(pg_get_expr(d.adbin, d.adrelid), ''), coalesce(col_description(c.oid, a.attnum), ''),
           a.attcollation::regcollation::text
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
     where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'alembic_version'
       and not c.relispartition
     union all
    select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(k.oid), '', '', '', ''
      from pg_constraint k join pg_class c on c.oid = conrelid
     where connamespace = 'public'::regnamespace and conrelid <> 'alembic_version'::regclass and not c.relispartition
     union all
    select 'index', tablename, indexname, indexdef, '', '', '', ''
      from pg_indexes join pg_class c on c.relname = tablename and c.relnamespace = 'public'::regnamespace
     where schemaname = 'public' and tablename <> 'alembic_version' and not c.relispartition
     union all
    select 'view', viewname, definition, '', '', '', '', '' from pg_views where schemaname = 'public'
     union all
    select 'options', relname, relkind::text, coalesce(reloptions::text, ''), '', '', '', ''
      from pg_class where relnamespace = 'public'::regnamespace and relname not like 'alembic_version%'
       and not relispartition
     union all
    select 'partitioned', partrelid::regclass::text, pg_get_partkeydef(partrelid), '', '', '', '', ''
      from pg_partitioned_table
     order by 1, 2, 3, 4
"""
LATE = '''
"""A migration for a test."""
from alembic import op
revision = "9999"
down_revision = {down!r}

def upgrade():
    op.execute("create table late (n int)")
    op.execute({statement!r})
'''


async def catalog(url: str) -> list[tuple[str, ...]]:
    """Return all that Postgres knows of the tables of a database."""
    engine = connect(url)
    async with engine.connect() as connection:
        rows = (await connection.execute(text(CATALOG))).all()
    await engine.dispose()
    return [tuple(row) for row in rows]


async def tables(url: str) -> set[str]:
    """Return the names of the tables of a database."""
    engine = connect(url)
    async with engine.connect() as connection:
        names = await connection.execute(
            text(
                "select relname from pg_class where relkind in ('r', 'p') and not relispartition and relnamespace = 'public'::regnamespace"
            )
        )
        found = set(names.scalars())
    await engine.dispose()
    return found


def with_one_more(folder: Path, statement: str) -> Path:
    """Return the migrations with one more at their end, which makes a table and runs a statement."""
    shutil.copytree(migrations(), folder, dirs_exist_ok=True)
    (head,) = ScriptDirectory(str(folder)).get_heads()
    (folder / "versions" / "9999_expand_late.py").write_text(LATE.format(down=head, statement=statement))
    return folder


async def test_models_and_migrations_are_equal(own_url: str) -> None:
    def compare(connection: Connection) -> object:
        parts = set(connection.execute(text("select relname from pg_class where relispartition")).scalars())
        assert parts
        options = {
            "compare_type": True,
            "compare_server_default": True,
            "include_name": lambda name, kind, _: kind != "table" or name not in parts,
        }
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    engine = connect(own_url)
    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []
        await connection.execute(text("alter table record_log add column extra int"))
        assert await connection.run_sync(compare) != []
    await engine.dispose()


async def test_the_catalog_is_the_same_either_way(bare_url: str, migrated: str) -> None:
    engine = connect(bare_url)
    async with engine.connect() as connection:
        await connection.run_sync(metadata.create_all)
        # The query names the table, which only migrations make.
        await connection.execute(text("create table alembic_version (version_num text)"))
    await engine.dispose()
    made = await catalog(bare_url)
    assert {row[1] for row in made if row[0] == "column"} == set(metadata.tables)
    assert ("options", "group_heads", "r", "{fillfactor=50}", "", "", "", "") in made
    assert await catalog(migrated) == made


async def test_an_upgrade_of_what_is_up_to_date_changes_nothing(own_url: str) -> None:
    before = await catalog(own_url)
    await upgrade(own_url)
    assert await catalog(own_url) == before


async def test_upgrades_at_once_wait_for_one_another(bare_url: str) -> None:
    first = connect(bare_url)
    async with first.execution_options(isolation_level="READ COMMITTED").begin() as connection:
        await connection.run_sync(schema._upgrade, schema._config(migrations(), 1_000, 1_000))
        second = asyncio.create_task(upgrade(bare_url))
        await asyncio.sleep(0.3)
        assert not second.done()
    await second
    await first.dispose()
    assert await tables(bare_url) == {"alembic_version", *metadata.tables}


async def test_an_upgrade_gives_up_when_it_gets_no_lock(
    own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no other statement queues up behind it for long."""
    monkeypatch.setattr(schema, "PAUSE_S", 0.05)
    folder = with_one_more(tmp_path, "alter table record_log add column late int")
    user = connect(own_url)
    async with user.execution_options(isolation_level="READ COMMITTED").begin() as connection:
        await connection.execute(text("select * from record_log"))
        with pytest.raises(SchemaBusy, match="2 attempts"):
            await upgrade(own_url, lock_timeout_ms=100, attempts=2, folder=folder)
    await user.dispose()
    assert "late" not in await tables(own_url)
    await upgrade(own_url, lock_timeout_ms=100, attempts=1, folder=folder)
    assert "late" in await tables(own_url)


async def test_an_upgrade_tries_again_for_a_lock(own_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PAUSE_S", 0.3)
    folder = with_one_more(tmp_path, "alter table record_log add column late int")
    user = connect(own_url)
    async with user.execution_options(isolation_level="READ COMMITTED").begin() as connection:
        await connection.execute(text("select * from record_log"))
        upgrading = asyncio.create_task(upgrade(own_url, lock_timeout_ms=50, attempts=20, folder=folder))
        await asyncio.sleep(0.5)
        assert not upgrading.done()
    await upgrading
    await user.dispose()
    assert "late" in await tables(own_url)


async def test_a_migration_that_takes_too_long_is_given_up(own_url: str, tmp_path: Path) -> None:
    folder = with_one_more(tmp_path, "select pg_sleep(30)")
    with pytest.raises(StoreUnavailable) as caught:
        await upgrade(own_url, statement_timeout_ms=200, folder=folder)
    assert sqlstate(caught.value.__cause__ or caught.value) == "57014"
    assert "late" not in await tables(own_url)


async def test_an_upgrade_during_which_the_server_goes_away_changes_nothing_and_says_why(
    own_url: str, tmp_path: Path
) -> None:
    folder = with_one_more(tmp_path, "select pg_sleep(30)")
    upgrading = asyncio.create_task(upgrade(own_url, folder=folder))
    other = connect(own_url)
    ended = 0
    while not ended:
        async with other.connect() as connection:
            found = await connection.execute(
                text(
                    "select pg_terminate_backend(pid) from pg_stat_activity"
                    " where query like '%pg_sleep(30)%' and pid <> pg_backend_pid()"
                )
            )
            ended = len(found.all())
    await other.dispose()
    with pytest.raises(StoreUnavailable, match=r"terminating connection|connection was closed"):
        await upgrading
    assert "late" not in await tables(own_url)
    with pytest.raises(StoreUnavailable, match=r"Connect call failed|refused"):
        await upgrade(re.sub(r":\d+/", ":9/", own_url), folder=folder)


def test_every_migration_says_which_half_it_is() -> None:
    """Expand or contract, behind its number."""
    scripts = list(ScriptDirectory(str(migrations())).walk_revisions())[::-1]
    assert [script.revision for script in scripts] == [f"{number:04}" for number in range(1, len(scripts) + 1)]
    for script in scripts:
        assert Path(script.path).name.startswith((f"{script.revision}_expand_", f"{script.revision}_contract_"))
