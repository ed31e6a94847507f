"""Any order of calls that workers and operators may make, against a model that knows what each answer may be."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.api.conftest import Api, serving
from tests.often import cases

from batonpass.core.state.ids import GroupId
from batonpass.core.state.inputs import Tick

TASKS = 6
SESSION_MS = 10_000
SLOTS = st.integers(min_value=0, max_value=4)
TASK_IDS = [f"0_{number}" for number in range(TASKS)]
GONE = {"gone", "fenced", "unknown-member", "fenced-instance-id"}


@dataclass
class Run:
    """One run of a worker, as it believes itself to be.

    ``granted`` are the actives of the last assignment. Those that the worker runs, ``processes``, are fewer while its
    lease is over.
    """

    member: str
    instance: str | None
    heard_ms: int
    epoch: int = 0
    seq: int = 0
    granted: set[str] = field(default_factory=set)
    processes: dict[str, int] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    confirmed: bool = True
    drains: bool = False


class Workers(RuleBasedStateMachine):
    """Five workers and an operator. The model is what an honest worker does and knows."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.serving = serving()
        self.api: Api = self.runner.run(self.serving.__aenter__())
        self.runs: dict[int, Run] = {}
        self.ended: list[str] = []
        self.highest: dict[str, tuple[int, str]] = {}
        self.count = 0
        self.said_to_be_gone: set[str] = set()

    def teardown(self) -> None:
        """Stop; whatever broke a law or failed inside is reported now."""
        try:
            self.runner.run(self.serving.__aexit__(None, None, None))
        finally:
            self.runner.close()

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Make a call; no answer may be a fault of the service."""
        answer = self.runner.run(self.api.call(method, path, body))
        assert answer.status_code < 500, (method, path, body, answer.text)
        return answer

    @initialize(standbys=st.integers(0, 1), partitions=st.just(TASKS))
    def declare(self, standbys: int, partitions: int) -> None:
        """Declare the group."""
        config = {"session_timeout_ms": SESSION_MS, "num_standby_replicas": standbys, "rejoin_grace_ms": 20_000}
        answer = self.runner.run(self.api.declare(partitions=partitions, **config))
        assert answer.status_code == 201

    # --- what workers do ---------------------------------------------------------------------------------------------

    @rule(slot=SLOTS, named=st.booleans())
    def join(self, slot: int, named: bool) -> None:  # noqa: FBT001 - as hypothesis passes it
        """Start a worker; one that runs already asks again, as if its answer had been lost."""
        if slot in self.runs:
            run = self.runs[slot]
            answer = self.call("PUT", f"/orders/members/{run.member}", {"instance_id": run.instance})
            self._follow(slot, answer, {200})
            return
        self.count += 1
        run = Run(f"m{self.count}", f"i{slot}" if named else None, self._now())
        answer = self.call("PUT", f"/orders/members/{run.member}", {"instance_id": run.instance})
        if answer.status_code == 409:
            assert answer.json()["type"] == "instance-id-in-use"
            return
        assert answer.status_code == 201, answer.text
        self.runs[slot] = run
        self._take(run, answer.json())

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS, level=st.booleans(), whole=st.booleans())
    def beat(self, slot: int, level: bool, whole: bool) -> None:  # noqa: FBT001 - the same
        """Say what it has, or only that it lives."""
        run = self.runs.get(slot)
        if run is None:
            return
        self._beat(slot, run, level=level, whole=whole)

    def _beat(self, slot: int, run: Run, *, level: bool, whole: bool = True) -> None:
        run.seq += 1
        body: dict[str, Any] = {"seq": run.seq, "member_epoch": run.epoch}
        if whole or run.seq == 1:
            lag = 0 if level else 5_000
            body["tasks"] = {task: {"role": role, "lag": lag} for task, role in run.copies.items()}
            body["tasks"] |= {
                task: {"role": "active", "state": "running", "fencing_token": token}
                for task, token in run.processes.items()
            }
        sent_ms = self._now()
        answer = self.call("POST", f"/orders/members/{run.member}/heartbeat", body)
        if self._follow(slot, answer, {200}):
            run.heard_ms = sent_ms

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS)
    def late_word(self, slot: int) -> None:
        """Send an old heartbeat again: it changes nothing."""
        run = self.runs.get(slot)
        if run is not None and run.seq:
            answer = self.call(
                "POST",
                f"/orders/members/{run.member}/heartbeat",
                {"seq": run.seq, "member_epoch": run.epoch, "tasks": {}},
            )
            self._follow(slot, answer, {200})

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS)
    def look(self, slot: int) -> None:
        """Ask for the assignment by a long-poll that does not wait."""
        run = self.runs.get(slot)
        if run is not None:
            path = f"/orders/members/{run.member}/assignment?after={run.epoch}&wait_ms=0"
            self._follow(slot, self.call("GET", path), {200, 204})

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS, restart=st.booleans())
    def leave(self, slot: int, restart: bool) -> None:  # noqa: FBT001 - the same
        """Stop every active, and go."""
        run = self.runs.get(slot)
        if run is None or (restart and run.instance is None):
            return
        self._stop(slot)
        answer = self.call("DELETE", f"/orders/members/{run.member}?mode={'restart' if restart else 'leave'}")
        assert answer.status_code == 204 or answer.json()["type"] in GONE, answer.text

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS)
    def crash(self, slot: int) -> None:
        """Stop without a word."""
        self._stop(slot)

    # --- what operators do -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS, back=st.booleans())
    def drain(self, slot: int, back: bool) -> None:  # noqa: FBT001 - the same
        """Drain a member, or let it stay."""
        run = self.runs.get(slot)
        if run is not None:
            answer = self.call("DELETE" if back else "POST", f"/orders/members/{run.member}/drain")
            assert answer.status_code in (200, 202, 204) or answer.json()["type"] in GONE, answer.text

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def evict_the_dead(self, data: st.DataObject) -> None:
        """Vouch for a member that has ended that it is dead."""
        member = data.draw(st.sampled_from(self.ended))
        answer = self.call("POST", f"/orders/members/{member}/evict?dead=true")
        assert answer.status_code == 204 or answer.json()["type"] in GONE, answer.text

    @precondition(lambda self: self.runs)
    @rule(slot=SLOTS, task=st.sampled_from(TASK_IDS), off=st.booleans())
    def pin(self, slot: int, task: str, off: bool) -> None:  # noqa: FBT001 - the same
        """Bind a task to a member, or take that back."""
        run = self.runs.get(slot)
        if off:
            assert self.call("DELETE", f"/orders/tasks/{task}/pin").status_code == 204
        elif run is not None:
            answer = self.call("PUT", f"/orders/tasks/{task}/pin", {"member": run.member})
            assert answer.status_code == 204 or answer.json()["type"] in GONE | {"invalid-request"}, answer.text

    @rule(scope=st.sampled_from(["balance", "all", None]))
    def pause(self, scope: str | None) -> None:
        """Hold moves, or let them go on."""
        if scope is None:
            assert self.call("POST", "/orders/resume").status_code == 204
        else:
            assert self.call("POST", "/orders/pause", {"scope": scope}).status_code == 204

    @rule(
        config=st.sampled_from([{"num_standby_replicas": 0}, {"num_standby_replicas": 1}, {"max_warmup_replicas": 1}])
    )
    def change(self, config: dict[str, Any]) -> None:
        """Change a setting under the present ETag."""
        shown = self.call("GET", "/orders")
        body = {"config": config}
        answer = self.runner.run(self.api.call("PUT", "/orders", body, headers={"if-match": shown.headers["etag"]}))
        assert answer.status_code == 200, answer.text
        assert self.call("PUT", "/orders", body).status_code == 428

    @rule(after_ms=st.sampled_from([50, 1_000, 4_000, SESSION_MS + 1_000]))
    def wait(self, after_ms: int) -> None:
        """Let time pass. Whoever was silent for its lease has stopped by then, as it promised."""
        self.api.clock.at_ms += after_ms
        for slot, run in list(self.runs.items()):
            if self._now() - run.heard_ms >= SESSION_MS:
                run.processes.clear()
                run.confirmed = False
                if after_ms > SESSION_MS and slot % 2:
                    self._stop(slot)
        self.runner.run(self.api.coordinator.ask(GroupId("orders"), Tick()))

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def nobody_runs_what_another_runs(self) -> None:
        """At most one worker processes a task (L1), seen from the workers alone."""
        runs: dict[str, str] = {}
        for run in self.runs.values():
            for task in run.processes:
                assert task not in runs, f"{task} runs on {runs[task]} and on {run.member}"
                runs[task] = run.member

    @invariant()
    def what_is_shown_agrees_with_itself(self) -> None:
        """The counts of a group are those of its lists, and at rest nothing is held back."""
        if not self.count:
            return
        shown = self.call("GET", "/orders").json()
        members = self.call("GET", "/orders/members?limit=100").json()["members"]
        assert shown["members"] == len(members)
        assert shown["tasks"] == TASKS
        if shown["state"] == "at-rest":
            assert shown["at_rest"]
            assert shown["warmups"] == shown["moves_pending"] == 0
        listed = {one["member_id"] for one in members}
        assert listed.isdisjoint(set(self.ended) & self.said_to_be_gone)

    def _now(self) -> int:
        return self.api.clock.at_ms

    def _stop(self, slot: int) -> None:
        run = self.runs.pop(slot, None)
        if run is not None:
            self.ended.append(run.member)

    def _follow(self, slot: int, answer: httpx.Response, fine: set[int]) -> bool:
        """Do what an answer says, as the table of errors has it; say whether the lease was renewed."""
        run = self.runs[slot]
        if answer.status_code in fine:
            if answer.status_code != 204:
                self._take(run, answer.json())
            return answer.status_code == 200
        body = answer.json()
        if body["type"] == "stale-member-epoch":
            self._take(run, body["answer"])
            return False
        assert body["type"] in GONE, answer.text
        self.said_to_be_gone.add(run.member)
        self._stop(slot)
        return False

    def _take(self, run: Run, body: dict[str, Any]) -> None:
        epoch, assignment = body["member_epoch"], body["assignment"]
        if epoch < run.epoch or assignment is None:
            assert assignment is not None or epoch == run.epoch or epoch < run.epoch
            return
        tokens = {one["task"]: one["fencing_token"] for one in assignment["active"]}
        named = [*tokens, *assignment["standby"], *assignment["warmup"]]
        assert len(named) == len(set(named)), assignment
        gives_up = {*run.granted, *run.copies} - set(named)
        if epoch == run.epoch + 1:
            assert not (gives_up and set(tokens) - run.granted), "gives up and grants in one epoch"
        run.epoch = epoch
        run.granted = set(tokens)
        run.copies = {task: role for role in ("standby", "warmup") for task in assignment[role]}
        for task in list(run.processes):
            if task not in tokens:
                del run.processes[task]
        if self._now() - run.heard_ms >= SESSION_MS:
            return
        for task, token in tokens.items():
            highest, holder = self.highest.get(task, (0, ""))
            assert token > highest or (token == highest and holder == run.member), (task, token, highest, holder)
            self.highest[task] = token, run.member
            run.processes[task] = token


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(max_examples=cases(40), stateful_step_count=40, deadline=None)
