"""A story that a search has found, told with what the coordinators decided on the way."""

from collections.abc import Iterator

from tests.core.transcripts.words import lines_of
from tests.explorer.moves import after, moves
from tests.explorer.search import Found, to_rest
from tests.explorer.world import LawBroken, World


def told(world: World, found: Found) -> Iterator[str]:
    """Yield the lines of a story from the world in which it begins: the moves, and what each led to."""
    for words in found.story:
        yield words
        world.budget = {**world.budget, **to_rest(world)}
        try:
            world = after(world, next(move for move in moves(world) if move.words == words))
        except LawBroken:
            break
        for happened in world.happened:
            yield from (f"    {line}" for line in lines_of(happened, brief=True))
    yield f"BROKEN {found.detail}"
