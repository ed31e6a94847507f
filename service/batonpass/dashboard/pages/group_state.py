"""What several pages need of a group: its declaration, its members, and what follows from both."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from batonpass.dashboard.request_context import RequestContext
from batonpass.dashboard.view_models.grid import (
    Copies,
    Tile,
    copies_of,
    fits_matrix,
    natural,
    targets_by_task,
    task_tiles,
    tasks_of,
    tones_of,
)
from batonpass.dashboard.view_models.members import member_lines, member_tiles
from batonpass.dashboard.view_models.warmups import Warmup, begun_of, warmups_of
from batonpass.dashboard.words import Names, briefly

SAMPLES: Final = 120
"""The most samples of the lag that are drawn."""


@dataclass(frozen=True)
class GroupState:
    """A group, its members, and what each has."""

    group: Mapping[str, Any]
    members: Sequence[Mapping[str, Any]]
    tasks: Sequence[str]
    copies: Copies
    target: Mapping[str, str]
    names: Names

    @cached_property
    def heads(self) -> Mapping[str, str]:
        """Return what members are called where there is little room."""
        called = {one["member_id"]: self.names(one["member_id"]) for one in self.members}
        brief = briefly(called.values())
        return {member_id: brief[name] for member_id, name in called.items()}

    @cached_property
    def tones(self) -> Mapping[str, str]:
        return tones_of(self.tasks, self.copies)

    @property
    def acceptable_lag(self) -> int:
        """Return the lag up to which a copy counts as caught up."""
        return int(self.group["config"]["acceptable_recovery_lag"])

    @property
    def fits(self) -> bool:
        """Whether a matrix of the whole group is readable."""
        return fits_matrix(len(self.members), len(self.tasks))

    def member_tiles(self) -> list[Tile]:
        return member_tiles(member_lines(self.members, self.acceptable_lag, self.names))

    def task_tiles(self) -> dict[str, list[Tile]]:
        return task_tiles(self.group["topology"], self.tones)

    def warmups(self, events: Sequence[Mapping[str, Any]], now: datetime) -> list[Warmup]:
        """Return every copy that is being restored; events tell when it began."""
        return warmups_of(self.members, self.acceptable_lag, begun_of(events), now)


async def group_state(context: RequestContext) -> GroupState:
    """Ask for a group and its members; also for the target assignment, but only if a matrix shows it."""
    group, members = await asyncio.gather(context.client.get(context.at()), context.client.members(context.group))
    names = context.client.names
    members.sort(key=lambda one: natural(names(one["member_id"])))
    tasks = tasks_of(group["topology"])
    copies = copies_of(members, group["config"]["acceptable_recovery_lag"], names)
    target: dict[str, str] = {}
    if fits_matrix(len(members), len(tasks)) and group["moves_pending"]:
        target = targets_by_task(await context.client.get(context.at("assignment")))
    return GroupState(group, members, tasks, copies, target, names)


async def lags(context: RequestContext, begin: datetime, end: datetime) -> list[dict[str, Any]]:
    """Return how far the copies of a group were behind in a stretch of time."""
    # In whole minutes, so that all who look ask the same.
    since, until = begin.replace(second=0, microsecond=0), end.replace(second=0, microsecond=0) + timedelta(minutes=1)
    asked = {"since": since.isoformat(), "until": until.isoformat(), "limit": SAMPLES}
    found: list[dict[str, Any]] = (await context.client.get(context.at("lags"), **asked))["lags"]
    return found
