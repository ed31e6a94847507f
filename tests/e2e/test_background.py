"""Work in the background that an unforeseen error ends is told, and begun anew."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from batonpass import background
from batonpass.background import kept_going
from batonpass.bootstrap import Process, build, store_of
from batonpass.cli import up
from batonpass.cli.folder import UpFolder
from batonpass.dashboard.shared_client import EventListener
from batonpass.dashboard.words import Names
from batonpass.postgres import store as postgres_store
from batonpass.settings import Settings

URL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_S", 0)


async def test_work_that_fails_is_told_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    # What the work waited for was cancelled, as a client's read that is stopped; the work itself was not.
    outcomes: list[BaseException | None] = [ValueError("unforeseen"), asyncio.CancelledError(), None]

    async def work() -> None:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome

    await kept_going("the work", work)
    assert outcomes == []
    assert [one.getMessage() for one in caplog.records] == ["the work failed, and begins anew in 0 s"] * 2
    assert caplog.records[0].exc_info


async def test_work_that_is_cancelled_ends() -> None:
    working = asyncio.create_task(kept_going("the work", asyncio.Event().wait))
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


def part(named: str) -> Callable[[Process], object]:
    """Return what finds a part of Kafka's in a process."""
    return lambda process: next(one for one in process.kafka if type(one).__name__ == named)


USERS: dict[str, tuple[Callable[[Any], object], str]] = {
    "pulse": (lambda process: process.pulse, "run"),
    "loop lag": (lambda process: process.counts, "watch_loop"),
    "chores": (lambda process: process.chores, "run"),
    "audits": (lambda process: process.audits, "run"),
    "unheard": (lambda process: process.unheard, "run"),
    "load": (lambda process: process.coordinator, "start"),
    "event feed": (lambda process: process.coordinator.feed, "run"),
    "lease": (lambda process: process.store.ownership, "run"),
    "fleet news": (lambda process: process.store.ownership, "_tell"),
    "upkeep": (lambda process: process.store._upkeep, "run"),
    "sorting": (lambda _: postgres_store, "keep_sorted"),
    "ClusterWatch": (part("ClusterWatch"), "run"),
    "Exchange": (part("Exchange"), "run"),
    "EventPublisher": (part("EventPublisher"), "run"),
}
"""What runs for as long as a coordinator: its name in the log, and where the function is that does it."""


def failing_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> asyncio.Event:
    """Have a coroutine function fail the first time that it is called; return what says that it was called again."""
    work, is_back, failures = getattr(owner, name), asyncio.Event(), [ValueError("unforeseen")]

    async def planted(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        is_back.set()
        return await work(*given)

    monkeypatch.setattr(owner, name, planted)
    return is_back


@pytest.mark.parametrize("name", USERS)
async def test_no_work_of_a_coordinator_ends_unnoticed(
    name: str, database_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"auth": "off", "database_url": database_url, "kafka_bootstrap": "127.0.0.1:1", "kafka_heartbeats": True}
    process = build(found := Settings.model_validate(settings), store_of(found, URL))
    find, function = USERS[name]
    is_back = failing_once(monkeypatch, find(process), function)
    async with process.running(), asyncio.timeout(20):
        await is_back.wait()
        await until(lambda: process.coordinator.is_ready)
    assert f"{name} failed, and begins anew in 0 s" in caplog.messages


async def test_every_work_of_a_coordinator_was_tried(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table above is complete."""
    begun = set[str]()

    async def noted(name: str, work: Callable[[], Any]) -> None:
        begun.add(name)
        await work()

    for module in ("background", "runtime.coordinator", "postgres.fleet"):
        monkeypatch.setattr(f"batonpass.{module}.kept_going", noted)
    settings = {"auth": "off", "database_url": database_url, "kafka_bootstrap": "127.0.0.1:1", "kafka_heartbeats": True}
    async with build(found := Settings.model_validate(settings), store_of(found, URL)).running():
        await until(lambda: begun == set(USERS), within_s=20)


@pytest.mark.parametrize(("name", "function"), [("servers", "_keep_servers")])
async def test_nothing_that_up_keeps_ends_unnoticed(
    name: str, function: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = up._UpRun(UpFolder(tmp_path), None, 0, False, None, False, True)
    monkeypatch.setattr(run, "_greet", lambda _url: asyncio.sleep(0))
    is_back = failing_once(monkeypatch, run, function)
    run._begin(URL)
    async with asyncio.timeout(20):
        await is_back.wait()
    await run._end()
    assert f"{name} failed, and begins anew in 0 s" in caplog.messages


async def test_the_dashboard_hears_on_after_an_event_that_it_does_not_understand(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then its pages say that nothing is heard."""
    heard: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    class Feed:
        position = "7"

        async def __aiter__(self) -> AsyncIterator[dict[str, Any] | None]:
            while True:
                yield await heard.get()

    class Client:
        def follow(self, _path: str, **_: object) -> "Feed":
            return Feed()

    monkeypatch.setattr(background, "AGAIN_S", 0.2)
    events = EventListener(Client(), "secret", None, Names())  # type: ignore[arg-type]
    listener = events.listen()
    heard.put_nowait(None)
    await until(lambda: events.lost_at is None)
    heard.put_nowait({"group": "orders", "type": "member-joined"})
    await until(lambda: events.lost_at is not None)
    assert "was not understood" in events.why
    heard.put_nowait({"group": "orders", "position": 8, "type": "at-rest", "body": {}, "member": None})
    await until(lambda: events.latest.get("orders") == 8)
    assert events.lost_at is None
    assert "event stream failed, and begins anew in 0.2 s" in caplog.messages
    events.leave(listener)
