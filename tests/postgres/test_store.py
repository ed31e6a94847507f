"""Whole stores side by side on one database: groups go from one coordinator to another, and never to two."""

# ruff: noqa: ASYNC220 - nothing else runs on these loops

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg  # type: ignore[import-untyped]
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine
from tests.waiting import until

from batonpass.core.state.ids import GroupId
from batonpass.core.state.records import ProbeScheduled
from batonpass.postgres.connect import transacting
from batonpass.postgres.embedded import EmbeddedPostgres
from batonpass.postgres.fleet import Registration
from batonpass.postgres.schema import upgrade
from batonpass.postgres.store import PostgresStore
from batonpass.runtime.ports import Commit, NotOwner, StoreUnavailable

ORDERS, EARLY = GroupId("orders"), GroupId("early")
FROZEN = Path(__file__).parent / "frozen.py"


def store_at(url: str, name: str) -> PostgresStore:
    """Return the store of a coordinator of short leases."""
    return PostgresStore(url, Registration(f"http://{name}", lease_ms=1_500, renewal_ms=200))


async def test_a_frozen_coordinator_is_taken_over_and_writes_no_more(database_url: str, engine: AsyncEngine) -> None:
    """L4 forbids it."""
    command = [sys.executable, str(FROZEN), database_url, ORDERS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert next(lines) == "held 1\n"
        while next(lines) != "wrote 5\n":
            pass
        second = store_at(database_url, "second")
        await second.start()
        await until(lambda: len(second.ownership.living) == 2)
        with pytest.raises(NotOwner):
            await second.log.take_over(ORDERS)
        process.send_signal(signal.SIGSTOP)
        await until(lambda: len(second.ownership.living) == 1)
        assert second.ownership.holds(ORDERS)
        assert await second.log.take_over(ORDERS) == 2
        version = (await second.log.read(ORDERS)).version
        await second.log.append(Commit(ORDERS, 2, version, [ProbeScheduled(-1)]))
        process.send_signal(signal.SIGCONT)
        outcomes = {
            line.split()[0] for line in (next(lines) for _ in range(version + 60)) if not line.startswith("wrote")
        }
        after = [next(lines) for _ in range(20)]
        process.kill()
    assert "refused" in outcomes
    assert set(after) <= {"refused Superseded\n", "not held\n"}
    found = (await second.log.read(ORDERS)).records
    assert found == (*(ProbeScheduled(number) for number in range(version)), ProbeScheduled(-1))
    await second.stop()


async def test_groups_follow_coordinators_that_come_and_go(database_url: str, engine: AsyncEngine) -> None:
    groups = [GroupId(f"group-{number}") for number in range(20)]
    first = store_at(database_url, "first")

    async def forget() -> None:
        for group in first.ownership.to_forget():
            first.ownership.forgotten(group)

    await first.start(forget)
    for group in groups:
        assert await first.log.take_over(group) == 1
        await first.log.append(Commit(group, 1, 0, [ProbeScheduled(1)]))
    second = store_at(database_url, "second")
    notified = asyncio.Event()

    async def notify() -> None:
        notified.set()

    await second.start(notify)
    theirs = [group for group in groups if second.ownership.holds(group)]
    assert theirs
    left = set(theirs)
    end = time.monotonic() + 30
    while left and time.monotonic() < end:
        for group in sorted(left):
            try:
                assert await second.log.take_over(group) == 2
            except NotOwner:
                await asyncio.sleep(0.05)
            else:
                left.discard(group)
    assert not left
    assert notified.is_set()
    assert not any(first.ownership.holds(group) for group in theirs)
    assert {first.ownership.owner_url(group) for group in theirs} == {"http://second"}
    await second.leave()
    await until(lambda: all(first.ownership.holds(group) for group in groups))
    await second.stop()
    assert await first.log.take_over(theirs[0]) == 3
    assert first.ownership.not_ready() == ""
    await first.stop()
    assert first.ownership.lease_left_s() == 0


async def test_a_store_starts_without_its_database_and_finds_it_later(folder: Path) -> None:
    server = EmbeddedPostgres(folder, durable=False)
    url = server.start()
    await upgrade(url)
    server.stop()
    store = store_at(url, "early")
    await store.start()
    assert "lease is over" in store.ownership.not_ready()
    assert not store.ownership.holds(EARLY)
    with EmbeddedPostgres(folder, durable=False, port=make_url(url).port) as again:
        await until(lambda: store.ownership.holds(EARLY))
        await store.log.take_over(EARLY)
        again.stop()
        await until(lambda: not store.ownership.holds(EARLY))
        assert "lease is over" in store.ownership.not_ready()
        with pytest.raises(StoreUnavailable):
            await store.log.take_over(EARLY)
    await store.stop()


async def test_however_many_read_the_history_nothing_else_waits_for_them(
    database_url: str, engine: AsyncEngine
) -> None:
    store = store_at(database_url, "busy")
    await store.start()
    async with transacting(engine) as other:
        await other.execute(text("lock table events in access exclusive mode"))
        reading = [asyncio.ensure_future(store.archive.events(None, after=0, limit=1)) for _ in range(30)]
        await asyncio.sleep(0.5)
        async with asyncio.timeout(2):
            assert await store.tokens.find("none") is None
            assert await store.log.take_over(ORDERS) == 1
        assert not any(one.done() for one in reading)
    assert await asyncio.gather(*reading) == [[]] * 30
    await store.stop()


@asynccontextmanager
async def relayed(url: str, answers: asyncio.Event) -> AsyncIterator[str]:
    """Lend another address of a database, which passes nothing on while ``answers`` is not set."""
    place, serving = make_url(url), list[asyncio.Task[object] | None]()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(65_536):
                await answers.wait()
                writer.write(part)
                await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())
        from_server, to_server = await asyncio.open_connection(place.host, place.port)
        await asyncio.gather(pipe(reader, to_server), pipe(from_server, writer))

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        there = place.set(host="127.0.0.1", port=listening.sockets[0].getsockname()[1])
        yield there.render_as_string(hide_password=False)
        answers.set()
        await asyncio.gather(*filter(None, serving))


async def test_a_stop_says_no_word_to_a_database_that_does_not_answer(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection would be waited for as long as a statement, longer than a platform waits for the process."""
    answers, was_over = asyncio.Event(), list[bool]()
    close = asyncpg.Connection.close

    async def closed(connection: asyncpg.Connection, **more: float) -> None:
        if not more:  # One that was found to be of no use is given two seconds.
            was_over.append(connection.is_closed())
        await close(connection, **more)

    answers.set()
    async with relayed(database_url, answers) as url:
        store = store_at(url, "one")
        await store.start()
        await until(lambda: store.ownership.holds(ORDERS))
        await asyncio.gather(store.archive.last_position(), store.tokens.find("x"))
        answers.clear()
        with pytest.raises(StoreUnavailable):
            await store.ownership.renew_and_look()
        monkeypatch.setattr(asyncpg.Connection, "close", closed)
        await store.stop()
    assert was_over
    assert all(was_over)
