"""Where tasks belong: the target assignment.

`place` looks at who has what and how warm it is, and answers where everything should end up. How the group gets there
is `handover`'s to decide. In this order, a later point never at the expense of an earlier one:

1. Balance: active stateful load in proportion to capacity; stateless tasks level the total load.
2. The fewest moves.
3. The warmest destination; a warmup that runs keeps its goal while that is of use.
4. Even subtopologies; of equals, what has little state moves.
5. Standbys: apart from one another by tags, even, few new copies, one owner's spread over many seats.
6. The same answer to the same question, and no change to what is placed already.
"""

from __future__ import annotations

from collections.abc import Sequence

from batonpass.core.placement_actives import place_equal
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_restricted import place_restricted
from batonpass.core.placement_standbys import place_standbys
from batonpass.core.placement_stateless import place_stateless
from batonpass.core.placement_types import (
    NOBODY,
    LoadSpread,
    MoveReason,
    Placed,
    PlacementRequest,
    Ready,
    Seat,
    TaskTable,
    WaitReason,
    Warmth,
)
from batonpass.core.placement_weighted import place_weighted

__all__ = [
    "NOBODY",
    "LoadSpread",
    "MoveReason",
    "Placed",
    "PlacementRequest",
    "Ready",
    "Seat",
    "TaskTable",
    "WaitReason",
    "Warmth",
    "place",
]


def place(request: PlacementRequest) -> Placed:
    """Return where every task belongs.

    The answer depends on the request alone, and placing what is placed already changes nothing.
    """
    draft = Draft(request)
    before = _load(draft, request.home, draft.home_count())
    fewest = 0
    if draft.open:
        fewest = _place_stateful(draft)
    else:
        _stay(draft)
    draft.stateful = draft.actives = draft.owner_count()
    load = _load(draft, draft.owner, draft.stateful)
    after = _spread(draft, load)
    if request.table.stateless_ranks:
        if draft.open:
            place_stateless(draft, load)
        draft.actives = draft.count(draft.owner)
    standbys, short = place_standbys(draft)
    why = _reasons(draft)
    stateful = request.table.stateful
    moves = sum(1 for rank in why if stateful[rank])
    return Placed(
        owner=draft.owner,
        standbys=standbys,
        waiting=draft.waiting,
        short=short,
        why=why,
        moves=moves,
        # With limits and topology epochs at once the bound counts on places that the epochs may rule out.
        lower_bound=min(fewest, moves) if draft.restricted else fewest,
        before=_spread(draft, before),
        after=after,
    )


def _load(draft: Draft, seats: Sequence[int], counts: Sequence[int]) -> list[float]:
    """Return the stateful load per seat, where the tasks are on these seats (per rank), so many on each."""
    table = draft.request.table
    if table.uniform:
        weight = table.stateful_weights[0] if table.stateful_weights else 0.0
        return [count * weight for count in counts]
    return draft.weigh(draft.pick(seats, stateful=True))


def _spread(draft: Draft, load: Sequence[float]) -> LoadSpread:
    levels = [load[seat] / draft.capacity[seat] for seat in draft.open]
    return LoadSpread(max(levels, default=0.0), min(levels, default=0.0))


def _place_stateful(draft: Draft) -> int:
    if not draft.request.table.uniform:
        return place_weighted(draft)
    return place_restricted(draft) if draft.restricted else place_equal(draft)


def _stay(draft: Draft) -> None:
    """Leave everything where it is, since nobody may be given anything; what nobody has waits."""
    for rank, home in enumerate(draft.request.home):
        bound = draft.request.bound.get(rank, home)
        draft.owner[rank] = bound
        if bound == NOBODY:
            draft.wait(rank, WaitReason.NO_ELIGIBLE_MEMBER)


def _reasons(draft: Draft) -> dict[int, MoveReason]:
    """Say of each task whose target is not its home why that is so."""
    request = draft.request
    home, owner, closed = request.home, draft.owner, draft.closed
    overfull: set[int] = set()
    if draft.limited:
        overfull.update(seat for seat, count in enumerate(draft.count(home)) if count > draft.limit[seat])
    why: dict[int, MoveReason] = {}
    if list(home) == owner:
        return why
    for rank in [rank for rank, pair in enumerate(zip(home, owner, strict=True)) if pair[0] != pair[1]]:
        source, target = home[rank], owner[rank]
        if target != NOBODY:
            if rank in request.bound:
                why[rank] = MoveReason.PINNED
            elif source == NOBODY:
                why[rank] = MoveReason.NO_OWNER
            elif closed[source]:
                why[rank] = MoveReason.DRAIN
            elif rank in draft.gave_way:
                why[rank] = MoveReason.TOPOLOGY
            else:
                why[rank] = MoveReason.MAX_TASKS if source in overfull else MoveReason.BALANCE
    return why
