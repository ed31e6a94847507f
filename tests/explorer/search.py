"""Every world that can be reached from one, breadth first, so that what breaks a law is told by a shortest story."""

from dataclasses import dataclass, field, replace

from tests.explorer.likeness import Likeness
from tests.explorer.moves import TIME, after, moves
from tests.explorer.world import LawBroken, World

from batonpass.core.handover.probing import is_at_rest
from batonpass.core.handover.view import View
from batonpass.invariants import Violation
from batonpass.worker.protocol import Phase

STEPS_TO_REST = 400


@dataclass(slots=True)
class Found:
    """How many worlds there are, how many ways between them, and how far the last one is from the first.

    ``story`` is empty if every law holds; else it is the words of the moves, and ``law`` the one that broke.
    """

    states: int = 0
    ways: int = 0
    depth: int = 0
    law: str = ""
    detail: str = ""
    story: list[str] = field(default_factory=list)

    def broken(self, by: LawBroken, story: list[str]) -> "Found":
        """Return this with a law that broke, and the story that led to it."""
        return replace(self, law=by.law, detail=str(by), story=[*story, *by.way])

    @property
    def numbers(self) -> list[int]:
        """What is written down of a search that found nothing wrong."""
        return [self.states, self.ways, self.depth]


def explore(root: World) -> Found:
    """Go every way from a world, up to the first law that breaks.

    What breaks a law on the way to rest may have a shorter story, so the search goes on for as long as it may find it.
    """
    like, resting = Likeness(), set[int]()
    rest_key, first = _key(like, root)
    came: dict[int, tuple[int, str]] = {first: (0, "")}
    found, on_the_way, layer = Found(states=1), Found(), [(first, rest_key, root)]
    while layer and (not on_the_way.law or found.depth < len(on_the_way.story)):
        following: list[tuple[int, int, World]] = []
        for key, rest_key, world in layer:
            if not on_the_way.law:
                try:
                    check_rest(world, like, resting, rest_key)
                except LawBroken as broken:
                    on_the_way = found.broken(broken, _story(came, key))
            for move in moves(world):
                try:
                    child = after(world, move)
                except LawBroken as broken:
                    return found.broken(broken, [*_story(came, key), move.words])
                found.ways += 1
                child_rest_key, child_key = _key(like, child)
                if child_key not in came:
                    came[child_key] = (key, move.words)
                    following.append((child_key, child_rest_key, child))
        found.states, found.depth = len(came), found.depth + bool(following)
        layer = following
        like.known.clear()
    return on_the_way if on_the_way.law else found


def _key(like: Likeness, world: World) -> tuple[int, int]:
    """Return the key of a world by itself, and with what may still go wrong."""
    key = like.key(world)
    return key, hash((key, *world.budget.values()))


def _story(came: dict[int, tuple[int, str]], key: int) -> list[str]:
    story: list[str] = []
    while came[key][1]:
        key, words = came[key]
        story.append(words)
    return story[::-1]


def to_rest(world: World) -> dict[str, int]:
    """Return what a group may need in order to rest: time, and that its drains are called off."""
    return {TIME: 1, **{f"{name} stays": 1 for name in world.workers}}


def check_rest(world: World, like: Likeness, resting: set[int], key: int) -> World:
    """Check that the group comes to rest from here if nothing more goes wrong (L9). Return the world at rest.

    It goes the first way that leads to another world than before: time passes where nothing else is left to do, and
    a drain is called off where that does not help either. ``resting`` are worlds from which this was seen already.
    """
    path: dict[int, str] = {}
    if key not in resting:
        world = world.copy()
        world.budget = to_rest(world)
    while key not in resting and not is_resting(world):
        path[key] = ""
        for move in moves(world):
            try:
                child = after(world, move)
            except LawBroken as broken:
                broken.way = [*filter(None, path.values()), move.words]
                raise
            child.budget = world.budget
            child_key = like.key(child)
            if child_key not in path:
                path[key] = move.words
                world, key = child, child_key
                break
        if key in path or len(path) > STEPS_TO_REST:
            restless = LawBroken([Violation("L9", f"no rest; unsettled: {dict(world.leader.group.unsettled)}")])
            restless.way = [words for words in path.values() if words]
            raise restless
    resting |= {*path, key}
    return world


def is_resting(world: World) -> bool:
    """Say whether the group is at rest, and every worker has what the group thinks that it has."""
    leader = world.leader
    under_way = [each for each in world.wire if not each.is_open_poll_of(each.worker)]
    if under_way or not is_at_rest(View(leader.group, leader.soft, world.now_ms)):
        return False
    machines = [worker.machine for worker in world.workers.values() if worker.machine or not worker.left]
    if any(machine is None or machine.phase is not Phase.JOINED for machine in machines):
        return False
    held = {
        machine.member_id: {task: holding.role.value for task, holding in machine.holdings.items()}
        for machine in machines
        if machine is not None
    }
    return held == {
        member.id: {task: grant.role.value for task, grant in member.assignment.items()}
        for member in leader.group.members.values()
    }
