"""Work in the background that an unforeseen error ends is told, and begun anew."""

import asyncio

import pytest

from batonpass.bootstrap import build
from batonpass.runtime import background
from batonpass.runtime.background import kept_going
from batonpass.settings import Settings


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "AGAIN_S", 0)


async def test_work_that_fails_is_told_and_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Exception | None] = [ValueError("unforeseen"), KeyError("again"), None]

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


async def test_no_work_of_a_coordinator_ends_unnoticed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = build(Settings(auth="off"), "http://127.0.0.1:1")
    is_back = asyncio.Event()
    failures = [ValueError("unforeseen")]

    async def chores() -> None:
        if failures:
            raise failures.pop()
        is_back.set()

    monkeypatch.setattr(process.chores, "run", chores)
    async with process.running(), asyncio.timeout(10):
        await is_back.wait()
    assert "chores failed, and begins anew in 0 s" in caplog.messages
