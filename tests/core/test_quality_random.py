"""Random groups under random events: whatever happened, once it stops the group comes to rest, level, and stays so.

Every single decision on the way is held to the laws by the scene; here are the laws that need the whole story.
"""

from math import ceil, floor

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.core.relay import COLD_LAG, Relay, moved, rounds_bound
from tests.core.scene import copy, restoring, running, topology
from tests.often import cases

from batonpass.core.state.ids import InstanceId, MemberId, TaskId
from batonpass.core.state.inputs import (
    DrainRequest,
    DrainReversal,
    Eviction,
    PauseRequest,
    PinRequest,
    ProbeRequest,
    ResumeRequest,
)
from batonpass.core.state.model import PauseScope, Role, Subtopology
from batonpass.core.state.soft import TaskReport

# Random stories are not what the branches' coverage is made of, and counting it in them takes most of their time.
pytestmark = pytest.mark.no_cover

KINDS = (
    "join", "join", "join", "round", "round", "leave", "restart", "drain", "deadline", "undrain", "crash", "evict", "lost", "unreadable", "readable",
    "pause", "resume", "probe", "pin", "config", "round",
)  # fmt: skip

# Joins and rounds are what most stories are made of.
events = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 3)), min_size=4, max_size=16)
shapes = st.builds(
    lambda tasks, stateless, more: topology(tasks, stateless=stateless, more=(Subtopology("2", more),) if more else ()),
    st.integers(1, 8),
    st.integers(0, 4),
    st.integers(0, 5),
)
configs = st.fixed_dictionaries(
    {
        "num_standby_replicas": st.integers(0, 2),
        "max_warmup_replicas": st.sampled_from([1, 2, 5, "50%"]),
        "max_warmups_per_member": st.sampled_from([1, 2, 10]),
        "max_drain_warmups": st.sampled_from([1, 2, 5]),
        "initial_rebalance_delay_ms": st.sampled_from([0, 3_000]),
        "rebalance_batch_ms": st.sampled_from([0, 50]),
        "rack_aware_tags": st.sampled_from([(), ("zone",)]),
        # The silent and the absent are waited for through ten rounds, not through hundreds in which nothing happens.
        "session_timeout_ms": st.just(10_000),
        "rejoin_grace_ms": st.just(10_000),
    }
)
QUIET_ROUNDS = 15
"""Longer than any lease of a member that was evicted, or that is silent."""
RANDOM = settings(
    max_examples=cases(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


class Story:
    """One random story: a group, what happens to it, and the calm after."""

    def __init__(self, relay: Relay, *, mixed: bool, limits: bool = False) -> None:
        self.relay = relay
        self.mixed = mixed
        self.limits = limits
        self.joined = 0

    def present(self) -> list[MemberId]:
        """Return the members that are here and speak."""
        members = self.relay.group.members
        return [one for one in sorted(members) if members[one].away_until_ms is None and one not in self.relay.silent]

    def happen(self, kind: str, which: int, how: int) -> None:
        """Let one thing happen; ``which`` picks the member or the task, ``how`` the variant."""
        members = self.present()
        if kind == "join":
            self._join(how)
        elif kind == "restart":
            self._restart(which, how)
        elif kind == "round":
            self.relay.round()
        elif members:
            self._to_member(kind, members[which % len(members)], which, how)
            self._command(kind, members[which % len(members)], which, how)
        self.relay.count()

    def _join(self, how: int) -> None:
        for _ in range(1 + how % 3):
            self.joined += 1
            capacity = 1.0 + how % 3 if self.mixed else 1.0
            name = f"m{self.joined:02}"
            self.relay.join(
                name,
                instance_id=InstanceId(name),
                client_tags={"zone": "abc"[how % 3]},
                capacity=capacity,
                max_tasks=2 + 2 * how if self.limits else None,
            )

    def _restart(self, which: int, how: int) -> None:
        away = [one for one in self.relay.group.members.values() if one.away_until_ms is not None]
        members = self.present()
        if away:
            old = min(away, key=lambda one: one.id)
            self.joined += 1
            table = self.relay.group.table
            disk = {
                str(table.ids[task_index]): (0, 50, 5_000, None)[how] for task_index in table.stateful_indexes[which:]
            }
            self.relay.join(
                f"m{self.joined:02}",
                disk=disk,
                instance_id=old.instance_id,
                capacity=old.capacity,
                max_tasks=old.max_tasks,
                client_tags=old.client_tags,
            )
        elif members:
            self.relay.leave(members[which % len(members)], restart=True)

    def _to_member(self, kind: str, member: MemberId, which: int, how: int) -> None:
        relay, scene = self.relay, self.relay.scene
        match kind:
            case "leave":
                relay.leave(member)
            case "drain" | "deadline":
                scene.do(DrainRequest(member, 3_000 if kind == "deadline" else None))
            case "undrain":
                scene.do(DrainReversal(member))
            case "crash":
                relay.silent.add(member)
            case "evict":
                scene.do(Eviction(member, dead=how % 2 == 0))
            case "lost":
                self._lose(member, which)
            case "unreadable":
                for task, grant in relay.group.members[member].assignment.items():
                    if grant.role is not Role.ACTIVE and (member, task) in relay.lag:
                        relay.lag[member, task] = None
            case "readable":
                relay.lag.update({key: how * 3_000 for key, lag in relay.lag.items() if lag is None})
            case _:
                pass

    def _command(self, kind: str, member: MemberId, which: int, how: int) -> None:
        scene, table = self.relay.scene, self.relay.group.table
        match kind:
            case "pause":
                scene.do(PauseRequest(list(PauseScope)[how % 2]))
            case "resume":
                scene.do(ResumeRequest())
            case "probe":
                scene.do(ProbeRequest())
            case "pin":
                task = table.ids[which % len(table.ids)]
                scene.do(PinRequest(task, member))
                self.relay.count()
                self.relay.round()
                scene.do(PinRequest(task, None))
            case "config":
                scene.change(num_standby_replicas=how % 3, max_warmup_replicas=1 + how)
            case _:
                pass

    def _lose(self, member: MemberId, which: int) -> None:
        """Let the member lose the state of one of its actives, and say so."""
        relay, table = self.relay, self.relay.group.table
        assignment = relay.group.members[member].assignment
        reports: dict[str, TaskReport] = {}
        own: list[TaskId] = []
        for task, grant in assignment.items():
            if grant.role is Role.ACTIVE:
                reports[task] = running()
                own += [task] if table.stateful[table.index_of[task]] else []
            else:
                reports[task] = copy(grant.role, relay.lag.get((member, task), COLD_LAG))
        if own:
            task = own[which % len(own)]
            reports[task] = restoring(lost=True)
            relay.lag[member, task] = COLD_LAG
            relay.scene.beat(member, reports)

    def calm(self) -> None:
        """End every fault and command, and wait for what only time brings."""
        relay, scene = self.relay, self.relay.scene
        relay.lag.update({key: 0 for key, lag in relay.lag.items() if lag is None})
        scene.do(ResumeRequest())
        relay.count()
        for member_id in sorted(relay.group.members):
            if relay.group.members[member_id].drain is not None:
                scene.do(DrainReversal(member_id))
                relay.count()
        while relay.silent & set(relay.group.members):
            scene.tick(1_000)
            relay.count()
            relay.beats()
        scene.do(ResumeRequest())
        relay.count()
        while any(one.away_until_ms is not None for one in relay.group.members.values()):
            relay.round()
            scene.tick(2_000)
            relay.count()


def is_level(relay: Relay) -> bool:
    """Say whether every member has the floor or the ceiling of its quota."""
    members = relay.group.members
    total = sum(one.capacity for one in members.values())
    tasks = len(relay.group.table.stateful_indexes)
    quotas = {str(one.id): tasks * one.capacity / total for one in members.values()}
    return all(floor(quotas[name] + 1e-9) <= n <= ceil(quotas[name] - 1e-9) for name, n in relay.actives().items())


@RANDOM
@given(shapes, configs, events, st.sampled_from(["equal", "mixed"]), st.sampled_from([COLD_LAG, COLD_LAG // 3]))
@example(  # An evicted member's lease bound stateless tasks to their next owner while another member joined.
    topology(1, stateless=3),
    {"num_standby_replicas": 2, "rebalance_batch_ms": 50},
    [("join", 0, 0), ("join", 0, 0), ("round", 0, 0), ("evict", 1, 1), ("round", 0, 0), ("join", 0, 0)],
    "equal",
    COLD_LAG,
)
def test_whatever_happened_the_group_comes_to_rest_level_and_stays(
    shape: object, config: dict[str, object], happenings: list[tuple[str, int, int]], capacities: str, step: int
) -> None:
    relay = Relay(shape, **config)  # type: ignore[arg-type]
    relay.step = step
    story = Story(relay, mixed=capacities == "mixed")
    for happening in happenings:
        story.happen(*happening)
    story.calm()
    if not relay.group.members:
        return
    relay.play()
    assert is_level(relay), relay.actives()
    version = relay.group.version
    relay.scene.do(ProbeRequest())
    relay.round()
    assert relay.group.version == version


@RANDOM
@given(shapes, configs, events, st.sampled_from([COLD_LAG, COLD_LAG // 3]))
def test_no_member_ever_holds_more_than_it_said_that_it_can(
    shape: object, config: dict[str, object], happenings: list[tuple[str, int, int]], step: int
) -> None:
    """``max_tasks`` is hard for all copies at every moment, those that must still be given up included."""
    relay = Relay(shape, **config)  # type: ignore[arg-type]
    relay.step = step
    story = Story(relay, mixed=False, limits=True)
    for happening in [("join", 0, 0), *happenings]:
        story.happen(*happening)
        _within_limits(relay)
    story.calm()
    _within_limits(relay)
    changed_in = 0
    for number in range(200):
        version = relay.group.version
        relay.round()
        _within_limits(relay)
        if relay.group.version != version:
            changed_in = number
        elif number - changed_in > QUIET_ROUNDS:
            return
    pytest.fail("no rest")


def _within_limits(relay: Relay) -> None:
    for member in relay.group.members.values():
        assert member.max_tasks is None or len({*member.assignment, *member.revoking}) <= member.max_tasks, member


@RANDOM
@given(shapes, configs, st.integers(1, 6), st.integers(1, 3), st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=9))
def test_joins_of_any_group_move_the_fewest_to_the_joiners_once_and_in_time(
    shape: object, config: dict[str, object], members: int, joiners: int, capacities: list[float]
) -> None:
    relay = Relay(shape, **config)  # type: ignore[arg-type]
    mixed = len(capacities) == 9
    for number in range(members):
        relay.join(f"m{number}", capacity=capacities[number] if mixed else 1.0)
    relay.play()
    relay.forget()
    before = relay.owners()
    standing = {task: set(relay.group.tasks[task].target.standbys) for task in before}
    for number in range(joiners):
        relay.join(f"n{number}", capacity=capacities[number + 6] if mixed else 1.0)
    relay.round()
    aims = [
        relay.group.tasks[task].target.owner for task in before if relay.group.tasks[task].target.owner != before[task]
    ]
    for task, holders in standing.items():
        aims += [one for one in relay.group.tasks[task].target.standbys if one not in holders and one != before[task]]
    rounds = 1 + relay.play()
    moves = moved(before, relay.owners())
    assert is_level(relay), relay.actives()
    assert {task: count for task, count in relay.taken.items() if task in before} == dict.fromkeys(moves, 1)
    assert all(owners == [moves[task]] for task, owners in relay.granted.items() if task in moves)
    assert not relay.cold
    if not mixed:
        assert {str(owner)[0] for owner in moves.values()} <= {"n"}
    assert relay.most_extra <= relay.group.config.warmup_budget(len(before))
    assert rounds <= rounds_bound(relay.group, aims)
