"""Groups as Kafka's own tests describe them, put before the dry run, and what makes a plan valid."""

from collections import Counter
from collections.abc import Iterable, Mapping

from batonpass.core.state.ids import MemberId, TaskId
from batonpass.core.state.model import ActiveState
from batonpass.core.state.policy import GroupConfig, parse_config
from batonpass.dry_run.plan import Plan, plan_snapshot
from batonpass.dry_run.snapshot import Snapshot, SnapshotCopy, SnapshotMember, SnapshotTask, contradictions

RUNS = SnapshotCopy("active", ActiveState.RUNNING)
COLD = 2**62
"""The lag that Kafka's mock clients report of what they do not have."""


def grid(subtopologies: int, partitions: int) -> list[str]:
    """Return every task of so many subtopologies with so many partitions each."""
    return [f"{one}_{partition}" for one in range(subtopologies) for partition in range(partitions)]


def client(
    name: str,
    *,
    runs: Iterable[str] = (),
    stands_by: Mapping[str, int] | None = None,
    warms: Mapping[str, int] | None = None,
    disk: Mapping[str, int | None] | None = None,
    capacity: float = 1,
    tags: Mapping[str, str] | None = None,
    max_tasks: int | None = None,
    draining: bool = False,
) -> SnapshotMember:
    """Return a client with what it runs, stands by, warms up, and has on disk, each copy with its lag."""
    copies = {TaskId(task): RUNS for task in runs}
    copies |= {TaskId(task): SnapshotCopy("standby", lag=lag) for task, lag in (stands_by or {}).items()}
    copies |= {TaskId(task): SnapshotCopy("warmup", lag=lag) for task, lag in (warms or {}).items()}
    copies |= {TaskId(task): SnapshotCopy("none", lag=lag) for task, lag in (disk or {}).items()}
    return SnapshotMember(MemberId(name), capacity, max_tasks, client_tags=tags or {}, draining=draining, tasks=copies)


def everywhere(lag: int | None, tasks: Iterable[str]) -> dict[str, int | None]:
    """Return the same lag for every task."""
    return dict.fromkeys(tasks, lag)


def config(**settings: object) -> GroupConfig:
    """Return Kafka's settings in its own tests: an acceptable lag of 100, two warm-ups, no standbys."""
    return parse_config(
        {"acceptable_recovery_lag": 100, "max_warmup_replicas": 2, "num_standby_replicas": 0} | settings
    )


def snapshot(
    clients: Iterable[SnapshotMember],
    stateful: Iterable[str],
    *,
    stateless: Iterable[str] = (),
    settings: GroupConfig | None = None,
    target: Mapping[TaskId, tuple[MemberId | None, tuple[MemberId, ...]]] | None = None,
) -> Snapshot:
    """Return the group of these clients and tasks."""
    tasks = [*(SnapshotTask(TaskId(one)) for one in stateful)]
    tasks += [SnapshotTask(TaskId(one), stateful=False) for one in stateless]
    made = Snapshot(settings or config(), tuple(tasks), tuple(clients), now_ms=1_000_000, target=target or {})
    assert contradictions(made) == []
    return made


def plan(
    clients: Iterable[SnapshotMember],
    stateful: Iterable[str],
    *,
    stateless: Iterable[str] = (),
    settings: GroupConfig | None = None,
) -> Plan:
    """Return what the core decides on the group; it must be valid by Kafka's own rules."""
    members = list(clients)
    shot = snapshot(members, stateful, stateless=stateless, settings=settings)
    made = plan_snapshot(shot)
    assert made == plan_snapshot(shot)
    assert faults(made, shot) == []
    assert not (made.at_rest and made.probing_needed)
    return made


def faults(made: Plan, shot: Snapshot) -> list[str]:
    """Return what is invalid by the rules of Kafka's own checker, and of ours where they are stricter.

    Each task has exactly one active, the wanted copies, one more at most while it moves; a stateless one has no copy;
    nobody has two copies of a task; the extra copies stay within the budget.
    """
    roles = made.assignment
    actives = Counter(task for held in roles.values() for task in held["active"])
    copies = Counter(task for held in roles.values() for role in held.values() for task in role)
    wanted = min(len(shot.members), 1 + shot.config.num_standby_replicas)
    found = []
    stateful = 0
    extra = 0
    for task in shot.tasks:
        stateful += task.stateful
        least, most = (wanted, wanted + 1) if task.stateful else (1, 1)
        if actives[task.id] != 1:
            found.append(f"{task.id} has {actives[task.id]} actives")
        if not least <= copies[task.id] <= most:
            found.append(f"{task.id} has {copies[task.id]} copies")
        extra += max(0, copies[task.id] - wanted)
    for name, held in roles.items():
        everything = Counter(task for role in held.values() for task in role)
        found += [f"{name} holds {task} twice" for task, count in everything.items() if count > 1]
    if extra > shot.config.warmup_budget(stateful):
        found.append(f"{extra} extra copies")
    return found


def active(made: Plan, name: str) -> list[str]:
    """Return what a client runs after this step."""
    return list(made.assignment[MemberId(name)]["active"])


def standby(made: Plan, name: str) -> list[str]:
    """Return what a client stands by for after this step."""
    return list(made.assignment[MemberId(name)]["standby"])


def warmup(made: Plan, name: str) -> list[str]:
    """Return what a client warms up after this step."""
    return list(made.assignment[MemberId(name)]["warmup"])


def counts(made: Plan, role: str = "active") -> list[int]:
    """Return how many tasks each client has in a role after this step, in the order of names."""
    return [len(held[role]) for _, held in sorted(made.assignment.items())]


def aims(made: Plan, role: str = "active") -> list[int]:
    """Return how many tasks each client has in a role in the target, in the order of names."""
    return [len(held[role]) for _, held in sorted(made.target.items())]


def subtopology_skew(made: Plan) -> int:
    """Return the largest difference between two clients' counts of actives of one subtopology in the target."""
    names = {task.split("_")[0] for held in made.target.values() for task in held["active"]}
    worst = 0
    for name in names:
        per_client = [sum(task.split("_")[0] == name for task in held["active"]) for held in made.target.values()]
        worst = max(worst, max(per_client) - min(per_client))
    return worst


def skew(made: Plan, clients: Iterable[SnapshotMember]) -> float:
    """Return the largest difference between two clients' actives per thread in the target."""
    loads = [len(made.target[one.id]["active"]) / one.capacity for one in clients]
    return max(loads) - min(loads)
