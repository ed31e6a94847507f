"""Long reads run in a thread, so that reading a large group does not delay heartbeats.

Groups and soft state are immutable, so any thread can read them. One such read runs at a time: several would take turns
with each other and with the event loop, and none would be done sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.responses import Response

from batonpass.codec.answers import to_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from batonpass.core.model import Group

T = TypeVar("T")

AT_ONCE_MAX: Final = 500
"""How many tasks and members may be looked at on the event loop itself: work of some milliseconds."""


class Offload:
    """Runs one long read after the other in a thread."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def do(self, size: int | None, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which looks at about ``size`` tasks and members (None: unknown)."""
        if size is not None and size <= AT_ONCE_MAX:
            return work()
        async with self._turn:
            return await asyncio.to_thread(work)


def offload_of(request: Request) -> Offload:
    """Return what runs the long reads of the app."""
    offload: Offload = request.app.state.offload
    return offload


async def show(
    request: Request,
    size: int | None,
    work: Callable[[], object],
    *,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> Response:
    """Answer with the JSON of what ``work`` returns, which looks at about ``size`` tasks and members (None: unknown).

    Raises:
        ProtocolError: as ``work`` does.
    """
    content = await offload_of(request).do(size, lambda: to_json(work()))
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def size_of(group: Group) -> int:
    """Return how many tasks and members a read of the whole group looks at."""
    return len(group.table.ids) + len(group.members)
