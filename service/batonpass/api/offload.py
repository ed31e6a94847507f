"""Long reads run in a thread, so that reading a large group does not delay heartbeats.

Groups and soft state are immutable, so any thread can read them. Dry runs, which may take many seconds, have a thread
of their own.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from batonpass.api.context import context_of
from batonpass.api.turns import Offload
from batonpass.codec.answers import to_json
from batonpass.core.state.model import Group

T = TypeVar("T")

AT_ONCE_MAX: Final = 500
"""How many tasks and members may be looked at on the event loop itself: work of some milliseconds."""


async def aside(request: Request, size: int | None, work: Callable[[], T], *, is_owed: bool = False) -> T:
    """Return what ``work`` returns, which looks at about ``size`` tasks and members (None: a dry run).

    If that is many it is done beside the event loop, where it has to be let in unless it ``is_owed`` (``Offload.do``).

    Raises:
        LimitExceeded: when too many long reads wait (429).
        Disconnected: when the caller disconnected before it was done.
    """
    if size is not None and size <= AT_ONCE_MAX:
        return work()
    context, state = context_of(request), request.app.state
    offload: Offload = state.reads if size is not None else state.dry_runs
    return await context.unless_gone(offload.do(context.who, work, is_owed=is_owed))


async def show(
    request: Request,
    size: int | None,
    work: Callable[[], object],
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
    is_owed: bool = False,
) -> Response:
    """Answer with the JSON of what ``work`` returns; otherwise as ``aside``.

    Raises:
        ProtocolError: as ``work`` does.
        LimitExceeded, Disconnected: as ``aside`` does.
    """
    content = await aside(request, size, lambda: to_json(work()), is_owed=is_owed)
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def size_of(group: Group) -> int:
    """Return how many tasks, members and topics a read of the whole group looks at."""
    parts = group.topology.subtopologies
    topics = sum(1 + len(part.source_topics) + len(part.changelog_topics) for part in parts)
    return len(group.table.ids) + len(group.members) + topics
