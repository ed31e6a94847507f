"""A program and a schema fit together, or the program says what to run."""

import shutil
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from tests.postgres.databases import beside, numbers, run_sql

from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.schema import Fit, least_known, migrations, standing_of, upgrade
from batonpass.runtime.ports import StoreUnavailable

MIGRATION = '''
"""A migration for a test."""
revision = {revision!r}
down_revision = {down!r}

def upgrade():
    pass
'''


def with_more(folder: Path, *names: str) -> Path:
    """Return the migrations with others at their end; a name is `9001_expand` or `9001_contract`."""
    shutil.copytree(migrations(), folder)
    for name in names:
        (head,) = ScriptDirectory(str(folder)).get_heads()
        revision = name.partition("_")[0]
        (folder / "versions" / f"{name}_test.py").write_text(MIGRATION.format(revision=revision, down=head))
    return folder


async def test_a_database_that_cannot_keep_every_text_is_refused_by_its_encoding(server: EmbeddedPostgres) -> None:
    for encoding in ("LATIN1", "SQL_ASCII"):
        name = f"test{next(numbers)}"
        await run_sql(server.url, f"create database {name} encoding {encoding} locale 'C' template template0")
        if encoding == "LATIN1":
            with pytest.raises(ValueError, match="encoded in LATIN1"):
                await standing_of(beside(server.url, name))
        else:
            assert (await standing_of(beside(server.url, name))).fit is Fit.EMPTY
        await run_sql(server.url, f"drop database {name} with (force)")


async def test_a_database_of_another_program_is_told_from_that_of_a_later_version(bare_url: str) -> None:
    made = "create table alembic_version (version_num varchar(32) not null)"
    await run_sql(bare_url, made, "insert into alembic_version values ('1a2b3c4d5e6f')")
    with pytest.raises(ValueError, match="another program, whose revision 1a2b3c4d5e6f"):
        await standing_of(bare_url)


async def test_an_empty_database_is_told_from_one_that_is_behind(bare_url: str, tmp_path: Path) -> None:
    found = await standing_of(bare_url)
    assert (found.fit, found.present, found.is_fit) == (Fit.EMPTY, None, False)
    assert "batonpass db upgrade" in found.sentence()
    await upgrade(bare_url)
    found = await standing_of(bare_url)
    assert (found.fit, found.present == found.wanted, found.is_fit) == (Fit.CURRENT, True, True)
    later = with_more(tmp_path / "later", "9001_expand")
    found = await standing_of(bare_url, folder=later)
    assert (found.fit, found.wanted, found.is_fit) == (Fit.TOO_OLD, "9001", False)
    assert "batonpass db upgrade" in found.sentence()


async def test_additions_of_a_later_version_do_not_matter(bare_url: str, tmp_path: Path) -> None:
    """It is the way back to the version before."""
    await upgrade(bare_url, folder=with_more(tmp_path / "later", "9001_expand", "9002_expand"))
    found = await standing_of(bare_url)
    assert (found.fit, found.present, found.is_fit) == (Fit.NEWER, "9002", True)


async def test_a_version_that_misses_something_is_refused(bare_url: str, tmp_path: Path) -> None:
    names = ("9001_expand", "9002_contract", "9003_expand")
    await upgrade(bare_url, folder=with_more(tmp_path / "later", *names))
    found = await standing_of(bare_url)
    assert (found.fit, found.is_fit) == (Fit.TOO_NEW, False)
    assert "later" in found.sentence()
    between = with_more(tmp_path / "between", *names[:2])
    assert (await standing_of(bare_url, folder=between)).fit is Fit.NEWER


def test_what_must_be_known_is_the_last_removal(tmp_path: Path) -> None:
    """Without any removal it is the first migration of all."""
    assert least_known(ScriptDirectory(str(with_more(tmp_path / "a", "9001_expand")))) == "0001"
    folder = with_more(tmp_path / "b", "9001_contract", "9002_expand", "9003_contract", "9004_expand")
    assert least_known(ScriptDirectory(str(folder))) == "9003"


@pytest.mark.parametrize("url", ["mysql://somewhere/db", "nonsense"])
async def test_a_url_of_another_database_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected postgresql://"):
        await standing_of(url)


async def test_a_database_that_is_away_is_said_to_be(own_url: str) -> None:
    with pytest.raises(StoreUnavailable):
        await standing_of("postgresql://batonpass@127.0.0.1:1/postgres")
    await run_sql(own_url, "select 1")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await standing_of(beside(own_url, "not_there"))
