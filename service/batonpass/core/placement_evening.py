"""The last touch to even subtopologies: tasks change places with tasks of other subtopologies, at no cost in moves.

The exchange goes pair by pair and can end with a subtopology that is uneven by more than one task although another
choice would not. Every seat can *swap*: run one task less of a subtopology and one more of another, by getting another
task than it got, or by giving another task than it gave. A round of swaps, of this subtopology for that, of that for a
third and of the third for the first, leaves every count of tasks as it is. A round that lowers the price is a negative
cycle among the subtopologies, and is found as such (Bellman and Ford).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from batonpass.core.placement_evenness import Evenness
from batonpass.core.placement_exchange import Exchange
from batonpass.core.placement_types import NOBODY

# What may be looked at: swaps, counted one by one.
_EFFORT: Final = 100_000
_TINY: Final = 1e-9


class Swap(NamedTuple):
    """One seat runs one task less of a subtopology, and the same or another seat runs one more of another.

    Attributes:
        price: how much further from even that leads; below zero where it levels.
        loser: the seat that runs one less.
        winner: the seat that runs one more.
    """

    price: float
    loser: int
    winner: int


class Cells:
    """Which tasks may still change places: per seat and subtopology, those it could give, has given, or has got."""

    __slots__ = ("exchange", "gave", "got", "owner", "subtopology", "yet")

    def __init__(self, exchange: Exchange, subtopology: Sequence[int], cold: Sequence[int]) -> None:
        self.exchange = exchange
        self.owner = exchange.owner
        self.subtopology = subtopology
        self.yet: dict[tuple[int, int], list[int]] = {}
        self.gave: dict[tuple[int, int], list[int]] = {}
        self.got: dict[tuple[int, int], list[int]] = {}
        for seat, pool in exchange.pools.items():
            for rank in pool:
                if rank not in exchange.moved:
                    self.yet.setdefault((seat, subtopology[rank]), []).append(rank)
        for rank in cold:
            self.got.setdefault((self.owner[rank], subtopology[rank]), []).append(rank)
            if exchange.moved[rank] != NOBODY:
                self.gave.setdefault((exchange.moved[rank], subtopology[rank]), []).append(rank)

    def place(self, rank: int, seat: int) -> None:
        """Put a task that moves on a seat."""
        self.owner[rank] = seat
        self.got.setdefault((seat, self.subtopology[rank]), []).append(rank)

    def release(self, loser: int, subtopology: int) -> int:
        """Take a task from a seat, one that it got or, from a giver, one that it has not given yet."""
        got = self.got.get((loser, subtopology))
        if got:
            return got.pop()
        rank = self.yet[loser, subtopology].pop()
        self.gave.setdefault((loser, subtopology), []).append(rank)
        self.exchange.moved[rank] = loser
        return rank

    def fill(self, winner: int, subtopology: int, token: int) -> None:
        """Let the winner run one more task of the subtopology, the token being a task of it that is on its way.

        A taker gets it. A giver takes back one that it gave: the token itself, or another one, whose place the token
        then takes.
        """
        if winner not in self.exchange.pools:
            self.place(token, winner)
            return
        gave = self.gave[winner, subtopology]
        rank = next((rank for rank in gave if rank != token), token)
        gave.remove(rank)
        seat = self.owner[rank]
        if rank != token:
            self.got[seat, subtopology].remove(rank)
            self.place(token, seat)
        del self.exchange.moved[rank]
        self.owner[rank] = winner
        self.yet.setdefault((winner, subtopology), []).append(rank)


class Evening:
    """Rounds of swaps, as long as some subtopology is uneven by more than one task and a round lowers the price."""

    __slots__ = ("cells", "effort", "even", "gifts", "places")

    def __init__(self, even: Evenness, cells: Cells, gifts: Sequence[bool], places: Sequence[bool]) -> None:
        self.even = even
        self.cells = cells
        self.effort = _EFFORT
        exchange = cells.exchange
        # Of equal seats some gave, or took, one more and the others did not: seats, by whether they did.
        self.gifts = {seat: not exchange.may[seat] for seat, open_ in enumerate(gifts) if open_}
        self.places = {seat: not exchange.extra[seat] for seat, open_ in enumerate(places) if open_}

    def run(self) -> None:
        """Swap until nothing is uneven, or nothing lowers the price."""
        while self.effort > 0 and self._uneven():
            swaps = self._swaps()
            cycle = _cheapest_round(swaps, len(self.even.part))
            if not cycle or not self._swap(
                [swaps[step] for step in zip(cycle, [*cycle[1:], cycle[0]], strict=True)], cycle
            ):
                return

    def _uneven(self) -> bool:
        capacity = self.even.capacity
        for subtopology in range(len(self.even.part)):
            levels = [counts[subtopology] / capacity[seat] for seat, counts in self.even.counts.items()]
            if max(levels) - min(levels) > 1 + _TINY:
                return True
        return False

    def _swaps(self) -> dict[tuple[int, int], Swap]:
        """Return the cheapest swap of every subtopology for every other."""
        best: dict[tuple[int, int], Swap] = {}
        for step, swap in self._possible():
            self.effort -= 1
            if step not in best or swap < best[step]:
                best[step] = swap
        return best

    def _possible(self) -> Iterator[tuple[tuple[int, int], Swap]]:
        cells, even = self.cells, self.even
        kinds = range(len(even.part))
        gave = [cell for cell, ranks in cells.gave.items() if ranks and self.gifts.get(cell[0])]
        free = [(seat, wins) for seat, took in self.places.items() if not took for wins in kinds]
        takes_back, takes_more = self._cheapest(gave), self._cheapest(free)
        for seat, loses in [cell for held in (cells.got, cells.yet) for cell, ranks in held.items() if ranks]:
            out = even.price_out(seat, loses)
            is_giver = seat in cells.exchange.pools
            across: dict[int, tuple[float, int]] = {}
            if self.gifts.get(seat) is False:
                across = takes_back
            elif self.places.get(seat):
                across = takes_more
            for wins in kinds:
                if wins != loses and (not is_giver or cells.gave.get((seat, wins))):
                    yield (loses, wins), Swap(out + even.price_in(seat, wins), seat, seat)
            for wins, (price, other) in across.items():
                if wins != loses:
                    yield (loses, wins), Swap(out + price, seat, other)

    def _cheapest(self, winners: Sequence[tuple[int, int]]) -> dict[int, tuple[float, int]]:
        """Return per subtopology which of these seats would run one more of it at the least price."""
        best: dict[int, tuple[float, int]] = {}
        for seat, wins in winners:
            offer = (self.even.price_in(seat, wins), seat)
            best[wins] = min(best.get(wins, offer), offer)
        return best

    def _swap(self, swaps: Sequence[Swap], cycle: Sequence[int]) -> bool:
        """Carry a round out; return False if it would ask one seat for two things at once."""
        across = [seat for swap in swaps if swap.loser != swap.winner for seat in (swap.loser, swap.winner)]
        if len(set(across)) != len(across):
            return False
        tokens = [self.cells.release(swap.loser, loses) for swap, loses in zip(swaps, cycle, strict=True)]
        for index, swap in enumerate(swaps):
            after = (index + 1) % len(cycle)
            self.cells.fill(swap.winner, cycle[after], tokens[after])
            self.even.counts[swap.loser][cycle[index]] -= 1
            self.even.counts[swap.winner][cycle[after]] += 1
            if swap.loser != swap.winner:
                flags = self.gifts if swap.loser in self.gifts else self.places
                flags[swap.loser], flags[swap.winner] = flags[swap.winner], flags[swap.loser]
        return True


def _cheapest_round(swaps: dict[tuple[int, int], Swap], kinds: int) -> list[int]:
    """Return subtopologies in the order of a round of swaps that costs less than nothing; empty, if there is none."""
    cost = [0.0] * kinds
    came = [NOBODY] * kinds
    last = NOBODY
    for _ in range(kinds):
        last = NOBODY
        for (loses, wins), swap in swaps.items():
            if cost[loses] + swap.price < cost[wins] - _TINY:
                cost[wins] = cost[loses] + swap.price
                came[wins] = loses
                last = wins
    if last == NOBODY:
        return []
    for _ in range(kinds):
        last = came[last]
    found = [last]
    while came[found[-1]] != last:
        found.append(came[found[-1]])
    return found[::-1]
