"""Whose fault it is that a task does not run: the memory of what was tried on which host, and how it ended.

A *host* is an instance id, or a member that has none: it is what survives the restart of a process. Two things are
remembered. Each task has its last ``Failure`` on each host. Each host has the ``Fault`` of every task that failed
there and ran elsewhere afterwards, and of its own deaths.

| what is remembered | what follows |
|---|---|
| a task failed on a host, lost its state there, or did not come to run | it is not tried there again for a while |
| a host died twice in a row with a task, or was silent more than once | the same, for a session timeout at first |
| a task failed, or soon took its host down, on ``poison_members`` hosts, and ran well on none | it is parked |
| a host has ``distrust_after`` faults, and ran nothing well since | it is given nothing new for a while |
| all its faults are deaths | the same, for a session timeout at first |

A task's failure counts for ``poison_window_ms``, and the while is as long. It doubles each time that the same happens
again, up to a day, and is as short as at first once as much time has passed after it without another failure. A task
ran well if it was handed over while it ran, or ran for so long that ``poison_members`` such runs do not fit into the
window.

Two deaths may be a person with ``kill -9``, or an out-of-memory loop: only that they go on tells the one from the
other. So the time begins short where nothing else speaks against the host, and grows with each death after it; a task
that runs elsewhere and failed there is evidence by itself.

``evolve`` keeps this memory, and ``view`` reads it. Nothing here changes a group.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from batonpass.core.state.ids import HostId, MemberId, task_sort_key
from batonpass.core.state.model import (
    ActiveState,
    Cause,
    Failure,
    Fault,
    GoneMember,
    Group,
    HostFaults,
    Member,
    Outcome,
    Task,
)
from batonpass.core.state.policy import GroupConfig

LONGEST_MS: Final = 86_400_000
"""The longest time for which a host is not tried again, unless ``poison_window_ms`` is longer."""

_BLAMED: Final = frozenset({Outcome.FAILED, Outcome.DIED})
"""The outcomes that may be a task's own fault. State is lost, and a restore is stuck, for reasons of the host."""


def host_of(member: Member) -> HostId:
    """Return the host on which a member runs."""
    return HostId(member.instance_id or member.id)


def lasting_ms(first_ms: int, times: int) -> int:
    """Return for how long a host is not tried again after so many failures in a row, ``first_ms`` after the first."""
    return min(first_ms << min(times - 1, 40), max(first_ms, LONGEST_MS))


def avoided_until_ms(config: GroupConfig, failure: Failure) -> int:
    """Return until when a task is not tried again on the host of a failure.

    One death says nothing about a task: it returns to the host, where its state may still be. Nor does one silence.
    """
    if failure.outcome in (Outcome.DIED, Outcome.SILENT):
        again = failure.times - 1
        return failure.at_ms + (lasting_ms(config.session_timeout_ms, again) if again else 0)
    return failure.at_ms + lasting_ms(config.poison_window_ms, failure.times)


def distrusted_until_ms(config: GroupConfig, known: HostFaults) -> int:
    """Return until when a host is given nothing new. 0: it never was distrusted, or that is switched off."""
    if not known.times or not config.distrust_after:
        return 0
    has_only_died = all(fault.task is None for fault in known.faults)
    first_ms = config.session_timeout_ms if has_only_died else config.poison_window_ms
    return known.distrusted_ms + lasting_ms(first_ms, known.times)


def distrust_ends(group: Group) -> list[int]:
    """Return until when each member that has faults is, or was, distrusted. 0: it never was."""
    hosts = {host_of(member) for member in group.members.values()} if group.hosts else frozenset()
    return [distrusted_until_ms(group.config, group.hosts[host]) for host in group.hosts if host in hosts]


def may_be_the_host(failure: Failure, member: Member, config: GroupConfig) -> bool:
    """Say whether a member may be the next run of what a task failed on.

    Without instance ids nobody knows, so a member that joined after another one died may be that one, started again.
    """
    if failure.instance_id is not None or member.instance_id is not None:
        return failure.instance_id == member.instance_id
    if failure.member_id == member.id:
        return True
    return failure.outcome is Outcome.DIED and member.joined_ms >= failure.at_ms - config.session_timeout_ms


def is_avoided(failure: Failure, member: Member, config: GroupConfig, now_ms: int) -> bool:
    """Say whether a task is not tried on a member for now, because of this failure."""
    return avoided_until_ms(config, failure) > now_ms and may_be_the_host(failure, member, config)


def with_failure(
    task: Task, member: Member, outcome: Outcome, at_ms: int, config: GroupConfig, *, ran_until_ms: int | None = None
) -> tuple[Failure, ...]:
    """Return the failures of a task with one more, and without those that no longer count.

    What is reported again of the same grant is no further try. ``ran_until_ms``: until when the task ran, at most.
    """
    grant = member.assignment.get(task.id)
    token = grant.token if grant is not None and grant.token else task.token
    times, others = 1, []
    for known in task.marks.failures:
        counts = at_ms < known.at_ms + 2 * lasting_ms(config.poison_window_ms, known.times)
        if may_be_the_host(known, member, config):
            if known.token == token and known.member_id == member.id:
                times = known.times
            elif counts:
                times = known.times + 1
        elif counts:
            others.append(known)
    ran_ms = 0
    if ran_until_ms is not None and task.state is ActiveState.RUNNING:
        ran_ms = max(0, ran_until_ms - (task.ran_since_ms or task.since_ms))
    return (*others, Failure(member.id, at_ms, member.instance_id, outcome, times, token, member.joined_ms, ran_ms))


def ran_well(task: Task, end_ms: int, config: GroupConfig, *, from_ms: int = 0) -> bool:
    """Say whether a task ran from ``from_ms`` to ``end_ms`` for too long to be what ends its hosts."""
    since_ms = max(task.ran_since_ms or task.since_ms, from_ms)
    return task.state is ActiveState.RUNNING and end_ms - since_ms >= config.poison_window_ms // config.poison_members


def blamed(task: Task, group: Group, now_ms: int) -> list[Failure]:
    """Return the failures that may be the task's own fault, one for each host: it has not run well since."""
    oldest_ms = max(now_ms - group.config.poison_window_ms, task.well_ms)
    return [
        failure
        for failure in task.marks.failures
        if failure.outcome in _BLAMED
        and failure.at_ms > oldest_ms
        and _is_certain(failure, group.gone)
        and (failure.outcome is not Outcome.DIED or _was_taken_down(failure, group))
    ]


def _was_taken_down(failure: Failure, group: Group) -> bool:
    """Say whether a task may be what ended a host: it did so soon, and was not only there when the host was suspended.

    Soon is within a quarter of the time for which a task has to run until it ran well. Hosts that are killed one after
    the other, each once the tasks of the one before have run on it for longer, park nothing. A host that is heard again
    was suspended, or the task held it up: twice in a row with the same task is no accident.
    """
    soon_ms = group.config.poison_window_ms // group.config.poison_members // 4
    return failure.ran_ms < soon_ms and (failure.times > 1 or not group.gone[failure.member_id].heard_again)


def _is_certain(failure: Failure, gone: Mapping[MemberId, GoneMember]) -> bool:
    """Say whether a member that was taken for dead still counts as that: no later run of it has said otherwise."""
    if failure.outcome is not Outcome.DIED:
        return True
    entry = gone.get(failure.member_id)
    return entry is not None and entry.cause is Cause.EXPIRED


def faults_of(task: Task, runs_on: Member, group: Group, now_ms: int) -> Iterator[tuple[HostId, Fault]]:
    """Yield the faults of hosts on which a task failed lately, now that it runs on a member elsewhere."""
    for failure in task.marks.failures:
        is_recent = failure.at_ms > now_ms - group.config.poison_window_ms and _is_certain(failure, group.gone)
        if is_recent and failure.outcome is not Outcome.SILENT and not may_be_the_host(failure, runs_on, group.config):
            died = failure.outcome is Outcome.DIED
            fault = Fault(None, failure.at_ms, failure.member_id) if died else Fault(task.id, failure.at_ms)
            yield HostId(failure.instance_id or failure.member_id), fault


def faults_in_words(known: HostFaults) -> str:
    """Return what a host is charged with, as words for people."""
    tasks = sorted((fault.task for fault in known.faults if fault.task is not None), key=task_sort_key)
    deaths = sum(fault.task is None for fault in known.faults)
    died = f"it died {deaths} {'time' if deaths == 1 else 'times'} and its tasks run elsewhere" if deaths else ""
    failed = f"{', '.join(tasks)} failed there and {'runs' if len(tasks) == 1 else 'run'} elsewhere" if tasks else ""
    return "; ".join(part for part in (failed, died) if part)


def charged(known: HostFaults, fault: Fault, config: GroupConfig, now_ms: int, well_ms: int) -> HostFaults:
    """Return the faults of a host with one more: of each task the last, and every death once.

    Faults from before ``well_ms`` are taken back. With ``distrust_after`` faults the host is distrusted from ``now_ms``
    on. Then they do not count again, but until ``poison_window_ms`` after that, or for as long again as it lasted, one
    more fault is enough.
    """
    if fault.at_ms <= known.distrusted_ms:
        return known
    over_ms = distrusted_until_ms(config, known)
    faults = (*(one for one in known.faults if (one.task, one.member_id) != (fault.task, fault.member_id)), fault)
    if now_ms < over_ms:
        return known._replace(faults=faults)
    again_ms = over_ms + max(over_ms - known.distrusted_ms, config.poison_window_ms)
    is_again = known.times > 0 and now_ms < again_ms
    oldest_ms = max(known.distrusted_ms, now_ms - LONGEST_MS, well_ms)
    faults = tuple(one for one in faults if one.at_ms > oldest_ms)
    if not config.distrust_after or len(faults) < (1 if is_again else config.distrust_after):
        return known._replace(faults=faults)
    return HostFaults(faults, now_ms, known.times + 1 if is_again else 1)
