"""Every world that can be reached from one, breadth first, so that what breaks a law is told by a shortest story."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.explorer.likeness import Likeness
from tests.explorer.moves import TIME, Move, after, moves
from tests.explorer.world import POLICY, LawBroken, World

from batonpass.core.invariants import Violation
from batonpass.core.probing import is_at_rest
from batonpass.core.view import View
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


def explore(root: World, *, progress: Callable[[Found], None] | None = None) -> Found:
    """Go every way from a world. Stop at the first law that breaks."""
    like, resting = Likeness(), set[int]()
    first = _key(like, root)[1]
    came: dict[int, tuple[int, str]] = {first: (0, "")}
    found, layer = Found(states=1), [(first, like.key(root), root)]
    while layer:
        following: list[tuple[int, int, World]] = []
        for key, rest_key, world in layer:
            words = ""
            try:
                check_rest(world, like, resting, rest_key)
                for move in moves(world):
                    words = move.words
                    child = after(world, move)
                    found.ways += 1
                    child_rest_key, child_key = _key(like, child)
                    if child_key not in came:
                        came[child_key] = (key, words)
                        following.append((child_key, child_rest_key, child))
            except LawBroken as broken:
                found.law, found.detail = broken.law, str(broken)
                found.story = [*_story(came, key), *([words] if words else [])]
                return found
        found.states, found.depth = len(came), found.depth + bool(following)
        layer = following
        like.known.clear()
        if progress:
            progress(found)
    return found


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


def check_rest(world: World, like: Likeness, resting: set[int], key: int) -> World:
    """Check that the group comes to rest from here if nothing more goes wrong (L9). Return the world at rest.

    It goes the first way that leads to another world than before; that time passes is the last of them. ``resting``
    are the worlds from which this was seen already.
    """
    path: set[int] = set()
    if key not in resting:
        world = world.copy()
        world.budget = {TIME: STEPS_TO_REST}
    while key not in resting and not is_resting(world):
        path.add(key)
        for move in moves(world):
            child = after(world, move)
            child.budget = world.budget
            key = like.key(child)
            if key not in path:
                world = child
                break
        if key in path or len(path) > STEPS_TO_REST:
            left = dict(world.leader.group.unsettled)
            raise LawBroken([Violation("L9", f"no rest; unsettled: {left}, after {len(path)} more moves")])
    resting |= {*path, key}
    return world


def is_resting(world: World) -> bool:
    """Say whether the group is at rest, and every worker has what the group thinks that it has."""
    leader = world.leader
    under_way = [each for each in world.wire if not each.is_open_poll_of(each.worker)]
    if under_way or not is_at_rest(View(leader.group, leader.soft, world.now_ms, POLICY)):
        return False
    for worker in world.workers.values():
        machine = worker.machine
        if machine is None and worker.left:
            continue
        if machine is None or machine.phase is not Phase.JOINED:
            return False
        member = leader.group.members.get(machine.member_id)
        if member is None or {task: grant.role for task, grant in member.assignment.items()} != {
            task: holding.role for task, holding in machine.holdings.items()
        }:
            return False
    return True
