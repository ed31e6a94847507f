"""What a group's log comes to, fact by fact: what the ledger (``ledger``) says, and laws and measures look at."""

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

    Each field is the first such entry, except ``next_owner``, the last one chosen. ``revoked``: the runner was told to
    give the task up, for the task's ``target``-th target. ``fell``: it reported that it does not run. ``taken``:
    somebody was granted the task, and had ``taken_role`` in it before. ``heard_ms``: when the runner was last heard, if
    it was given up. ``next_up`` began the next run; ``next_granted`` is that runner's grant. ``ended_ms``: since then
    there is no such task.
    """

    task: str
    up: Entry | None = None
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
    ended_ms: int | None = None

    @property
    def runner(self) -> str | None:
        """Who ran the task."""
        return self.up.member if self.up is not None else None

    @property
    def gave_up(self) -> bool:
        """Whether the runner was told to give the task up while it ran it."""
        return self.revoked is not None and (self.fell is None or self.fell.seq > self.revoked.seq)


class Wrong(NamedTuple):
    """A law that is broken, with the records that prove it, the wrong one last, and when these were written.

    ``every_day``: it is broken on each day that is read through these records, not only on that of the last one.
    """

    law: str
    detail: str
    sequences: tuple[int, ...]
    at: tuple[int, ...]
    task: str | None = None
    member: str | None = None
    every_day: bool = False
    others: tuple[str, ...] = ()


def wrong(law: str, detail: str, *proof: Entry | None, task: str | None = None, member: str | None = None) -> Wrong:
    """Return what entries prove, as far as they are there."""
    # A snapshot may prove several things.
    there = {one.seq: one.at_ms for one in proof if one is not None}
    return Wrong(law, detail, tuple(there), tuple(there.values()), task, member)


class Assigned(NamedTuple):
    """An assignment: the member's epoch should be one above ``known``, which ``told`` told of.

    ``unsure``: between them its epoch may have been raised, or records are missing.
    """

    entry: Entry
    known: int
    told: Entry
    unsure: bool


class Granted(NamedTuple):
    """A grant; ``held`` was the grant before, ``token`` the highest."""

    entry: Entry
    held: Entry | None
    token: int | None


class Overlap(NamedTuple):
    """A grant while others might still run the task: the grant of each of them, or what else gave it that right.

    It ended at ``until_ms``, when ``stopped`` had stopped; None: it was still so at the end of what was read.
    """

    entry: Entry
    others: tuple[Entry, ...]
    until_ms: int | None
    stopped: str | None


class Handovers(NamedTuple):
    """Handovers of a task for one and the same target."""

    task: str
    runs: list[Run]


class Warmups(NamedTuple):
    """How many warmups there were behind a decision that began one: in the group, or on one ``member``.

    What was written at one instant is one decision, and is judged by what it comes to. ``entry`` is the last one that
    changed the number, ``drains`` says whether a member drained.
    """

    entry: Entry
    warmups: int
    budgets: Budgets | None
    drains: bool
    member: str | None


class Probe(NamedTuple):
    """A probe that took place; ``futile``: its decision wrote nothing else."""

    entry: Entry
    futile: bool


Fact = Wrong | Assigned | Granted | Overlap | Run | Handovers | Warmup | Interval | Warmups | Probe | Entry
"""An entry is a fact by itself if it is unreadable, stalled, placed, or of a member that went."""
