"""The state of the groups at a scrape: members, tasks, lags, and what is held back.

A scrape waits for no large group: of one it shows what the last look found, and looks anew once it has been answered.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from batonpass.core.handover.lag import open_transactions
from batonpass.core.handover.view import View
from batonpass.core.state.ids import GroupId, TaskId
from batonpass.core.state.model import ActiveState, Group, Member, Role
from batonpass.core.state.policy import Policy
from batonpass.core.state.soft import MeasuredReport, Soft
from batonpass.dry_run.load import load_status
from batonpass.explain.health import FLAPS, FLAPS_WITHIN_MS, describe
from batonpass.explain.remedies import Level
from batonpass.explain.status import GroupState
from batonpass.metrics.counts import Counts

COPIES_EACH_SCRAPE: Final = 20_000
"""A group with more copies than this is looked at only once a minute, and not while a scrape waits: it takes seconds,
as a step of 200,000 tasks does."""

LOOKED_AT_EVERY_MS: Final = 60_000
LOOKED_AT_WITHIN_MS: Final = 300_000
"""What is older is not shown, where nobody has scraped for long: such a scrape waits for the look."""

PREFIX: Final = "batonpass_group_"

FAMILIES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "health": ("1 for the level of the group's health.", ("group", "level")),
    "state": ("1 for the state that the group is in.", ("group", "state")),
    "generation": ("The number of the present target assignment.", ("group",)),
    "members": ("Members, by state.", ("group", "state")),
    "tasks": ("Tasks, by what their owner does.", ("group", "state")),
    "warmups": ("Copies that are being restored for a move.", ("group",)),
    "moves_pending": ("Tasks that are not with their target owner yet.", ("group",)),
    "held_back": ("Moves held back, by reason.", ("group", "reason")),
    "probe_timestamp_seconds": ("When the group is looked at again; absent at rest.", ("group",)),
    "oldest_heartbeat_age_seconds": ("How long ago the most silent member was heard.", ("group",)),
    "lag_records": ("Lags of standbys and warmups, added up.", ("group", "role")),
    "lag_records_max": ("The largest of them.", ("group", "role")),
    "lag_unknown_copies": ("Standbys and warmups whose lag is not known.", ("group", "role")),
    "changelogs_held_up": (
        "Partitions of changelogs in which a transaction stays open, so that no copy can be read to the end.",
        ("group",),
    ),
    "input_lag_records": ("Lags of the inputs of actives, added up; absent where none is reported.", ("group",)),
    "input_lag_records_max": ("The largest of them.", ("group",)),
    "input_lag_unknown_tasks": ("Actives that report no lag of their input.", ("group",)),
    "load_imbalance": (
        "By how much the highest measured load of a member per capacity is above the average; absent while none is measured.",
        ("group",),
    ),
    "members_needed": (
        "How many members of average capacity the measured load would fill, with that of standbys; absent while none is measured.",
        ("group",),
    ),
    "hottest_task_share": (
        "The highest measured load of a task, as a share of the largest member's capacity; absent while none is measured.",
        ("group",),
    ),
    "claimed_twice": ("Tasks that more than one member says it runs.", ("group",)),
    "warmups_stalled": ("Copies that came no closer and are not tried again yet.", ("group",)),
    "flapping_instances": ("Instances that came and went three times in a quarter of an hour.", ("group",)),
    "distrusted_members": ("Members that are given nothing new, for what failed there runs elsewhere.", ("group",)),
    "session_timeout_seconds": ("After what silence a member counts as gone.", ("group",)),
    "placement_failed": (
        "1 while the last placement found no answer: the target stays what it was, and is placed anew at the next probe.",
        ("group",),
    ),
    "refused_rebalances": (
        "Rebalances of a Kafka Streams application that were refused since the last answer, or those of another one that asks under the name of the group; 0 once there is an answer, or the other one has stopped.",
        ("group",),
    ),
    "storm": ("1 while too many members are lost at once, and balance moves and cold takeovers stop.", ("group",)),
}
OF_MEMBERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "member_load": (
        "The measured load of a member per capacity; absent while none is measured, and while it drains.",
        ("group", "member"),
    ),
    "member_tasks": ("What a member may hold, by role.", ("group", "member", "role")),
    "member_disk_bytes": (
        "What the state on a member's disk takes, of all its tasks; absent where it is not reported.",
        ("group", "member"),
    ),
    "member_max_disk_bytes": ("The most that it takes there; absent where it has no limit.", ("group", "member")),
    "member_heartbeat_age_seconds": ("How long ago a member was heard.", ("group", "member")),
}


Shown = tuple[str, tuple[str, ...], float]
"""A family of the group, the labels beside the group's, and the value."""


class _Looked(NamedTuple):
    """What a look at all of a group has found, and when."""

    at_ms: int
    shown: tuple[Shown, ...]


class GroupGauges(Collector):
    """Shows the groups that this process has."""

    def __init__(
        self,
        loaded: Callable[[], list[tuple[Group, Soft]]],
        now_ms: Callable[[], int],
        policy: Policy,
        *,
        members_max: int,
    ) -> None:
        """Show the ``loaded`` groups, and each member of a group that has up to ``members_max`` members."""
        self._loaded = loaded
        self._now_ms = now_ms
        self._policy = policy
        self._members_max = members_max
        self._looked: dict[GroupId, _Looked] = {}
        # With the time of it, for who looks later.
        self._taken: tuple[int, list[tuple[Group, Soft]]] = 0, []

    def look(self) -> set[str]:
        """Take the groups as they are now for ``collect`` to show, and return their names."""
        self._taken = self._now_ms(), self._loaded()
        names = {group.id for group, _ in self._taken[1]}
        for gone in set(self._looked) - names:
            del self._looked[gone]
        return {str(name) for name in names}

    def look_ahead(self) -> None:
        """Look at the large groups that are due, for the next scrape. A thread may do it, as it may ``collect``."""
        now_ms, present = self._taken
        for group, soft in present:
            looked = self._looked.get(group.id)
            if looked is not None and _is_large(group) and now_ms - looked.at_ms >= LOOKED_AT_EVERY_MS:
                self._looked[group.id] = _Looked(now_ms, tuple(self._look_at(group, soft, now_ms)))

    def collect(self) -> Iterator[Metric]:
        """Yield every family. The groups that it reads cannot change, so a thread may run it."""
        now_ms = self._now_ms()
        families = {
            name: GaugeMetricFamily(PREFIX + name, meaning, labels=labels)
            for name, (meaning, labels) in FAMILIES.items()
        } | {
            name: GaugeMetricFamily("batonpass_" + name, meaning, labels=labels)
            for name, (meaning, labels) in OF_MEMBERS.items()
        }
        for group, soft in self._taken[1]:
            for name, labels, value in self._show(group, soft, now_ms):
                families[name].add_metric([str(group.id), *labels], value)
        yield from families.values()

    def _show(self, group: Group, soft: Soft, now_ms: int) -> Iterator[Shown]:
        yield "generation", (), group.generation
        for name, count in _members(group).items():
            yield "members", (name,), count
        yield "session_timeout_seconds", (), group.config.session_timeout_ms / 1_000
        yield "storm", (), float(group.storm_since_ms is not None)
        yield "placement_failed", (), float(bool(group.placement_failed))
        looked = self._looked.get(group.id)
        if looked is None or not _is_large(group) or now_ms - looked.at_ms > LOOKED_AT_WITHIN_MS:
            looked = self._looked[group.id] = _Looked(now_ms, tuple(self._look_at(group, soft, now_ms)))
        yield from looked.shown
        yield from self._ages(group, soft, now_ms)

    def _look_at(self, group: Group, soft: Soft, now_ms: int) -> Iterator[Shown]:
        """Yield what takes a look at every task, copy or report of a group."""
        view = View(group, soft, now_ms)
        status, health = describe(view)
        for level in Level:
            yield "health", (level.value,), float(level is health.level)
        for state in GroupState:
            yield "state", (state.value,), float(state is status.state)
        yield "warmups", (), status.warmups
        yield "moves_pending", (), status.moves_pending
        for reason, count in sorted(Counter(str(one.reason) for one in status.held_back).items()):
            yield "held_back", (reason,), count
        if status.next_probe_ms is not None:
            yield "probe_timestamp_seconds", (), status.next_probe_ms / 1_000
        for name, count in sorted(_tasks(group).items()):
            yield "tasks", (name,), count
        stalls = [stall.until_ms for one in group.table.ids for stall in group.tasks[one].marks.stalls]
        yield "warmups_stalled", (), sum(until_ms > now_ms for until_ms in stalls)
        ends = Counter(gone.instance_id for gone in group.gone.values() if gone.at_ms > now_ms - FLAPS_WITHIN_MS)
        yield "flapping_instances", (), sum(count >= FLAPS for one, count in ends.items() if one is not None)
        yield "distrusted_members", (), len(view.distrusted)
        refused = (status.application and status.application.refused) or status.others_refusals
        if status.application is not None or refused is not None:
            yield "refused_rebalances", (), 0 if refused is None else refused.times
        yield from add_up(group, soft)
        load = load_status(group, soft)
        if load is not None:
            yield "load_imbalance", (), load.imbalance
            yield "members_needed", (), load.members_needed
            yield "hottest_task_share", (), load.hottest_share
            if len(group.members) <= self._members_max:
                for member_id, share in load.by_member.items():
                    yield "member_load", (str(member_id),), share

    def _ages(self, group: Group, soft: Soft, now_ms: int) -> Iterator[Shown]:
        oldest = 0.0
        each = len(group.members) <= self._members_max
        for member in group.members.values():
            member_soft = soft.members.get(member.id)
            numbers = member_soft.numbers if member_soft is not None else {}
            # No age is longer than this coordinator has known the group.
            age = max(0, now_ms - (member_soft.heard_ms if member_soft else soft.started_ms)) / 1_000
            if member.away_until_ms is None:
                oldest = max(oldest, age)
            if each:
                yield "member_heartbeat_age_seconds", (str(member.id),), age
                on_disk = member_soft.disk_bytes if member_soft is not None else None
                if on_disk is not None:
                    yield "member_disk_bytes", (str(member.id),), on_disk
                if member.max_disk_bytes is not None:
                    yield "member_max_disk_bytes", (str(member.id),), member.max_disk_bytes
                yield from ((f"member_{name}", (str(member.id),), value) for name, value in numbers.items())
                held = Counter(grant.role.value for grant in member.assignment.values())
                for role in Role:
                    yield "member_tasks", (str(member.id), role.value), held[role.value]
        yield "oldest_heartbeat_age_seconds", (), oldest


def _is_large(group: Group) -> bool:
    return len(group.table.ids) * (1 + group.config.num_standby_replicas) > COPIES_EACH_SCRAPE


def _members(group: Group) -> dict[str, int]:
    counts = dict.fromkeys(("active", "away", "draining", "suspected"), 0)
    for member in group.members.values():
        counts[_state(member)] += 1
    return counts


def _state(member: Member) -> str:
    if member.away_until_ms is not None:
        return "away"
    if member.suspected:
        return "suspected"
    return "draining" if member.drain is not None else "active"


def _tasks(group: Group) -> dict[str, int]:
    counts = dict.fromkeys(("running", "unowned"), 0)
    for task_id in group.table.ids:
        task = group.tasks[task_id]
        state = "parked" if task.marks.parked else "unowned" if task.owner is None else task.state.value
        counts[state] = counts.get(state, 0) + 1
    return counts


OPEN_METRICS: Final = "application/openmetrics-text"


class Scrape:
    """Answers a scrape: the present groups and all counts, without the series of groups that are gone."""

    def __init__(self, counts: Counts, gauges: GroupGauges) -> None:
        self._counts = counts
        self._gauges = gauges
        self._one_at_a_time = asyncio.Lock()
        self._ahead: asyncio.Task[None] | None = None
        self._next: dict[str, asyncio.Task[bytes]] = {}
        """By content type, what all get who came since the last look began: however many ask, none waits for long."""
        counts.registry.register(gauges)

    async def __call__(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in the form that ``accept`` prefers, and its content type."""
        # Without its version and other words, of which callers could make up any number.
        encode, content_type = choose_encoder(OPEN_METRICS if OPEN_METRICS in accept else "")
        if content_type not in self._next:
            self._next[content_type] = asyncio.create_task(self._look(encode, content_type))
        return await asyncio.shield(self._next[content_type]), content_type

    async def _look(self, encode: Callable[[CollectorRegistry], bytes], content_type: str) -> bytes:
        async with self._one_at_a_time:
            del self._next[content_type]
            await self._counts.keep_to(self._gauges.look())
            # Groups take a while to count; other calls need not wait for that.
            body = await asyncio.to_thread(encode, self._counts.registry)
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.create_task(asyncio.to_thread(self._gauges.look_ahead))
        return body


RUNS: Final = frozenset({ActiveState.RUNNING, ActiveState.RESTORING})


def add_up(group: Group, soft: Soft) -> Iterator[Shown]:
    """Yield the sums over what the members of a group last reported; of inputs, where an active reports a lag."""
    total: Counter[str] = Counter()
    largest: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    inputs: list[int] = []
    silent = 0
    claims: Counter[TaskId] = Counter()
    for member in group.members.values():
        member_soft = soft.members.get(member.id)
        reports: Mapping[TaskId, MeasuredReport] = member_soft.reports if member_soft else {}
        for task, grant in member.assignment.items():
            measured = reports.get(task)
            if grant.role is Role.ACTIVE:
                if measured is None or measured.report.input_lag is None:
                    silent += 1
                else:
                    inputs.append(measured.report.input_lag)
            elif measured is None or measured.lag is None:
                unknown[grant.role.value] += 1
            else:
                total[grant.role.value] += measured.lag
                largest[grant.role.value] = max(largest[grant.role.value], measured.lag)
        claims.update(_runs(member, reports))
    for role in (Role.STANDBY.value, Role.WARMUP.value):
        yield "lag_records", (role,), total[role]
        yield "lag_records_max", (role,), largest[role]
        yield "lag_unknown_copies", (role,), unknown[role]
    if inputs:
        yield "input_lag_records", (), sum(inputs)
        yield "input_lag_records_max", (), max(inputs)
    yield "input_lag_unknown_tasks", (), silent
    yield "claimed_twice", (), sum(count > 1 for count in claims.values())
    yield "changelogs_held_up", (), len(open_transactions(group, soft))


def _runs(member: Member, reports: Mapping[TaskId, MeasuredReport]) -> Iterator[TaskId]:
    """Yield the tasks that a member reports as running.

    The last report of a member that is away or suspected does not count: others may have taken over by right.
    """
    if member.suspected or member.away_until_ms is not None:
        return
    for task, measured in reports.items():
        if measured.report.role == Role.ACTIVE.value and measured.report.state in RUNS and not measured.report.lost:
            yield task
