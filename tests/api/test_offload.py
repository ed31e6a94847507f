"""Looking at a large group holds nobody up: it is done beside the event loop, one look at a time."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.api.conftest import Api
from tests.api.pairs import BEARER, paired
from tests.api.plain import Socket, one_member
from tests.waiting import until

from batonpass.api import context, groups, offload
from batonpass.api.turns import Offload
from batonpass.codec import answers
from batonpass.codec.answers import answer_body
from batonpass.core.handover.view import View
from batonpass.core.state.errors import InvalidRequest, LimitExceeded
from batonpass.core.state.inputs import Join
from batonpass.core.state.replies import Answer
from batonpass.dry_run.plan import plan_snapshot
from batonpass.dry_run.snapshot import Snapshot
from batonpass.dry_run.whatif import imagine
from batonpass.explain.health import describe
from batonpass.placement.flow import Ints, minimum_flow
from batonpass.runtime import engine
from batonpass.runtime.coordinator import Coordinator
from batonpass.runtime.engine import Attempt, Engine
from batonpass.runtime.places import Places
from batonpass.runtime.solver_process import SolverProcess

LONG_READS = (
    ("GET", ""),
    ("GET", "/orders"),
    ("GET", "/orders/explain"),
    ("GET", "/orders/tasks/0_0"),
    ("GET", "/orders/tasks/0_0/explain"),
    ("GET", "/orders/assignment"),
    ("GET", "/orders/snapshot"),
    ("GET", "/orders/members"),
    ("GET", "/orders/members/m1"),
    ("GET", "/orders/members/m1/safe-to-stop"),
    ("POST", "/orders/plan"),
)


def offload_for(most: int = 100, each: int = 90) -> Offload:
    """Return what runs long reads, with so many places."""
    return Offload(Places(most, "long reads", each=each))


async def test_long_looks_are_done_in_a_thread_and_their_errors_come_back() -> None:
    there = offload_for(1)
    assert await there.do("a", threading.get_ident) != threading.get_ident()

    def refuse() -> None:
        raise InvalidRequest("no", errors=[("a", "b")])

    for _ in range(2):
        with pytest.raises(InvalidRequest):
            await there.do("a", refuse)


async def test_the_loop_turns_during_a_long_look_and_looks_take_turns() -> None:
    there, running, most = offload_for(), [0], [0]

    def slow() -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1

    looks = [asyncio.create_task(there.do("a", slow)) for _ in range(4)]
    turns = 0
    while not all(look.done() for look in looks):
        await asyncio.sleep(0.005)
        turns += 1
    assert turns > 10
    assert most == [1]


@dataclass
class Held:
    """A long look that runs until it is let go, and the order in which looks began."""

    go_on: threading.Event = field(default_factory=threading.Event)
    began: list[str] = field(default_factory=list)

    def look(self, name: str) -> Callable[[], None]:
        """Return a look that notes its name when it begins; the one named `held` waits to be let go."""

        def work() -> None:
            self.began.append(name)
            if name == "held":
                assert self.go_on.wait(20)

        return work


async def test_callers_take_turns_however_much_one_of_them_asks_for() -> None:
    there, held = offload_for(), Held()
    running = asyncio.create_task(there.do("a", held.look("held")))
    await until(lambda: held.began == ["held"])
    others = [asyncio.create_task(there.do(name[0], held.look(name))) for name in ("a1", "a2", "a3", "b1", "c1", "b2")]
    await asyncio.sleep(0)
    held.go_on.set()
    await asyncio.gather(running, *others)
    assert held.began == ["held", "a1", "b1", "c1", "a2", "b2", "a3"]


async def test_what_waits_for_a_caller_who_is_gone_is_dropped_and_what_runs_keeps_its_turn() -> None:
    there, held = offload_for(3, 3), Held()
    running = asyncio.create_task(there.do("a", held.look("held")))
    dropped = [asyncio.create_task(there.do("a", held.look("dropped"))) for _ in range(2)]
    await until(lambda: held.began == ["held"])
    with pytest.raises(LimitExceeded):
        await there.do("a", held.look("one too many"))
    for one in (running, *dropped):
        one.cancel()
    await asyncio.gather(running, *dropped, return_exceptions=True)
    left = asyncio.create_task(there.do("a", held.look("left")))
    with pytest.raises(LimitExceeded):
        async with asyncio.timeout(5):
            await asyncio.gather(*(there.do("a", held.look("one too many")) for _ in range(2)))
    assert held.began == ["held"], "the thread is still busy"
    held.go_on.set()
    await left
    assert held.began[:2] == ["held", "left"]


async def test_the_answer_to_a_command_waits_for_its_turn_and_needs_no_place() -> None:
    there, held = offload_for(1, 1), Held()
    running = asyncio.create_task(there.do("a", held.look("held")))
    await until(lambda: held.began == ["held"])
    owed = asyncio.create_task(there.do("a", held.look("owed"), is_owed=True))
    held.go_on.set()
    await asyncio.gather(running, owed)
    assert held.began == ["held", "owed"]


async def test_dry_runs_of_callers_who_hung_up_end_and_hold_up_no_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller sends forty and leaves; the one that runs ends at its next part, and none of the others begins."""
    imagining, go_on, planned = [0], threading.Event(), [0]

    def imagined(*args: Any, **named: Any) -> Snapshot:
        imagining[0] += 1
        assert go_on.wait(20)
        return imagine(*args, **named)

    def counted(*args: Any, **named: Any) -> Any:
        planned[0] += 1
        return plan_snapshot(*args, **named)

    monkeypatch.setattr(groups, "imagine", imagined)
    monkeypatch.setattr(groups, "plan_snapshot", counted)
    monkeypatch.setattr(offload, "AT_ONCE_MAX", 0)
    async with one_member() as pair:
        dry_runs = pair.processes[0].policy.limits.dry_runs
        body = json.dumps({"join": [{"count": 2}]}).encode()
        head = f"POST /v1/groups/apples/plan HTTP/1.1\r\nHost: x\r\nAuthorization: {BEARER['authorization']}\r\n"
        sockets = [await Socket.open(pair) for _ in range(40)]
        for socket in sockets:
            await socket.send(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await until(lambda: dry_runs.taken == 40)
        for socket in sockets:
            socket.writer.close()
        await until(lambda: dry_runs.taken == 1)
        assert (await pair.call("GET", "/v1/groups/apples/explain")).status_code == 200
        go_on.set()
        await until(lambda: dry_runs.taken == 0)
        assert (imagining, planned) == ([1], [0])
        assert (await pair.call("POST", "/v1/groups/apples/plan", json={})).status_code == 200
        assert (imagining, planned) == ([2], [1])


async def test_decisions_that_wait_in_threads_hold_up_nobody_else() -> None:
    """As many groups may wait for the solver as there are large ones."""
    held = threading.Event()
    async with paired() as pair:
        waiting = [asyncio.create_task(asyncio.to_thread(held.wait, 60)) for _ in range(60)]
        try:
            assert (await asyncio.wait_for(pair.call("GET", "/metrics"), 10)).status_code == 200
        finally:
            held.set()
            await asyncio.gather(*waiting)


async def test_a_decision_does_not_wait_for_the_solver_of_a_dry_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SolverProcess] = []

    def solve(solver: SolverProcess, *network: Ints) -> Ints:
        asked.append(solver)
        return minimum_flow(*network)

    monkeypatch.setattr(SolverProcess, "solve", solve)
    async with paired() as pair:
        topology = {"subtopologies": [{"id": "0", "partitions": 6}]}
        await pair.call(
            "PUT", "/v1/groups/a-1", json={"topology": topology, "config": {"initial_rebalance_delay_ms": 0}}
        )
        await pair.call("PUT", "/v1/groups/a-1/members/m1", json={})
        await until(lambda: asked)
        of_decisions = set(map(id, asked))
        asked.clear()
        assert (await pair.call("POST", "/v1/groups/a-1/plan", json={"join": [{"count": 1}]})).status_code == 200
        assert asked
        assert not of_decisions & set(map(id, asked))


async def test_a_dry_run_waits_at_its_next_part_while_a_large_decision_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are done in threads, which share the interpreter; the members' changes go first."""
    monkeypatch.setattr(engine, "COPIES_DECIDED_AT_ONCE", 0)
    go_on, order, asked = threading.Event(), [], [0]
    make, is_deciding = Engine._make, Coordinator.is_deciding

    def held(*args: Any) -> Attempt:
        if any(isinstance(item, Join) for item in args[1]):
            assert go_on.wait(20)
            order.append("decided")
        return make(*args)

    def imagined(*args: Any, **named: Any) -> Snapshot:
        order.append("imagined")
        return imagine(*args, **named)

    def noted(coordinator: Coordinator) -> bool:
        asked[0] += 1
        return is_deciding(coordinator)

    async with one_member() as pair:
        monkeypatch.setattr(Engine, "_make", held)
        monkeypatch.setattr(groups, "imagine", imagined)
        monkeypatch.setattr(Coordinator, "is_deciding", noted)
        joining = asyncio.create_task(pair.call("PUT", "/v1/groups/apples/members/m2", json={}))
        await until(lambda: is_deciding(pair.processes[0].coordinator))
        planning = asyncio.create_task(pair.call("POST", "/v1/groups/apples/plan", json={}))
        await until(lambda: asked[0] > 2)
        go_on.set()
        assert ((await joining).status_code, (await planning).status_code) == (201, 200)
    assert order == ["decided", "imagined"]


async def test_every_look_at_a_whole_group_may_be_done_aside(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.declare(partitions=4)
    await api.join("m1")
    await api.join("m2")
    here = {call: (await api.call(*call, {} if call[0] == "POST" else None)).json() for call in LONG_READS}
    monkeypatch.setattr(offload, "AT_ONCE_MAX", 0)
    threads: list[str] = []
    encode = answers.to_json

    def noting(body: object) -> bytes:
        threads.append(threading.current_thread().name)
        return encode(body)

    monkeypatch.setattr(offload, "to_json", noting)
    for call, body in here.items():
        answer = (await api.call(*call, {} if call[0] == "POST" else None)).json()
        body.pop("decide_ms", None)
        answer.pop("decide_ms", None)
        assert answer == body, call
    assert threads
    assert threading.main_thread().name not in threads


async def test_small_groups_that_are_many_are_listed_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def noted(view: View) -> Any:
        threads.append(threading.current_thread())
        return describe(view)

    for name in ("clicks", "orders", "visits"):
        await api.call("PUT", f"/{name}", {"topology": {"subtopologies": [{"id": "0", "partitions": 4}]}})
    monkeypatch.setattr(groups, "describe", noted)
    monkeypatch.setattr(offload, "AT_ONCE_MAX", 8)
    assert len((await api.call("GET", "")).json()["groups"]) == 3
    assert len(threads) == 3
    assert threading.main_thread() not in threads


async def test_a_plan_of_the_smallest_group_is_made_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    await api.declare(partitions=4)
    await api.join("m1")
    threads = []

    def noted(*args: Any, **named: Any) -> Snapshot:
        threads.append(threading.get_ident())
        return imagine(*args, **named)

    monkeypatch.setattr(groups, "imagine", noted)
    assert (await api.call("POST", "/orders/plan", {"join": [{"count": 50}]})).status_code == 200
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("kind", ["leave", "drain"])
async def test_a_plan_takes_each_member_once(api: Api, kind: str) -> None:
    """Protocol 12.6."""
    await api.declare(partitions=4)
    await api.join("m1")
    await api.join("m2")
    for named, detail in ((["m1", "m1"], "names a member twice"), (["m1"] * 1_000, "names 1000 members")):
        refused = await api.call("POST", "/orders/plan", {kind: named})
        assert refused.status_code == 422
        assert detail in refused.text
        assert len(refused.content) < 1_000


async def test_a_large_assignment_is_written_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """One member may have all tasks of a large group, and may ask for them ten times a second."""
    beside: list[bool] = []

    def write(answer: Answer) -> dict[str, Any]:
        beside.append(threading.current_thread() is not threading.main_thread())
        return answer_body(answer)

    monkeypatch.setattr(answers, "answer_body", write)
    monkeypatch.setattr(context, "TASKS_WRITTEN_AT_ONCE", 0)
    await api.declare(partitions=4)
    assert (await api.join("m1")).status_code == 201
    assert len((await api.beat("m1", 1, 0)).json()["assignment"]["active"]) == 4
    assert len((await api.assignment("m1", 0, wait_ms=0)).json()["assignment"]["active"]) == 4
    assert beside == [True] * 3
