"""A member that lives as long as an ASGI application, in the application's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from batonpass.worker.member import Member

App = TypeVar("App")


def member_lifespan(
    make: Callable[[App], Member], *, wait_for_join: bool = False
) -> Callable[[App], AbstractAsyncContextManager[dict[str, Any]]]:
    """Return a lifespan for Starlette, FastAPI, Litestar and their like: `app = FastAPI(lifespan=...)`.

    ``make`` is given the application and makes its member. The application starts without waiting for the coordinator,
    unless ``wait_for_join``; requests find the member as `request.state.member`. When the application shuts down, on
    SIGTERM for instance, the member goes as its ``on_exit`` says before the server closes.

    Raises (when the application starts, if it waits):
        JoinRefused: when the coordinator will not have the member.
    """

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[dict[str, Any]]:
        member = make(app)
        member.start()
        try:
            if wait_for_join:
                await member.joined()
            yield {"member": member}
        finally:
            await member.exit()

    return lifespan
