"""What a group's log comes to, fact by fact: what the ledger (``ledger``) says, and laws and measures look at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from batonpass.audit.entries import Entry


class Budgets(NamedTuple):
    """How many warmups the settings allow: in all, as many again for drains, and on one member."""

    normal: int
    drains: int
    of_member: int | None


@dataclass(slots=True)
class Interval:
    """A stretch in which a member had the right to run a task; open while ``ended`` is None."""

    began: Entry
    ended: Entry | None = None
    running_ms: int | None = None


class Lag(NamedTuple):
    """What a copy had still to restore at an instant; None: not known."""

    at_ms: int
    lag: int | None


@dataclass(slots=True)
class Warmup:
    """A warmup of a member's copy; ``outcome`` is promoted, standby or dropped, or open.

    ``fresh``: the member had no copy of the task before. ``lags`` is what it had to restore, by the log.
    """

    began: Entry
    fresh: bool
    ended: Entry | None = None
    outcome: str = "open"
    lags: list[Lag] = field(default_factory=list)


@dataclass(slots=True)
class Run:
    """A stretch in which a member ran a task, up to where the next one began; the first has no ``up``.

    Each field is the first such entry, except ``next_owner``, the last one chosen. ``granted``: the runner's last grant
    before it ran. ``revoked``: the runner was told to give the task up, for the task's ``target``-th target. ``fell``:
    it reported that it does not run. ``taken``: somebody was granted the task, and had ``taken_role`` in it before.
    ``heard_ms``: when the runner was last heard, if it was given up. ``next_up`` began the next run; ``next_granted``
    is that runner's grant.
    """

    task: str
    up: Entry | None = None
    granted: Entry | None = None
    revoked: Entry | None = None
    target: int = 0
    fell: Entry | None = None
    down: Entry | None = None
    taken: Entry | None = None
    taken_role: str = "none"
    next_owner: str | None = None
    parked: bool = False
    heard_ms: int | None = None
    next_up: Entry | None = None
    next_granted: Entry | None = None

    @property
    def runner(self) -> str | None:
        """Who ran the task."""
        return self.up.member if self.up is not None else None

    @property
    def gave_up(self) -> bool:
        """Whether the runner was told to give the task up while it ran it."""
        return self.revoked is not None and (self.fell is None or self.fell.seq > self.revoked.seq)


class Follows(NamedTuple):
    """A record that is out of place behind the one before it.

    ``before`` is the record before, if it was read; ``after`` is the number of the one before, or where reading began
    (``base``), and None if that record is lost.
    """

    record: Entry
    before: Entry | None
    base: int
    after: int | None


class Deposed(NamedTuple):
    """Records of the day by a coordinator of a lower epoch than that of a record before them, ``highest``.

    The first of them is ``first``, with its place; the last is ``last``; ``records`` says how many there are.
    """

    first: Follows
    highest: int
    last: Entry
    records: int


class Dated(NamedTuple):
    """A record that is dated out of order, or whose own time is not that of its row; with those around it."""

    record: Entry
    earlier: Entry | None
    behind: Entry | None


class Assigned(NamedTuple):
    """An assignment: the member's epoch should be one above ``known``, which ``told`` told of.

    ``unsure``: between them its epoch may have been raised, or records are missing.
    """

    entry: Entry
    known: int
    told: Entry
    unsure: bool


class Granted(NamedTuple):
    """A grant; ``may_run`` members might run the task then. ``held`` was the grant before, ``token`` the highest."""

    entry: Entry
    may_run: int
    held: Entry | None
    token: int | None


class Handovers(NamedTuple):
    """Handovers of a task for one and the same target."""

    task: str
    runs: list[Run]


class Edge(NamedTuple):
    """Where a warmup began (1) or ended (-1), with the budgets of then and whether a member drained."""

    entry: Entry
    change: int
    fresh: bool
    budgets: Budgets | None
    drains: bool


class Counted(NamedTuple):
    """How many warmups there were when a decision began one: in the group, or on one member."""

    warmups: int
    edge: Edge


class Decision(NamedTuple):
    """A decision that began warmups: how many there were in the group behind it, and on each of those members.

    What was written at one instant is one decision, and is judged by what it comes to.
    """

    of_group: Counted
    of_members: list[Counted]


class Probe(NamedTuple):
    """A probe that took place; ``futile``: its decision wrote nothing else."""

    entry: Entry
    futile: bool


class Noted(NamedTuple):
    """An entry that is a fact by itself: unreadable, stalled, placed, or of a member that went."""

    entry: Entry


Fact = Follows | Deposed | Dated | Assigned | Granted | Run | Handovers | Warmup | Interval | Decision | Probe | Noted
