"""Timers in stream time: what fires, in which order, and what stays in the store."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.worker.kafka import MemoryStore, StoreInTransaction
from batonpass.worker.kafka.timers import Timers


class Task:
    """A task whose transactions follow one another."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.changes = StoreInTransaction(self.store)
        self.timers = Timers(self.changes)

    def begin(self) -> None:
        """Commit what was changed, and begin the next transaction: on this worker or another."""
        self.store.apply(self.changes.changes.items(), 1)
        self.changes = StoreInTransaction(self.store)
        self.timers = Timers(self.changes)

    def fired(
        self, to_ms: int, and_then: Callable[[int, bytes], None] = lambda _at, _owner: None
    ) -> list[tuple[int, bytes]]:
        """Let time pass and return what has fired."""
        found: list[tuple[int, bytes]] = []
        for at_ms, owner in self.timers.advance(to_ms):
            found.append((at_ms, owner))
            and_then(at_ms, owner)
        return found


@pytest.fixture
def task() -> Task:
    return Task()


def test_timers_fire_in_the_order_of_their_times_and_once(task: Task) -> None:
    for owner, at_ms in ((b"a", 300), (b"b", 100), (b"c", 200), (b"d", 401)):
        task.timers.set(owner, at_ms)
    assert task.fired(99) == []
    assert task.fired(400) == [(100, b"b"), (200, b"c"), (300, b"a")]
    assert task.fired(400) == []
    assert task.fired(500) == [(401, b"d")]
    task.begin()
    # Nothing is left of them but the time.
    assert list(task.store.scan(b"o")) + list(task.store.scan(b"t")) == []


def test_one_that_is_put_off_fires_at_its_latest_time_and_in_its_turn(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"b", 150)
    task.timers.set(b"a", 200)
    assert task.fired(300) == [(150, b"b"), (200, b"a")]


def test_one_that_is_brought_forward_fires_then(task: Task) -> None:
    task.timers.set(b"a", 200)
    task.timers.set(b"a", 100)
    assert task.fired(150) == [(100, b"a")]
    assert task.fired(300) == []


def test_one_that_is_taken_away_does_not_fire(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"b", 100)
    task.timers.clear(b"a")
    task.timers.clear(b"nobody")
    assert task.fired(200, lambda _at, _owner: task.timers.clear(b"b")) == [(100, b"b")]


def test_one_may_take_away_or_put_off_another_that_is_due(task: Task) -> None:
    for owner in (b"a", b"b", b"c"):
        task.timers.set(owner, 100)

    def change(_at_ms: int, owner: bytes) -> None:
        if owner == b"a":
            task.timers.clear(b"b")
            task.timers.set(b"c", 500)

    assert task.fired(200, change) == [(100, b"a")]
    assert task.fired(500) == [(500, b"c")]


def test_one_that_is_set_while_timers_fire_has_its_turn(task: Task) -> None:
    task.timers.set(b"a", 100)
    task.timers.set(b"z", 300)

    def again(at_ms: int, owner: bytes) -> None:
        if owner == b"a":
            task.timers.set(owner, at_ms + 150)

    assert task.fired(400, again) == [(100, b"a"), (250, b"a"), (300, b"z"), (400, b"a")]


def test_one_that_would_fire_for_ever_is_refused(task: Task) -> None:
    task.timers.set(b"a", 100)
    with pytest.raises(ValueError, match="a timer of 100 sets one of 100: it has to be later"):
        task.fired(200, lambda at_ms, owner: task.timers.set(owner, at_ms))


@pytest.mark.parametrize("at_ms", [-1, 1 << 63])
def test_a_time_that_there_is_not_is_refused(task: Task, at_ms: int) -> None:
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        task.timers.set(b"a", at_ms)


def test_time_and_timers_are_kept_for_the_next_transaction(task: Task) -> None:
    task.fired(1_000)
    task.timers.set(b"a", 2_000)
    task.begin()
    assert task.timers.now_ms == 1_000
    # A record from before does not turn time back.
    assert task.fired(500) == []
    assert task.timers.now_ms == 1_000
    assert task.fired(2_000) == [(2_000, b"a")]


OWNERS = st.sampled_from([b"a", b"b", b"c"])
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), OWNERS, st.integers(0, 60)),
        st.tuples(st.just("clear"), OWNERS, st.just(0)),
        st.tuples(st.just("pass"), st.just(b""), st.integers(0, 20)),
        st.tuples(st.just("begin"), st.just(b""), st.just(0)),
    )
)


@given(moves=MOVES)
def test_whatever_is_set_and_cleared_each_owner_fires_when_it_was_last_set_for(
    moves: list[tuple[str, bytes, int]],
) -> None:
    task, now_ms, wanted = Task(), 0, dict[bytes, int]()
    for what, owner, number in moves:
        if what == "set":
            task.timers.set(owner, number)
            wanted[owner] = number
        elif what == "clear":
            task.timers.clear(owner)
            wanted.pop(owner, None)
        elif what == "begin":
            task.begin()
        else:
            now_ms += number
            due = sorted((at_ms, each) for each, at_ms in wanted.items() if at_ms <= now_ms)
            assert task.fired(now_ms) == due
            wanted = {each: at_ms for each, at_ms in wanted.items() if at_ms > now_ms}
