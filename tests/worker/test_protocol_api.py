"""What the protocol machine offers to others, and what it does without."""

import copy
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worker.scripted import Scripted, assignment, joined

import batonpass.worker.protocol
from batonpass.worker.protocol import (
    Phase,
    Progress,
    Request,
    RequestKind,
    Role,
    Start,
    Stop,
    http_target,
)
from batonpass.worker.protocol.machine import NEXT_PHASE, SENDS, Event

SERVICE = Path(__file__).resolve().parents[2] / "service"

EXPORTED = [
    "NOTHING_HELD",
    "UNKNOWN_PROGRESS",
    "Answer",
    "Assignment",
    "Grant",
    "Holding",
    "Instruction",
    "Joined",
    "LeaveMode",
    "MalformedAnswer",
    "MemberProtocol",
    "MemberSettings",
    "Offsets",
    "OnLeaseLost",
    "Phase",
    "Problem",
    "ProblemSeen",
    "Progress",
    "Rejoining",
    "Request",
    "RequestKind",
    "Role",
    "RoleChanged",
    "Send",
    "Stage",
    "Start",
    "Status",
    "StatusChanged",
    "Stop",
    "StopForGood",
    "http_target",
    "parse_answer",
]


def test_the_public_names_are_pinned() -> None:
    """A name that appears or goes is a change that others see."""
    assert batonpass.worker.protocol.__all__ == EXPORTED
    assert all(hasattr(batonpass.worker.protocol, name) for name in EXPORTED)


def test_the_standard_library_is_all_it_needs() -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(SERVICE)!r}); import batonpass.worker.protocol; "
        "print(*sorted({'asyncio', 'httpx2', 'msgspec', 'random', 'socket', 'ssl', 'threading', 'uuid'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_phase_has_its_row_and_leads_to_an_end() -> None:
    """No process is caught in a phase: from each it can come to its end, and from there nowhere."""
    assert set(NEXT_PHASE) == set(Phase)
    ends = {phase for phase, events in NEXT_PHASE.items() if not events}
    assert ends == {Phase.LEFT, Phase.STOPPED}
    for _ in Phase:
        ends |= {phase for phase, events in NEXT_PHASE.items() if ends & set(events.values())}
    assert ends == set(Phase)
    assert {phase for phase, events in NEXT_PHASE.items() if Event.REFUSED in events} == set(SENDS)


def test_a_machine_can_be_copied_in_mid_flight() -> None:
    worker = joined(1, assignment({"0_1": 1}))
    twin = copy.deepcopy(worker)
    assert worker.beat(2, assignment()) == [Stop("0_1", Role.ACTIVE)]
    assert twin.machine.member_epoch == 1
    assert twin.beat(2, assignment({"0_1": 1, "0_2": 2})) == [Start("0_2", Role.ACTIVE, 2)]
    assert list(worker.machine.holdings) == ["0_1"]


def test_a_new_machine_has_nothing_and_waits_for_nothing() -> None:
    machine = Scripted(on_disk={"0_1": Progress(position=1)}).machine
    assert (machine.member_id, machine.member_epoch, machine.seq) == (None, -1, 0)
    assert (machine.wake_at_ms, machine.lease_end_ms, machine.statuses) == (None, None, ())
    assert machine.lease_is_over(0)
    assert dict(machine.on_disk) == {"0_1": Progress(position=1)}
    assert dict(machine.assignment.roles) == {}


@pytest.mark.parametrize(
    ("kind", "query", "expected"),
    [
        (RequestKind.JOIN, {}, ("PUT", "")),
        (RequestKind.HEARTBEAT, {}, ("POST", "/heartbeat")),
        (RequestKind.POLL, {"after": 3, "wait_ms": 30_000}, ("GET", "/assignment?after=3&wait_ms=30000")),
        (RequestKind.DRAIN, {"deadline_ms": 5}, ("POST", "/drain?deadline_ms=5")),
        (RequestKind.UNDRAIN, {}, ("DELETE", "/drain")),
        (RequestKind.LEAVE, {"mode": "restart"}, ("DELETE", "?mode=restart")),
    ],
)
def test_method_and_path_are_the_protocols_with_names_escaped(
    kind: RequestKind, query: dict[str, str | int], expected: tuple[str, str]
) -> None:
    request = Request(kind=kind, member_id="m/1", first_sent_ms=0, sent_ms=0, timeout_ms=1, query=query)
    method, tail = expected
    assert http_target(request, "my orders") == (method, f"/v1/groups/my%20orders/members/m%2F1{tail}")


@pytest.mark.parametrize(
    ("progress", "remaining"),
    [
        (Progress(), None),
        (Progress(lag=4), 4),
        (Progress(position=4), None),
        (Progress(position=4, end_offset=9), 5),
        (Progress(position=9, end_offset=4), 0),
        (Progress(positions={"a": 1, "b": 7}, end_offsets={"a": 4, "b": 6}), 3),
        (Progress(positions={"a": 1}, end_offsets={"a": 4, "b": 6}), None),
        (Progress(positions={"a": 1}), None),
    ],
)
def test_what_remains_to_restore_is_unknown_where_an_end_or_a_position_is_missing(
    progress: Progress, remaining: int | None
) -> None:
    assert progress.remaining() == remaining
