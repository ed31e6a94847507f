"""A failing world made smaller, for as long as the same law breaks: fewer events, faults, members and partitions."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from batonpass.simulate.plan import WireFaults, WorldPlan
from batonpass.simulate.run import Outcome, run_world
from batonpass.simulate.seeds import draw


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What to leave out of the world of a seed. None leaves everything in.

    Attributes:
        only: the numbers of the events that happen.
        members: how many of the workers there are.
        partitions: the most partitions of a subtopology.
        whole_wire: nothing is lost, doubled or late.
    """

    only: tuple[int, ...] | None = None
    members: int | None = None
    partitions: int | None = None
    whole_wire: bool = False

    def of(self, seed: int) -> WorldPlan:
        """Return the world of the seed without what is left out."""
        plan = draw(seed)
        parts, most = plan.topology.subtopologies, self.partitions
        if most is not None:
            parts = tuple(replace(one, partitions=min(one.partitions or most, most)) for one in parts)
        return replace(
            plan,
            topology=replace(plan.topology, subtopologies=parts),
            workers=plan.workers[: self.members],
            wire=WireFaults() if self.whole_wire else plan.wire,
            events=tuple(one for one in plan.events if self.only is None or one.number in self.only),
        )

    def options(self) -> str:
        """Return the command line options that leave out the same."""
        parts = []
        if self.only is not None:
            parts.append(f"--only {','.join(map(str, self.only)) or 'none'}")
        if self.members is not None:
            parts.append(f"--members {self.members}")
        if self.partitions is not None:
            parts.append(f"--partitions {self.partitions}")
        if self.whole_wire:
            parts.append("--whole-wire")
        return " ".join(parts)


def replay_command(seed: int, narrowing: Narrowing) -> str:
    """Return the one command that runs a world again and shows everything that happens in it."""
    return " ".join(part for part in (f"batonpass simulate --seed {seed}", narrowing.options(), "--trace") if part)


def shrink(outcome: Outcome, *, run: Callable[[WorldPlan], Outcome] | None = None) -> tuple[Narrowing, Outcome]:
    """Return the smallest world found in which the same law breaks in the same way, and how it breaks there.

    The faults of the wire are left out first, as their absence says most; then events, then members and tasks. ``run``
    runs a world; another function may be given to observe the search itself.
    """
    seed, wanted = outcome.plan.seed, _way(outcome)
    most_steps = 4 * outcome.steps + 2_000
    run = run or (lambda scenario: run_world(scenario, most_steps=most_steps))
    best, shown = Narrowing(), outcome

    def still_breaks(candidate: Narrowing) -> bool:
        nonlocal best, shown
        found = run(candidate.of(seed))
        if not found.failed or _way(found) != wanted:
            return False
        best, shown = candidate, found
        return True

    still_breaks(replace(best, whole_wire=True))
    _drop_events(tuple(event.number for event in outcome.plan.events), lambda: best, still_breaks)
    for members in range(1, len(outcome.plan.workers)):
        if still_breaks(replace(best, members=members)):
            break
    for partitions in (1, 2, 3):
        if still_breaks(replace(best, partitions=partitions)):
            break
    return best, shown


def _way(outcome: Outcome) -> tuple[str, str]:
    """Return the law that broke first and how, without names and numbers, which differ in a smaller world."""
    first = outcome.violations[0]
    return first.law, " ".join(word for word in first.detail.split() if not any(map(str.isdigit, word)))


def _drop_events(
    numbers: tuple[int, ...], best: Callable[[], Narrowing], still_breaks: Callable[[Narrowing], bool]
) -> None:
    """Leave out ever smaller runs of events, beginning with all of them, as long as the law breaks without them."""
    size = len(numbers)
    while size:
        at = 0
        while at < len(numbers):
            kept = numbers[:at] + numbers[at + size :]
            if still_breaks(replace(best(), only=kept)):
                numbers = kept
            else:
                at += size
        size //= 2
