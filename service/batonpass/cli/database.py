"""What `up`, `serve`, `db` and `days` do with a database before anything else uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from batonpass.cli.exits import Exit, Failure
from batonpass.database_url import DatabaseUrl
from batonpass.postgres.schema import Fit, SchemaBusy, Standing, standing_of, upgrade
from batonpass.runtime.ports import StoreUnavailable

T = TypeVar("T")


def without_password(url: str) -> str:
    """Return a URL of a database without what is secret in it."""
    return DatabaseUrl.read(url).shown


@contextmanager
def failing_on_database(url: str) -> Iterator[None]:
    """Turn errors of a database into a failure that names the database, without its secrets.

    Raises:
        Failure: when the database cannot be reached, is busy for too long, or refuses.
    """
    try:
        yield
    except StoreUnavailable as error:
        read = DatabaseUrl.read(url)
        raise Failure(
            Exit.UNREACHABLE,
            f"the database {read.shown} is not available: {read.hide(error.detail)}.",
            todo="Check that it runs.",
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
    try:
        with failing_on_database(url):
            return asyncio.run(work)
    except ValueError as error:
        raise Failure(Exit.BAD_INPUT, f"BATONPASS_DATABASE_URL: {error}.") from None


def upgrade_schema(url: str) -> tuple[Standing, Standing]:
    """Upgrade the schema to what this version needs; return its state before and after.

    Raises:
        Failure: when that is not possible.
    """
    before = run_on_database(standing_of(url), url)
    match before.fit:
        case Fit.CURRENT | Fit.NEWER:
            return before, before
        case Fit.TOO_NEW:
            raise Failure(Exit.REFUSED, before.sentence())
        case Fit.EMPTY | Fit.TOO_OLD:
            run_on_database(upgrade(url), url)
            return before, run_on_database(standing_of(url), url)


def require_fit(url: str) -> Standing:
    """Return the state of the schema.

    Raises:
        Failure: when this version cannot work on it; the failure says what to run.
    """
    found = run_on_database(standing_of(url), url)
    if not found.is_fit:
        raise Failure(Exit.REFUSED, found.sentence())
    return found
