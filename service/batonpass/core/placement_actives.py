"""Target owners of tasks that all weigh the same: whole numbers, and exactly the fewest moves that reach them.

First every seat's count is settled, floor or ceiling of its quota, so that as many tasks as possible can stay. Then
those that have no owner and those above the count are exchanged: moves under way first, then to where they are warmest,
then as it suits the subtopologies. Nothing that is decided later changes a count, so nothing later can cost a move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from batonpass.core.placement_bounds import Quotas, most_kept, quotas
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_exchange import Exchange, go_where_warm, keep_under_way
from batonpass.core.placement_spread import Spread, deal
from batonpass.core.placement_types import NOBODY, Ready, WaitReason, Warmth


@dataclass(frozen=True, slots=True)
class Held:
    """What the open seats have of one kind of tasks before anything moves.

    Attributes:
        ranks: the tasks of the kind.
        homes: their homes, in the same order.
        bound: per seat, the tasks that must be there.
        free: per seat, the tasks that are there and may stay or go; 0 for closed seats.
        homeless: the tasks that no open seat has.
        forced: moves that are decided already, because the task is bound to another seat than its home.
    """

    ranks: Sequence[int]
    homes: Sequence[int]
    bound: list[int]
    free: list[int]
    homeless: list[int]
    forced: int

    def total(self, seat: int) -> int:
        """Return how many of the tasks the seat has, if nothing moves but what must."""
        return self.bound[seat] + self.free[seat]


def take_stock(draft: Draft, ranks: Sequence[int], *, stateful: bool) -> Held:
    """Count who has what, and write what is bound into the draft."""
    homes = draft.pick(draft.request.home, stateful=stateful)
    free = draft.home_count() if stateful else draft.count(homes)
    bound = [0] * len(free)
    forced = 0
    request = draft.request
    for rank, seat in sorted(request.bound.items()):
        if request.table.stateful[rank] == stateful:
            home = request.home[rank]
            if home != NOBODY:
                free[home] -= 1
            bound[seat] += 1
            forced += home != seat
            draft.owner[rank] = seat
    closed = draft.closed
    homeless = [rank for rank, home in zip(ranks, homes, strict=True) if closed[home]]
    if request.bound:
        homeless = [rank for rank in homeless if rank not in request.bound]
    if draft.restricted:
        homeless = [rank for rank in homeless if draft.may_be_placed(rank)]
    for seat, count in enumerate(free):
        free[seat] = 0 if closed[seat] else count
    return Held(ranks, homes, bound, free, homeless, forced)


def place_equal(draft: Draft) -> int:
    """Give every stateful task a target, all of them weighing the same.

    Returns:
        The fewest moves that any placement with these counts needs.
    """
    held = take_stock(draft, draft.request.table.stateful_ranks, stateful=True)
    held.homeless[:] = fit(draft, held, stateless_running(draft))
    have = [held.total(seat) for seat in draft.open]
    quota = settle(draft, held)
    fewest = held.forced + sum(have) + len(held.homeless) - most_kept(quota, have)
    exchange = open_exchange(draft, held, quota)
    if exchange.left:
        conclude(draft, exchange, held)
    give_up(draft, exchange)
    return fewest


def stateless_running(draft: Draft) -> list[int]:
    """Return the slots per seat that running stateless tasks take: they are not stopped to start others."""
    if not draft.limited:
        return [0] * len(draft.capacity)
    bound = draft.request.bound
    if not bound:
        return draft.count(draft.pick(draft.request.home, stateful=False))
    homes = draft.request.home
    return draft.count([bound.get(rank, homes[rank]) for rank in draft.request.table.stateless_ranks])


def give_up(draft: Draft, exchange: Exchange) -> None:
    """Let wait what is beyond a seat's limit and found no other seat, little state first."""
    size = draft.request.state_size
    for seat, pool in exchange.pools.items():
        if exchange.must[seat]:
            rest = sorted((size(rank), rank) for rank in pool if rank not in exchange.moved)
            for _, rank in rest[: exchange.must[seat]]:
                draft.wait(rank, WaitReason.NO_CAPACITY)


def fit(draft: Draft, held: Held, others: Sequence[int]) -> list[int]:
    """Return the homeless tasks that find a slot, the warmest first where there are too few; the others wait.

    Args:
        draft: what is being placed.
        held: the tasks of one kind.
        others: per seat, the slots that tasks of the other kind take.
    """
    if not draft.limited or not held.homeless:
        return held.homeless
    seats = draft.request.seats
    need = draft.request.table.topology_epoch
    free = {seat: draft.limit[seat] - held.total(seat) - others[seat] for seat in draft.open}
    # Seats that may take a task may take every older one too: what asks for an epoch, or a newer one, has to fit there.
    room = {
        epoch: sum(count for seat, count in free.items() if seats[seat].topology_epoch >= epoch)
        for epoch in sorted({need[rank] for rank in held.homeless})
    }
    if not draft.restricted and len(held.homeless) <= sum(free.values()):
        return held.homeless
    fitting: list[int] = []
    for rank in sorted(held.homeless, key=partial(_coldness, draft)):
        levels = [epoch for epoch in room if epoch <= need[rank]]
        if all(room[epoch] > 0 for epoch in levels):
            fitting.append(rank)
            for epoch in levels:
                room[epoch] -= 1
        else:
            draft.wait(rank, WaitReason.NO_CAPACITY)
    return sorted(fitting)


def _coldness(draft: Draft, rank: int) -> tuple[int, int, int]:
    nothing = Warmth(int(Ready.NOTHING), 0)
    there = [known for seat, known in draft.request.warmth(rank).items() if not draft.closed[seat]]
    best = min([nothing, *there])
    return best.ready_class, best.lag, rank


def settle(draft: Draft, held: Held) -> Quotas:
    """Divide the tasks over the open seats; what is bound stays, and in a pause everything does."""
    least, most = [], []
    for seat in draft.open:
        limit = max(draft.stateful_limit[seat], held.bound[seat])
        least.append(min(held.total(seat), limit) if draft.request.balance_held else held.bound[seat])
        most.append(limit)
    count = sum(held.total(seat) for seat in draft.open) + len(held.homeless)
    count = min(count, sum(most))
    return quotas([draft.share[seat] for seat in draft.open], least, most, count)


def open_exchange(draft: Draft, held: Held, quota: Quotas) -> Exchange:
    """Set out who gives and who takes, so that as many tasks as possible stay.

    The ceilings go to seats that have more than their floor. Where there are more such seats than ceilings, which of
    them gives one more is left open among equal capacities, and where there are fewer, which of the others takes one
    more: for the exchange to choose, where tasks are warm.
    """
    seats = len(draft.capacity)
    must, room = [0] * seats, [0] * seats
    may, extra = [False] * seats, [False] * seats
    keepers = 0
    for index, seat in enumerate(draft.open):
        have, floor = held.total(seat), quota.floors[index]
        keeps_more = quota.fractional[index] and have > floor
        keepers += keeps_more
        may[seat] = keeps_more
        extra[seat] = quota.fractional[index] and not keeps_more
        must[seat] = max(0, have - floor - keeps_more)
        room[seat] = max(0, floor - have)
    spare, spare_room = max(0, keepers - quota.ceilings), max(0, quota.ceilings - keepers)
    exchange = Exchange(
        owner=draft.owner,
        homeless=held.homeless,
        pools={},
        must=must,
        may=may,
        spare=spare,
        room=room,
        extra=extra,
        spare_room=spare_room,
        fixed=draft.request.bound,
        kind=draft.request.table.stateful,
        stateful=True,
        have=[held.total(seat) for seat in range(seats)],
    )
    if draft.request.warming:
        # A ceiling that was dealt to the destination of a warmup stays there. Who gives one more, or takes one more, is
        # open here, so this costs neither a move nor balance.
        aimed = destinations(draft, held)
        above = {seat: aimed[seat] > floor for seat, floor in zip(draft.open, quota.floors, strict=True)}
        exchange.narrow_gifts(lambda seat: float(above[seat]))
        exchange.narrow_room(lambda seat: float(not above[seat]))
    # What a ceiling weighs differs between capacities: the lowest load per capacity gets it, the highest goes without.
    ceiling = {seat: (floor + 1) / draft.capacity[seat] for seat, floor in zip(draft.open, quota.floors, strict=True)}
    exchange.narrow_gifts(lambda seat: -ceiling[seat])
    exchange.narrow_room(lambda seat: ceiling[seat])
    exchange.pools = {seat: [] for seat in draft.open if exchange.gives(seat)}
    if exchange.pools:
        fill_pools(exchange.pools, held, draft.request.bound)
    return exchange


def destinations(draft: Draft, held: Held) -> list[int]:
    """Return how many of the tasks each seat has if every warmup that runs is counted where it is going."""
    request = draft.request
    aimed = [held.total(seat) for seat in range(len(draft.capacity))]
    for rank, target in request.warming.items():
        if request.table.stateful[rank] and rank not in request.bound and not draft.closed[target]:
            aimed[target] += 1
            home = request.home[rank]
            if not draft.closed[home]:
                aimed[home] -= 1
    return aimed


def fill_pools(pools: dict[int, list[int]], held: Held, bound: Mapping[int, int]) -> None:
    """List for each giving seat the tasks that it may choose from."""
    for rank, home in zip(held.ranks, held.homes, strict=True):
        if home in pools:
            pools[home].append(rank)
    if bound:
        for seat, pool in pools.items():
            pools[seat] = [rank for rank in pool if rank not in bound]


def conclude(draft: Draft, exchange: Exchange, held: Held) -> None:
    """Exchange everything: moves under way, warm copies, and then as it suits the subtopologies."""
    request = draft.request
    keep_under_way(exchange, request, request.warming)
    unknown = go_where_warm(exchange, request)
    keep_under_way(exchange, request, request.previous)
    if not exchange.left:
        return
    # Of those that would end equal, whoever has nothing yet comes first: a newcomer gets what somebody left.
    exchange.narrow_room(lambda seat: float(held.total(seat) > 0))
    if request.table.stateless_ranks:
        # Where more stateless tasks run, a stateful one less saves one of them from moving.
        others = draft.count(draft.pick(request.home, stateful=False))
        exchange.narrow_gifts(lambda seat: -others[seat] / draft.capacity[seat])
        exchange.narrow_room(lambda seat: others[seat] / draft.capacity[seat])
    empty = not any(held.total(seat) for seat in draft.open) and not unknown
    if empty and deal(exchange, draft.capacity):
        return
    even = Evenness(request.table, draft.owner, draft.open, draft.capacity)
    Spread(exchange, even, request, unknown).run()
