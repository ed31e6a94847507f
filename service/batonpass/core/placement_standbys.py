"""Target standbys: apart by tags, level, few new copies, one owner's spread over many seats.

What is there and may stay does. Tasks that lack copies, or whose copies tags want further apart, are filled up one by
one from the lowest seats. What the seats hold is levelled afterwards (`placement_levelling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from batonpass.core.placement_copies import Standbys
from batonpass.core.placement_dealing import deal_standbys
from batonpass.core.placement_draft import Draft
from batonpass.core.placement_levelling import level_standbys
from batonpass.core.placement_paths import fill_by_paths
from batonpass.core.placement_tags import Tags
from batonpass.core.placement_types import NO_STATE, NOBODY, Ready, Warmth, stock

_ROUNDS: Final = 8


def place_standbys(draft: Draft) -> tuple[list[tuple[int, ...]], dict[int, int]]:
    """Return the target standbys of every task, and how many of them each short task lacks."""
    request = draft.request
    ranks: Sequence[int] = request.table.stateful_ranks
    wanted = request.num_standby_replicas
    copies = list(request.standbys)
    if not draft.open:
        # Nothing moves, but no more copies are wanted than the group asks for now.
        return [_warmest(draft, rank, held) for rank, held in enumerate(copies)], {}
    for rank in (*request.table.stateless_ranks, *draft.waiting):
        copies[rank] = ()
    if draft.waiting:
        ranks = [rank for rank in ranks if rank not in draft.waiting]
    if len(draft.open) == 1:
        # Who runs a task alone has nobody to stand by.
        alone = draft.open[0]
        copies = [() if owner == alone else held for owner, held in zip(draft.owner, copies, strict=True)]
    tags = Tags(request.seats, draft.open, request.rack_aware_tags)
    board = Standbys(draft, tags, copies, ranks)
    if wanted and not any(board.count) and stock(request, draft.open, 0) == {}:
        deal_standbys(board, ranks)
    # Without limits one round does it. With them, levelling may open a slot that tags have wanted.
    limited = draft.limited
    for _ in range(_ROUNDS if limited else 1):
        before = list(board.copies) if limited else []
        _shed(board, ranks)
        _complete(board, ranks, limited=limited)
        if wanted:
            level_standbys(board, ranks)
        for rank in board.touched:
            board.copies[rank] = tuple(sorted(board.copies[rank]))
        if board.copies == before:
            break
    return board.copies, _short(board, ranks)


def _warmest(draft: Draft, rank: int, held: tuple[int, ...]) -> tuple[int, ...]:
    """Return the standbys that a task keeps where nobody may be given anything: as many as are wanted."""
    request, others = draft.request, tuple([seat for seat in held if seat != draft.owner[rank]])
    wanted = request.num_standby_replicas if request.table.stateful[rank] else 0
    if len(others) <= wanted:
        return others
    warmth = request.warmth(rank)
    ranked = sorted((warmth.get(seat, NO_STATE), seat) for seat in others)
    return tuple(sorted([seat for _, seat in ranked[:wanted]]))


def _short(board: Standbys, ranks: Sequence[int]) -> dict[int, int]:
    """Return how many standbys each task lacks."""
    copies, wanted = board.copies, board.wanted
    if sum(board.count) == wanted * len(ranks):
        return {}
    return {rank: wanted - len(copies[rank]) for rank in ranks if len(copies[rank]) < wanted}


def _complete(board: Standbys, ranks: Sequence[int], *, limited: bool) -> None:
    """Fill up the unfinished tasks, one owner's after another's."""
    owner = board.owner
    if len(board.draft.open) == 1 and not any(board.count):
        return
    missing = _unfinished(board, ranks, board.wanted)
    # Tasks of which there is state that nobody tails go first, as long as those seats are low.
    first = _with_spare_state(board, missing)
    missing.sort(key=lambda rank: (rank not in first, owner[rank], rank))
    changed = True
    while changed and missing:
        before = sum(board.count)
        for rank in missing:
            _fill(board, rank, board.wanted)
        missing = [rank for rank in missing if len(board.copies[rank]) < board.wanted]
        # Where limits bind, a task may find a slot that another one has left since.
        changed = limited and sum(board.count) != before
    if limited:
        fill_by_paths(board, ranks, missing)


def _with_spare_state(board: Standbys, missing: Sequence[int]) -> set[int]:
    """Return the tasks of which a seat has state that is neither their target owner nor one of their standbys."""
    request, owner, copies = board.draft.request, board.owner, board.copies
    stocked = stock(request, board.draft.open, len(missing))
    if stocked is not None:
        pairs = ((rank, seat) for seat, ranks in stocked.items() for rank in ranks)
    else:
        pairs = ((rank, seat) for rank in missing for seat in request.seats_with_state(rank))
    return {rank for rank, seat in pairs if seat != owner[rank] and seat not in copies[rank]}


def _unfinished(board: Standbys, ranks: Sequence[int], wanted: int) -> list[int]:
    """Return the tasks whose copies cannot stay as they are."""
    copies, owner, closed = board.copies, board.owner, board.draft.closed
    most = min(wanted, len(board.draft.open) - 1)
    every = len(ranks) == len(copies)
    all_held = copies if every else [copies[rank] for rank in ranks]
    owners = owner if every else [owner[rank] for rank in ranks]
    unfinished = [
        rank for rank, one, held in zip(ranks, owners, all_held, strict=True) if len(held) != most or one in held
    ]
    suspects: set[int] = set()
    if any(closed[:-1]):
        suspects.update(rank for rank in ranks if any(closed[seat] for seat in copies[rank]))
    if board.tags.kinds > 1:
        suspects.update(_too_close(board, ranks, owners, all_held))
    if board.epochs:
        epoch = board.draft.request.table.topology_epoch
        suspects.update(rank for rank in ranks if any(board.epochs[seat] < epoch[rank] for seat in copies[rank]))
    if not suspects:
        return unfinished
    return sorted(suspects.union(unfinished))


def _too_close(
    board: Standbys, ranks: Sequence[int], owners: Sequence[int], held: Sequence[tuple[int, ...]]
) -> list[int]:
    """Return the tasks whose copies tags want further apart. Of tasks on the same kinds of seats one is judged."""
    kind = board.tags.kind
    on_kinds = [kind[seat] for seat in owners]
    beside: list[tuple[int, ...]]
    if board.wanted == 1:
        alone = [(one,) for one in kind]
        beside = [
            alone[seats[0]] if len(seats) == 1 else tuple(sorted([kind[seat] for seat in seats])) for seats in held
        ]
    else:
        beside = [tuple(sorted([kind[seat] for seat in seats])) for seats in held]
    close = {key for key in set(zip(on_kinds, beside, strict=True)) if not board.tags.apart(*key)}
    if not close:
        return []
    return [rank for rank, key in zip(ranks, zip(on_kinds, beside, strict=True), strict=True) if key in close]


def _shed(board: Standbys, ranks: Sequence[int]) -> None:
    """Drop what goes beyond a seat's limit, warmest copies first."""
    full = {seat for seat in board.draft.open if board.slots[seat] < 0}
    if not full:
        return
    state_at = board.draft.request.state_at
    held = [(seat, rank) for rank in ranks for seat in board.copies[rank] if seat in full]
    for _, _, rank, seat in sorted(
        (seat, tuple(-part for part in state_at(rank, seat)), rank, seat) for seat, rank in held
    ):
        if board.slots[seat] < 0:
            board.drop(rank, seat)


def _fill(board: Standbys, rank: int, wanted: int) -> None:
    """Give a task its copies: those that are there and may stay, then the given-up owner's, then new ones."""
    draft = board.draft
    for seat in board.copies[rank]:
        if not board.may_stay(rank, seat):
            board.drop(rank, seat)
    stay = board.copies[rank]
    wanted = min(wanted, len(board.draft.open) - (not board.draft.closed[board.owner[rank]]))
    if len(stay) > wanted or not board.apart(rank):
        for seat in stay:
            board.drop(rank, seat)
    home = draft.request.home[rank]
    spare = home if home != NOBODY and board.may_hold(rank, home) else NOBODY
    while len(board.copies[rank]) < wanted and board.with_slots:
        seat = _next(board, rank, stay, spare)
        if seat == NOBODY:
            break
        board.put(rank, seat)


def _next(board: Standbys, rank: int, stay: Sequence[int], spare: int) -> int:
    """Choose the seat of a task's next copy, among the best kinds that have one."""
    kind, slots = board.tags.kind, board.slots
    request = board.draft.request
    held = board.copies[rank]
    for tier in board.tiers(rank):
        there = [seat for seat in stay if kind[seat] in tier and seat not in held and slots[seat] > 0]
        if there:
            return min(there, key=lambda seat: (_class(request.state_at(rank, seat)), board.level(seat), seat))
        if spare != NOBODY and spare not in held and kind[spare] in tier and slots[spare] > 0:
            return spare
        warm = [
            (*request.state_at(rank, seat), seat)
            for seat in request.seats_with_state(rank)
            if seat not in held
            and kind[seat] in tier
            and slots[seat] > 0
            and board.is_low(seat)
            and board.may_stay(rank, seat)
        ]
        warmest = min(warm, default=None)
        if warmest is not None and warmest[0] < Ready.NOTHING:
            return warmest[2]
        seat = board.lowest(rank, tier)
        if seat != NOBODY:
            return seat
    return NOBODY


def _class(known: Warmth) -> tuple[int, int]:
    """Return how warm a copy is; all that are caught up are equally warm."""
    return (0, 0) if known.ready_class <= Ready.CAUGHT_UP else known
