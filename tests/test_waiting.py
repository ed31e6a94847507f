"""Waiting ends with what was waited for, or says what was seen instead."""

import asyncio
import time

import pytest
from tests.waiting import until, wait_until


def test_the_first_true_value_is_returned() -> None:
    answers = iter([0, "", None, "seven"])
    assert wait_until(lambda: next(answers), every_s=0) == "seven"


def test_a_failure_shows_what_was_seen_last_and_what_it_was_made_of() -> None:
    owners = {"0_0": "m1"}
    with pytest.raises(AssertionError, match=r"^not within 0.01 s; last seen: False, owners = {'0_0': 'm1'}$"):
        wait_until(lambda: len(owners) == 2, within_s=0.01, every_s=0.001)


def test_a_failure_shows_what_the_test_wants_it_to() -> None:
    with pytest.raises(AssertionError, match=r"^not within 0 s: nobody asked$"):
        wait_until(bool, within_s=0, seen=lambda: "nobody asked")


def test_an_error_that_means_not_yet_is_waited_out_and_shown_at_the_end() -> None:
    errors = iter([ConnectionError("who?"), None])

    def ask() -> bool:
        if error := next(errors, ConnectionError("gone")):
            raise error
        return True

    assert wait_until(ask, every_s=0, despite=(ConnectionError,))
    with pytest.raises(AssertionError, match=r"last seen: ConnectionError\('gone'\)"):
        wait_until(ask, within_s=0, despite=(ConnectionError,))
    with pytest.raises(ConnectionError, match="gone"):
        wait_until(ask)


async def test_other_tasks_run_meanwhile() -> None:
    done: list[str] = []
    task = asyncio.create_task(asyncio.sleep(0.01), name="soon")
    task.add_done_callback(lambda one: done.append(one.get_name()))
    assert await until(lambda: done) == ["soon"]


async def test_a_coroutine_function_is_awaited() -> None:
    answers = iter([0, 7])

    async def ask() -> int:
        return next(answers, 0)

    assert await until(ask) == 7
    with pytest.raises(AssertionError, match="last seen: 0, answers = "):
        await until(ask, within_s=0)


async def test_what_takes_long_to_ask_for_is_asked_for_rarely() -> None:
    """Asking takes processor time from what is waited for."""
    asked: list[float] = []

    def ask() -> bool:
        asked.append(time.monotonic())
        time.sleep(0.02)
        return False

    with pytest.raises(AssertionError):
        wait_until(ask, within_s=0.5, every_s=0)
    assert len(asked) <= 6
    asked.clear()
    with pytest.raises(AssertionError):
        await until(ask, within_s=0.5, every_s=0)
    assert len(asked) <= 6
