"""The worker's own code may hang, raise or be slow: heartbeats go on, and nothing is confirmed that is not true."""

import asyncio
import functools
import logging
import types
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from tests.waiting import until
from tests.worker.odd_errors import Frozen, Wordless
from tests.worker.recording import END, Ownership, Recorder, Scene, on_virtual_time

from batonpass.worker import Member, Offsets, Problem, Progress, Revocation, Role, Task
from batonpass.worker.protocol import RequestKind
from batonpass.worker.testing import LocalCoordinator

DEADLINE_MS = 5_000
INTERVAL_MS = 3_000
SESSION_MS = 15_000


class Stubborn(Recorder):
    """A worker whose `on_revoke` does as the test says before it does what it should."""

    hangs = False
    ignores_cancel = False
    raises = 0

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Misbehave, then stop."""
        if task.role is Role.ACTIVE:
            self.events.append(("asked", task.id, revocation.commit))
            while self.ignores_cancel:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    self.events.append(("ignored", task.id))
            if self.raises:
                self.raises -= 1
                raise OSError("the disk is full")
            if self.hangs and revocation.commit:
                await asyncio.Event().wait()
        return await super().on_revoke(task, revocation)


@asynccontextmanager
async def about_to_lose_a_task(owner: Recorder, **config: object) -> AsyncIterator[tuple[Scene, Member, Recorder]]:
    """Let a worker run two tasks, and another one join that is to have one of them."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator, owner.ownership)
        settings = {"heartbeat_interval_ms": INTERVAL_MS, "session_timeout_ms": SESSION_MS}
        await scene.declare(partitions=2, **(settings | config))
        member = scene.member(owner, "owner", stop_deadline_ms=DEADLINE_MS, exit_timeout_ms=20_000)
        async with member:
            await scene.rest()
            heir = scene.worker("heir")
            async with scene.member(heir, "heir"):
                await until(lambda: heir.of("warmup"))
                yield scene, member, heir


def stubborn() -> Stubborn:
    """Return a worker that does not do as it is told."""
    return Stubborn("owner", Ownership())


def heartbeats(scene: Scene, name: str) -> int:
    """Return how many heartbeats a member has sent."""
    return sum(target.endswith("/heartbeat") for _, target in scene.lines[name].calls)


@on_virtual_time
async def test_a_hanging_callback_delays_no_heartbeat_and_confirms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    owner = stubborn()
    owner.ignores_cancel = True
    async with about_to_lose_a_task(owner) as (scene, member, heir):
        await until(lambda: owner.of("asked"))
        before = heartbeats(scene, "owner")
        with caplog.at_level(logging.ERROR):
            await asyncio.sleep(60)
        assert heartbeats(scene, "owner") - before >= 60_000 // INTERVAL_MS - 1
        assert heir.of("active") == []
        assert member.member_id is not None
        assert [record for record in caplog.records if "is not confirmed" in record.getMessage()]
        assert len(member.tasks) == 2
        owner.ignores_cancel = False
        await until(lambda: heir.of("active"))
        assert scene.ownership.count("heir") == 1


@on_virtual_time
async def test_a_commit_that_is_too_slow_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    owner = stubborn()
    owner.hangs = True
    async with about_to_lose_a_task(owner) as (_, _, heir):
        await until(lambda: heir.of("active"))
        ((task, _, restore_to),) = heir.of("active")
        assert owner.of("asked") == [(task, True), (task, False)]
        assert restore_to is None
        assert "has not stopped within 5.0 s" in caplog.text


@on_virtual_time
async def test_a_commit_that_raises_is_followed_by_a_stop_without_one() -> None:
    owner = stubborn()
    owner.raises = 3
    async with about_to_lose_a_task(owner) as (_, _, heir):
        await until(lambda: heir.of("active"))
        ((task, _, restore_to),) = heir.of("active")
        assert owner.of("asked") == [(task, True), (task, False), (task, False), (task, False)]
        assert restore_to is None


@on_virtual_time
async def test_a_task_that_never_stops_costs_its_member_its_place_and_nothing_more() -> None:
    owner = stubborn()
    owner.ignores_cancel = True
    async with about_to_lose_a_task(owner, rebalance_timeout_ms=30_000) as (scene, member, heir):
        old = member.member_id
        await until(lambda: member.phase.value == "fenced")
        scene.ownership.owners.clear()
        await until(lambda: len(heir.of("active")) == 2)
        assert member.member_id == old
        scene.ownership.owners.clear()
        owner.ignores_cancel = False
        await until(lambda: member.member_id != old)


@on_virtual_time
async def test_a_member_does_not_say_goodbye_for_a_task_that_has_not_stopped(caplog: pytest.LogCaptureFixture) -> None:
    owner = stubborn()
    owner.ignores_cancel = True
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator, owner.ownership)
        await scene.declare(partitions=1)
        began = 0.0
        async with scene.member(owner, "owner", stop_deadline_ms=DEADLINE_MS, exit_timeout_ms=20_000) as member:
            await scene.rest()
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began == pytest.approx(20, abs=2)
        assert [method for method, _ in scene.lines["owner"].calls if method == "DELETE"] == []
        assert (await coordinator.describe("orders"))["members"] == 1
        assert "tasks that did not stop: ['0_0']" in caplog.text
        assert member.unfinished == ["0_0"]
        owner.ignores_cancel = False


class Failing(Recorder):
    """A worker whose first callbacks raise."""

    failures = 2
    error: BaseException = ConnectionError("the database is away")

    async def on_active(self, task: Task) -> None:
        """Fail, and later do not."""
        if self.failures:
            self.failures -= 1
            raise self.error
        await super().on_active(task)

    async def on_standby(self, task: Task) -> None:
        """The same."""
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the broker is away")
        await super().on_standby(task)


@on_virtual_time
async def test_an_active_that_raises_is_reported_as_failed_and_tried_again() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Failing("a", scene.ownership)
        async with scene.member(worker, retry_failed_ms=4_000) as member:
            await until(lambda: member.holdings and member.holdings["0_0"].stage == "failed")
            assert member.holdings["0_0"].detail == "ConnectionError: the database is away"
            await scene.rest()
            assert asyncio.get_running_loop().time() >= 8
            assert scene.ownership.tokens == {"0_0": [1]}


def noted(error: Exception, cause: Exception | None) -> Exception:
    """Return an error as the runtime on Kafka passes it on."""
    error.__cause__ = cause
    error.add_note("in orders-0 at offset 7, no key")
    return error


_OF_ITSELF = ValueError("no customer")


@on_virtual_time
@pytest.mark.parametrize(
    "error",
    [
        Wordless("no customer"),
        Frozen(1),
        noted(ValueError("no customer"), cause=Frozen(1)),
        noted(_OF_ITSELF, cause=_OF_ITSELF),  # raise error from error
    ],
    ids=["no words", "frozen", "of a frozen one", "of itself"],
)
async def test_whatever_error_a_task_fails_with_it_is_reported_and_tried_again(error: Exception) -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Failing("a", scene.ownership)
        worker.failures, worker.error = 1, error
        async with scene.member(worker, retry_failed_ms=4_000) as member:
            await until(lambda: member.holdings and member.holdings["0_0"].stage == "failed")
            assert type(error).__name__ in member.holdings["0_0"].detail
            await scene.rest()
            assert scene.ownership.tokens == {"0_0": [1]}


class Cancelling(Recorder):
    """A worker whose first callback ends as one that was cancelled, though nobody has asked it to stop."""

    first = True
    how = "itself"

    async def on_active(self, task: Task) -> None:
        """Be cancelled, and run the next time."""
        first, self.first = self.first, False
        if first and self.how == "itself":
            task.running()
            cast("asyncio.Task[None]", asyncio.current_task()).cancel()
            await asyncio.sleep(1)
        if first:
            task.running()
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.fail())
            except* OSError:
                await cancelled
        await super().on_active(task)

    async def fail(self) -> None:
        """Fail a while later."""
        await asyncio.sleep(1)
        raise OSError("away")


@on_virtual_time
@pytest.mark.parametrize("how", ["itself", "after a group of tasks"])
async def test_a_callback_that_is_cancelled_by_its_own_code_is_tried_again(how: str) -> None:
    """It would be reported as running, and nothing of it would run."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Cancelling("a", scene.ownership)
        worker.how = how
        async with scene.member(worker) as member:
            await until(lambda: member.holdings and member.holdings["0_0"].stage == "failed")
            await scene.rest()
            assert scene.ownership.owners == {"0_0": "a"}


class Ending(Recorder):
    """A worker that ends its member from within what that ends."""

    member: Member
    end = "exit"
    closed = 0

    async def on_active(self, task: Task) -> None:
        """Run for a minute, and end it all."""
        task.running()
        await asyncio.sleep(60)
        await getattr(self.member, self.end)()

    async def on_close(self) -> None:
        """Count, and end what is at its end."""
        await getattr(self.member, self.end)()
        self.closed += 1


@on_virtual_time
@pytest.mark.parametrize(("end", "reason"), [("exit", "left"), ("close", "closed")])
async def test_a_callback_may_end_its_member(end: str, reason: str) -> None:
    """Whoever waits for the end would wait for ever."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = Ending("a", scene.ownership)
        worker.end = end
        async with scene.member(worker) as worker.member:
            assert await asyncio.wait_for(worker.member.ended(), timeout=70) == reason
        assert worker.closed == 1


class Unclosed(Recorder):
    """A worker whose last callback does as the test says."""

    hangs = True

    async def on_close(self) -> None:
        """Misbehave."""
        if self.hangs:
            await asyncio.Event().wait()
        raise asyncio.CancelledError


@on_virtual_time
@pytest.mark.parametrize(
    ("hangs", "said"),
    [(True, "on_close, which has not returned after 20000 ms"), (False, "on_close raised")],
)
async def test_an_exit_ends_whatever_the_last_callback_does(
    *, hangs: bool, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A process that does not end holds up a rollout, without a word."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = Unclosed("a", scene.ownership)
        worker.hangs = hangs
        async with asyncio.timeout(60), scene.member(worker, exit_timeout_ms=20_000) as member:
            pass
        assert await member.ended() == "left"
    assert said in caplog.text


class Saying(Recorder):
    """A worker whose tasks cannot run, and say so in words of any kind."""

    said: Any = ""

    async def on_active(self, task: Task) -> None:
        """Fail."""
        task.progress(Progress(lag=1, detail=self.said))
        task.failed(self.said)


@on_virtual_time
@pytest.mark.parametrize(
    "said", ["customer \ud800", "frame after frame\n" * 500, ValueError("no"), None], ids=lambda said: ascii(said)[:20]
)
async def test_whatever_words_a_task_fails_with_its_member_is_heard(said: object) -> None:
    """One record that names a customer so, and each member in turn would lose all its tasks."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = Saying("a", scene.ownership)
        worker.said = said
        async with scene.member(worker) as member:
            first = member.member_id
            await asyncio.sleep(300)
            assert member.member_id == first
            assert (await coordinator.describe("orders"))["members"] == 1
            assert member.holdings["0_0"].detail == str(said)[:500]


class Wordy(Recorder):
    """A worker whose tasks fail at a place, with many words."""

    async def on_active(self, task: Task) -> None:
        """Fail."""
        error = ValueError("word " * 200_000)
        error.add_note(f"in {task.id} at offset 17")
        raise error


@on_virtual_time
async def test_where_a_task_failed_is_told_however_many_words_its_error_has() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        async with scene.member(Wordy("a", scene.ownership)) as member:
            await asyncio.sleep(1)
            detail = member.holdings["0_0"].detail
    assert detail.startswith("ValueError: word word")
    assert detail.endswith("; in 0_0 at offset 17")


@types.coroutine
def gone_on(coro: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    """Go on with a coroutine that has begun."""
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the coroutine's
            step = functools.partial(coro.throw, error)
        else:
            step = functools.partial(coro.send, sent)
        try:
            waits_for = step()
        except StopIteration as ended:
            return ended.value


class Ended(asyncio.Future[Any]):
    """A task that has ended at its first step."""

    def set_name(self, name: object) -> None:
        """Have no name."""


def begun_at_once(
    loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Future[Any]:
    """Make a task of what a task runner or a mailbox does as `asyncio.eager_task_factory` of Python 3.12 does."""
    if getattr(coro, "__qualname__", "").partition(".")[0] not in {"TaskRunner", "Mailbox"}:
        return asyncio.Task(coro, loop=loop, **options)
    try:
        waits_for = coro.send(None)
    except StopIteration as ended:
        done = Ended(loop=loop)
        done.set_result(ended.value)
        return done
    return asyncio.Task(gone_on(coro, waits_for), loop=loop, **options)


@on_virtual_time
async def test_tasks_are_given_up_where_a_loop_begins_tasks_at_once() -> None:
    async with LocalCoordinator() as coordinator:
        asyncio.get_running_loop().set_task_factory(cast("Any", begun_at_once))
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        async with scene.member(scene.worker("a"), "a"):
            await scene.rest()
            async with scene.member(scene.worker("b"), "b"):
                await until(lambda: scene.ownership.count("b") == 1)
            await until(lambda: scene.ownership.count("a") == 2)
        assert scene.ownership.owners == {}


class Overdue(BaseException):
    """What libraries like gevent raise, so that no ``except Exception`` swallows it."""


@on_virtual_time
@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), BaseExceptionGroup("several", [asyncio.CancelledError(), OSError()]), Overdue()],
    ids=repr,
)
async def test_whatever_a_callback_raises_is_a_failure(error: BaseException) -> None:
    """The callback was not cancelled itself, and nobody would notice that the task stands still."""
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1)
        worker = Failing("a", scene.ownership)
        worker.error = error
        async with scene.member(worker, retry_failed_ms=4_000) as member:
            await until(lambda: member.holdings and member.holdings["0_0"].stage == "failed")
            await scene.rest()
            assert scene.ownership.tokens == {"0_0": [1]}


class Plain(Recorder):
    """A worker whose `on_revoke` is no coroutine, and returns what the test says."""

    final: Offsets = END

    def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:  # type: ignore[override]
        """Stop at once."""
        self.events.append(("asked", task.id, revocation.commit))
        if task.role is Role.ACTIVE and self.ownership.owners.get(task.id) == self.name:
            self.ownership.gives_up(self.name, task.id)
        return self.final if task.role is Role.ACTIVE else None


@on_virtual_time
async def test_on_revoke_may_be_a_plain_function() -> None:
    owner = Plain("owner", Ownership())
    async with about_to_lose_a_task(owner) as (_, _, heir):
        await until(lambda: heir.of("active"))
        ((task, _, restore_to),) = heir.of("active")
        assert (owner.of("asked"), restore_to) == ([(task, True)], END)


@on_virtual_time
async def test_a_final_position_that_is_none_is_an_error_of_on_revoke() -> None:
    """A coordinator would refuse the whole heartbeat with it, and so the lease would end."""
    owner = Plain("owner", Ownership())
    owner.final = -1_001
    async with about_to_lose_a_task(owner) as (_, member, heir):
        await until(lambda: heir.of("active"))
        ((task, _, restore_to),) = heir.of("active")
        assert (owner.of("asked"), restore_to) == ([(task, True), (task, False)], None)
        assert member.phase.value == "joined"


@pytest.mark.parametrize("wrong", [-1_001, 2**63, {"store": -1}])
def test_a_position_that_is_none_is_refused_where_it_is_said(wrong: Offsets) -> None:
    """So that the worker's own code hears it; integers of other libraries are taken as what they are."""

    class OfALibrary:
        def __index__(self) -> int:
            return 7

    with pytest.raises(ValueError, match="no offset"):
        Progress.at(wrong)
    with pytest.raises(TypeError):
        Progress(position=1.5)  # type: ignore[arg-type]
    assert type(Progress(lag=OfALibrary()).lag) is int  # type: ignore[arg-type]


@on_virtual_time
async def test_a_copy_that_raises_is_tried_again() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=2)
        worker = Failing("b", scene.ownership)
        async with scene.member(scene.worker("a"), "a"):
            await scene.rest()
            async with scene.member(worker, "b", retry_failed_ms=4_000):
                await scene.rest()
                assert scene.ownership.count("b") == 1


class Graceful(Recorder):
    """A worker whose loop ends by itself when it is told to stop, with what it has in hand."""

    async def on_active(self, task: Task) -> None:
        """Work in steps of a second until told to stop, then finish."""
        self.ownership.takes(self.name, task)
        task.running()
        while not task.stopping:
            await asyncio.sleep(1)
        await asyncio.sleep(2)
        self.events.append(("finished", task.id))

    async def on_revoke(self, task: Task, revocation: Revocation) -> Offsets | None:
        """Wait for the loop to end."""
        await task.finished()
        return await super().on_revoke(task, revocation)


@on_virtual_time
async def test_a_loop_may_finish_what_it_has_in_hand() -> None:
    worker = Graceful("owner", Ownership())
    async with about_to_lose_a_task(worker) as (_, _, heir):
        await until(lambda: heir.of("active"))
        ((task, _, restore_to),) = heir.of("active")
        assert worker.events[0] == ("finished", task)
        assert restore_to == END


class Restless(Recorder):
    """A worker that calls its member from within a callback that must return at once."""

    member: Member | None = None
    drains = 0

    def on_status(self, statuses: object) -> None:
        """Call the drain off as soon as it is confirmed, and fail."""
        super().on_status(statuses)
        if self.statuses and self.member is not None:
            self.drains += 1
            self.member.undrain()
        raise ValueError("and a defect besides")

    def on_problem(self, kind: RequestKind, problem: Problem) -> None:
        """Fail."""
        raise ValueError(f"{kind}: {problem.type}")


@on_virtual_time
async def test_a_callback_may_call_the_member_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare()
        worker = Restless("a", scene.ownership)
        async with scene.member(worker) as member:
            await scene.rest()
            worker.member = member
            scene.lines["a"].refuses_with = 503
            await asyncio.sleep(5)
            scene.lines["a"].refuses_with = None
            member.drain()
            await until(lambda: worker.drains)
            await until(lambda: member.statuses == ())
            await scene.rest()
        assert "and a defect besides" in caplog.text
        assert "store-unavailable" in caplog.text


@on_virtual_time
async def test_lost_state_is_reported_and_restored_anew() -> None:
    async with LocalCoordinator() as coordinator:
        scene = Scene(coordinator)
        await scene.declare(partitions=1, num_standby_replicas=1)
        async with scene.member(scene.worker("a"), "a"), scene.member(scene.worker("b"), "b") as member:
            await scene.rest()
            (copy,) = member.tasks
            assert member.holdings[copy].progress.position == END
            member.lost(copy)
            await asyncio.sleep(5)
            assert (await coordinator.describe("orders"))["at_rest"] is False
            member.tasks[copy].report(END, END)
            await scene.rest()
