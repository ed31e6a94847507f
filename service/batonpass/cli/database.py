"""What `up`, `serve`, `db` and `days` do with a database before anything else uses it."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sqlalchemy.exc import DBAPIError

from batonpass.cli.exits import Exit, Failure, failing_as
from batonpass.database_url import DatabaseUrl
from batonpass.postgres.connect import Remedy, remedy_of
from batonpass.postgres.schema import Fit, SchemaBusy, Standing, standing_of, upgrade
from batonpass.runtime.ports import StoreUnavailable
from batonpass.terminal import say_on_stderr

T = TypeVar("T")

AGAIN_S: Final = 1.0
"""How soon a start asks again for a database that is away."""


@contextmanager
def failing_on_database(url: str) -> Iterator[None]:
    """Turn errors of a database into a failure that names the database, without its secrets.

    Raises:
        Failure: when the database cannot be reached, is busy for too long, or refuses.
    """
    try:
        yield
    except StoreUnavailable as error:
        read, remedy = DatabaseUrl.read(url), remedy_of(error.__cause__ or error)
        said = read.hide(error.detail)
        if remedy is Remedy.AGAIN:
            raise Failure(Exit.REFUSED, f"the database {read.shown} refused: {said}.") from None
        raise Failure(
            Exit.UNREACHABLE,
            f"the database {read.shown} is not available: {said}.",
            todo=(
                "Check the user, the password and the name of the database in the URL, and what it leads to."
                if remedy is Remedy.GIVE_UP
                else "Check that it runs."
            ),
        ) from None
    except SchemaBusy as error:
        raise Failure(Exit.UNREACHABLE, str(error)) from None
    except DBAPIError as error:
        read = DatabaseUrl.read(url)
        raise Failure(Exit.REFUSED, f"the database {read.shown} refused: {read.hide(str(error.orig))}.") from None


def run_on_database(work: Coroutine[Any, Any, T], url: str) -> T:
    """Run a coroutine on a database and return its result.

    Raises:
        Failure: when the database cannot be reached, or refuses, or the URL is invalid.
    """
    form = "--database-url or BATONPASS_DATABASE_URL: {}."
    with failing_as(Exit.BAD_INPUT, ValueError, form=form), failing_on_database(url):
        return asyncio.run(work)


def upgrade_schema(url: str) -> tuple[Standing, Standing]:
    """Upgrade the schema to what this version needs; return its state before and after.

    Raises:
        Failure: when that is not possible.
    """
    before = run_on_database(standing_of(url), url)
    if before.fit is Fit.TOO_NEW:
        raise Failure(Exit.REFUSED, before.sentence())
    if before.is_fit:
        return before, before
    run_on_database(upgrade(url), url)
    return before, run_on_database(standing_of(url), url)


def require_fit(url: str, *, wait_s: float = 0) -> Standing:
    """Return the state of the schema. Wait up to ``wait_s`` seconds for a database that is away, and say for what.

    Raises:
        Failure: when this version cannot work on it; the failure says what to run.
    """
    found = run_on_database(_standing_in_time(url, wait_s), url)
    if not found.is_fit:
        raise Failure(Exit.REFUSED, found.sentence())
    return found


async def _standing_in_time(url: str, wait_s: float) -> Standing:
    ends_at, said = time.monotonic() + wait_s, ""
    while True:
        try:
            return await standing_of(url)
        except StoreUnavailable as error:
            # What the database refuses for good is not worth waiting for.
            if time.monotonic() >= ends_at or remedy_of(error.__cause__ or error) is Remedy.GIVE_UP:
                raise
            if error.detail != said:
                read = DatabaseUrl.read(url)
                say_on_stderr(f"batonpass: waiting up to {wait_s:g} s for {read.shown}: {read.hide(error.detail)}.")
            said = error.detail
        await asyncio.sleep(AGAIN_S)
