"""A member in threads has what a member has: whatever is added to one must be added to the other, or named here."""

import inspect

import pytest

from batonpass.worker.member import Member
from batonpass.worker.tasks import Callbacks, Task
from batonpass.worker.threaded import ThreadCallbacks, ThreadedMember, _InThreads

WITHOUT_THREADS = {
    "ended": "`wait` waits for it",
    "hurry": "`run` does it at a second signal",
    **dict.fromkeys(("holdings", "tasks", "unfinished"), "a callback is given its task"),
    "lost": "the task has it",
}
"""Names of `Member` that `ThreadedMember` has not, with what is there instead."""


def public(of: type) -> set[str]:
    return {name for name in dir(of) if not name.startswith("_")}


def test_a_member_in_threads_has_every_name_of_a_member() -> None:
    assert public(Member) - public(ThreadedMember) == set(WITHOUT_THREADS)
    assert public(ThreadedMember) - public(Member) == {"wait"}


def test_callbacks_in_threads_are_those_of_a_member() -> None:
    # The member alone uses these two: which class a task has, and that it is closed.
    assert public(Callbacks) - public(ThreadCallbacks) == {"task_type", "on_close"}
    assert public(ThreadCallbacks) <= public(Callbacks)


@pytest.mark.parametrize(
    ("plain", "threaded", "name"),
    [
        *((Callbacks, ThreadCallbacks, name) for name in sorted(public(ThreadCallbacks))),
        *(
            (Member, ThreadedMember, name)
            for name in ("close", "drain", "exit", "joined", "may_process", "run", "undrain")
        ),
    ],
)
def test_a_call_takes_the_same_in_threads(plain: type, threaded: type, name: str) -> None:
    taken = [list(inspect.signature(getattr(of, name)).parameters) for of in (plain, threaded)]
    assert taken[0] == taken[1]


class Measuring(ThreadCallbacks):
    """Says what it has and uses."""

    def disk_bytes(self) -> dict[str, int]:
        return {"0_1": 70}

    def numbers(self) -> dict[str, float]:
        return {"cpu_share": 0.5}


async def test_what_a_member_in_threads_measures_is_asked_of_it() -> None:
    """A function that was not handed on would be the default of `Callbacks`, which measures nothing."""
    callbacks = _InThreads(Measuring())
    assert (await callbacks.disk_bytes(), await callbacks.numbers()) == ({"0_1": 70}, {"cpu_share": 0.5})


class Awaited(ThreadCallbacks):
    """Was written for a `Member`."""

    async def on_standby(self, task: Task) -> None:  # type: ignore[override]
        """Do nothing."""


def test_a_function_for_threads_that_is_async_is_refused_when_the_member_is_made() -> None:
    """It would do nothing, and nobody would know."""
    with pytest.raises(TypeError, match="on_standby is called, and not awaited"):
        ThreadedMember("http://one", "orders", Awaited())
