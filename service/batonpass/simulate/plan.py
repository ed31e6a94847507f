"""A world before it starts: a group, its workers, the faults of the wire, and the events with their times.

Everything is decided here in advance, and each event carries a seed of its own. So an event, a worker or a fault can be
left out without changing the others: that is how a failure is shrunk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from batonpass.core.state.model import Topology
from batonpass.worker.protocol import MemberSettings, OnLeaseLost


def seeded(*parts: object) -> Random:
    """Return a source of chance that depends on ``parts`` alone."""
    return Random(":".join(str(part) for part in parts))  # noqa: S311 - a world must be repeatable, not secret


class ReportStyle(StrEnum):
    """How a worker reports how far a copy is."""

    LAG = "lag"
    OFFSETS = "offsets"
    POSITION = "position"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """One worker machine: its settings as a member, and how many records a second all its copies together restore."""

    name: str
    settings: MemberSettings = field(default_factory=MemberSettings)
    records_per_s: float = 1_000
    reports: ReportStyle = ReportStyle.OFFSETS
    clock_offset_ms: int = 0


@dataclass(frozen=True, slots=True)
class WireFaults:
    """How often a message is lost, doubled or late, as shares of all messages, and how late (milliseconds).

    ``silent_ends`` is the share of processes whose end no coordinator sees.
    """

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    late_ms: int = 3_000
    silent_ends: float = 0.0


Span = tuple[int, int]
"""The least and the most that something takes, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things take: a message, a stop with its last commit or without, closing a copy, beginning to process.

    A coordinator sees within ``closing`` that a process has ended. Workers look at their own restores every ``look``.
    """

    message: Span = (1, 8)
    closing: Span = (1, 20)
    commit: Span = (0, 40)
    stop: Span = (0, 3)
    close_copy: Span = (0, 30)
    begin: Span = (1, 10)
    look: Span = (300, 700)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens to the world at an instant. ``number`` names it in a replay."""

    number: int
    at_ms: int
    kind: str
    seed: int


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """A whole world, before it starts. Faults last for ``chaos_ms``; virtual time begins at ``start_ms``.

    If the coordinator itself reads the ends of changelogs (``reads_ends``), workers go on reporting how far a copy is
    after it has reached the end.
    """

    seed: int
    topology: Topology
    config: Mapping[str, object]
    workers: tuple[WorkerPlan, ...] = ()
    wire: WireFaults = WireFaults()
    events: tuple[Event, ...] = ()
    chaos_ms: int = 0
    growth_per_s: int = 5
    group_id: str = "g"
    # A day in 2025, so that instants look like real ones.
    start_ms: int = 1_750_000_000_000
    reads_ends: bool = True
    clock_errors_ms: tuple[int, ...] = (0,)
    pace: Pace = Pace()


def draw_worker(seed: int, number: int, *, fenced: str, tasks: int) -> WorkerPlan:
    """Return the worker of this number; it does not depend on the other workers."""
    chance = seeded(seed, "worker", number)
    lost = {"stop": OnLeaseLost.STOP, "continue": OnLeaseLost.CONTINUE}.get(fenced) or chance.choice(list(OnLeaseLost))
    settings = MemberSettings(
        instance_id=chance.choice((f"pod-{number}", f"pod-{number}", None)),
        capacity=chance.choice((1.0, 1.0, 1.0, 2.0, 4.0)),
        max_tasks=chance.choice((None, None, None, max(2, tasks))),
        client_tags={"zone": chance.choice("abc"), "rack": chance.choice("xy")},
        on_lease_lost=lost,
        poll_wait_ms=4_000,
        request_timeout_ms=1_000,
    )
    return WorkerPlan(
        name=f"w{number}",
        settings=settings,
        records_per_s=chance.choice((500, 1_000, 4_000)),
        reports=chance.choice((ReportStyle.LAG, ReportStyle.OFFSETS, ReportStyle.POSITION)),
        clock_offset_ms=chance.randint(-(10**9), 10**9),
    )
