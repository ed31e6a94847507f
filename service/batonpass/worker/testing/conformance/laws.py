"""What must hold in every case, whatever the coordinator does: judged by all calls and outputs that arrived.

A fault names its rule of docs/protocol.md, because the rules of the case that found it are others.
"""

from collections.abc import Iterator

from batonpass.worker.protocol.types import LOAD_MAX
from batonpass.worker.testing.conformance.scripted_coordinator import ScriptedCoordinator

SLACK_S = 0.35
"""How long an output may have been on its way."""

TURN_S = 0.6
"""A heartbeat composed this long after the member was sent an epoch must echo that epoch."""

BEATS_PER_S_MAX = 20


def faults(coordinator: ScriptedCoordinator) -> Iterator[str]:
    for call in coordinator.of("other"):
        yield f"{call.target} is no call that a member makes, or its body is no JSON object"
    for member in coordinator.runs:
        yield from _heartbeats(coordinator, member)
    yield from _loads(coordinator)
    yield from _rate(coordinator)
    yield from _outputs(coordinator)


def _heartbeats(coordinator: ScriptedCoordinator, member: str) -> Iterator[str]:
    run, highest, epoch = coordinator.runs[member], 0, -1
    said: dict[int, object] = {}
    for call in coordinator.of("heartbeat", member=member):
        if call.seq < 1:
            seq = call.body.get("seq")
            yield f"a heartbeat of {member} has the seq {seq!r}; it must be a number that grows from 1 (protocol 4.2)"
        if call.epoch > run.epoch:
            yield f"heartbeat {call.seq} echoes epoch {call.epoch}, which was never told (protocol 4.3)"
        # A repeated heartbeat may arrive later than newer ones, with an older epoch.
        if call.seq >= highest and call.epoch < epoch:
            yield f"heartbeat {call.seq} echoes epoch {call.epoch} after {epoch} (protocol 4.3)"
        if call.seq in said and said[call.seq] != call.body:
            yield f"two different heartbeats have the seq {call.seq} (protocol 10.1)"
        if call.seq not in said and call.epoch < (told := _told_before(coordinator, member, call.at - TURN_S)):
            late = f"though {told} was told {TURN_S:g} s before or earlier (protocol 4.3)"
            yield f"heartbeat {call.seq} echoes epoch {call.epoch}, {late}"
        said[call.seq] = call.body
        highest, epoch = max(highest, call.seq), max(epoch, call.epoch)


def _loads(coordinator: ScriptedCoordinator) -> Iterator[str]:
    for call in coordinator.of("heartbeat"):
        for task, said in (call.tasks or {}).items():
            if not isinstance(said, dict) or "load" not in said:
                continue
            if said.get("role") == "none" or (said.get("role") == "active" and said.get("state") != "running"):
                yield f"heartbeat {call.seq} says a load of {task}, which does not run here (protocol 4.11)"
            load = said["load"]
            if isinstance(load, bool) or not isinstance(load, int | float) or not 0 <= load <= LOAD_MAX:
                yield f"heartbeat {call.seq} says that the load of {task} is {load!r} (protocol 4.9)"


def _told_before(coordinator: ScriptedCoordinator, member: str, at: float) -> int:
    return max((epoch for told_at, name, epoch in coordinator.told_at if name == member and told_at <= at), default=-1)


def _rate(coordinator: ScriptedCoordinator) -> Iterator[str]:
    times = [call.at for call in coordinator.of("heartbeat")]
    window = 2 * BEATS_PER_S_MAX
    for first, last in zip(times, times[window:], strict=False):
        if last - first < window / BEATS_PER_S_MAX:
            yield f"more than {BEATS_PER_S_MAX} heartbeats a second over {window} heartbeats (protocol 1.8)"
            return


def _outputs(coordinator: ScriptedCoordinator) -> Iterator[str]:
    highest: dict[str, int] = {}
    for output in coordinator.outputs:
        before = highest.get(output.task, 0)
        if output.token < before:
            under = f"wrote under token {output.token} after it had written under {before}"
            yield f"task {output.task} {under} (protocol 5.4)"
        highest[output.task] = max(before, output.token)
        if output.token > coordinator.tokens.get(output.task, 0):
            yield f"task {output.task} wrote under token {output.token}, which was never granted (protocol 0.1)"
