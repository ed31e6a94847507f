"""The only place where hard state changes: records folded into a group.

Used live, at load, in the simulator and in the audit, so that all of them agree on what the records mean. Folding
decides nothing: it never looks at the time, never refuses, and never depends on anything but the group and the record.

A batch is folded through one private draft; the group that comes out shares with the one before whatever did not
change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from batonpass.core import evolve_members as of_members
from batonpass.core import evolve_tasks as of_tasks
from batonpass.core import records as r
from batonpass.core.draft import Draft
from batonpass.core.model import Group

_FOLD: Final[Mapping[type[r.Record], object]] = {
    r.GroupDeclared: of_members.declared,
    r.TopologyChanged: of_members.topology_changed,
    r.ConfigChanged: of_members.config_changed,
    r.GroupDeleted: of_members.deleted,
    r.MemberJoined: of_members.joined,
    r.MemberGone: of_members.gone,
    r.MemberAway: of_members.away,
    r.PlaceInherited: of_members.inherited,
    r.DrainStarted: of_members.drain_started,
    r.DrainCancelled: of_members.drain_cancelled,
    r.MemberSuspected: of_members.suspected,
    r.SuspicionCleared: of_members.suspicion_cleared,
    r.RebalanceScheduled: of_members.rebalance_scheduled,
    r.Paused: of_members.paused,
    r.Resumed: of_members.resumed,
    r.StormBegan: of_members.storm_began,
    r.StormEnded: of_members.storm_ended,
    r.GrantsHeld: of_members.grants_held,
    r.EpochsRaised: of_members.epochs_raised,
    r.ProbeScheduled: of_members.probe_scheduled,
    r.GoneForgotten: of_members.gone_forgotten,
    r.TargetPlaced: of_tasks.target_placed,
    r.PictureChanged: of_tasks.picture_changed,
    r.TaskReleased: of_tasks.released,
    r.ClaimsWaived: of_tasks.waived,
    r.HeirChosen: of_tasks.heir_chosen,
    r.ActiveReported: of_tasks.active_reported,
    r.WarmupStalled: of_tasks.stalled,
    r.TaskParked: of_tasks.parked,
    r.TaskUnparked: of_tasks.unparked,
    r.TaskPinned: of_tasks.pinned,
    r.TasksAdopted: of_tasks.adopted,
}


def evolve(group: Group, records: Iterable[r.Record]) -> Group:
    """Return the group that ``records`` lead to; with none, it is ``group`` itself.

    Its version has grown by the number of records.
    """
    draft = Draft(group)
    count = 0
    for record in records:
        fold = cast("Callable[[Draft, r.Record], None]", _FOLD[type(record)])
        fold(draft, record)
        count += 1
    return draft.finish(group.version + count) if count else group
